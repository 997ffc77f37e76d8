"""The process that writes recordings, as it takes longer to take secrets and contents out of one than to answer."""

import asyncio
import logging
import os
import sys
from asyncio.subprocess import PIPE

from gateway.server.child import run_child
from gateway.server.recording.writing import LENGTH

_log = logging.getLogger("gateway")
_PROGRAM = (sys.executable, "-P", "-m", "gateway.server.recording.writing")
_MOST = 64 << 20  # bytes that wait to be written
_SECONDS = 30  # for these, at the end


class RecordingWriter:
    """Begins it; `write` as long as it is `alive`, and `end` it."""

    def __init__(self) -> None:
        self.alive, self._over = True, False
        self._early: list[bytes] = []  # what is to be written before it has begun
        self._input: asyncio.StreamWriter | None = None
        self._life = asyncio.create_task(self._live())

    def write(self, order: bytes) -> bool:
        """False where too much waits already."""
        if self._waiting + len(order) > _MOST:
            return False
        self._early += (len(order).to_bytes(LENGTH, "big"), order)
        self._pass_on()
        return True

    async def end(self) -> None:
        """Return when all is written, or takes too long."""
        self._over = True
        self._pass_on()
        try:
            await asyncio.wait_for(self._life, _SECONDS)
        except TimeoutError:
            _log.warning("recordings are lost: it takes too long to write them")

    @property
    def _waiting(self) -> int:
        return sum(map(len, self._early)) + (self._input.transport.get_write_buffer_size() if self._input else 0)

    def _pass_on(self) -> None:
        if self._input:
            self._input.writelines(self._early)
            self._early.clear()
            if self._over:
                self._input.close()

    async def _live(self) -> None:
        known = {"PYTHONPATH": os.pathsep.join(sys.path)}  # where this gateway is, and no secret
        try:
            async with run_child(*_PROGRAM, stdin=PIPE, stdout=PIPE, env=known, start_new_session=True) as process:
                assert process.stdin and process.stdout
                self._input = process.stdin
                self._pass_on()
                async for line in process.stdout:
                    _log.warning("a recording could not be written: %s", line.decode(errors="replace").strip())
                self.alive = False
                code = await process.wait()
        except OSError as error:
            self.alive = False
            _log.error("recordings are lost, as what writes them cannot begin: %s", error.strerror)
            return
        if code or not self._over:
            _log.error("what writes recordings has ended with %d, and those that it had are lost", code)
