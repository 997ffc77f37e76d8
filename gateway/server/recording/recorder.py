"""Which requests are written down, and where they go; a process has one."""

import asyncio
import logging
import random
from collections import deque
from collections.abc import Collection, Iterable
from concurrent.futures import Future, ThreadPoolExecutor

from gateway.config import Config
from gateway.recording import Recording
from gateway.server.recording import files
from gateway.server.recording.tape import Tape
from gateway.server.telemetry.line import told
from gateway.server.telemetry.observation import Observation

_log = logging.getLogger("gateway")
_ASKED_FOR = (b"x-gateway-record", b"1")
_ENDPOINTS = frozenset(("/v1/chat/completions", "/v1/completions", "/v1/responses", "/v1/responses/compact"))
_TWICE = ("error", "ledger")  # what the log has in a form of its own
_RECENT = 32
_MOST_RECENT = 64 << 20  # bytes of these
_MOST_WAITING = 64 << 20  # bytes that wait to be written


class Recorder:
    """recent: those of late, the running ones among them, where somebody may look at them.

    secrets: what nobody is shown of them.
    """

    def __init__(self) -> None:
        self.recent: deque[Recording] = deque(maxlen=_RECENT)
        self._writer: ThreadPoolExecutor | None = None
        self._waiting: dict[Future[None], int] = {}
        self.follow(Config())

    def follow(self, config: Config) -> None:
        """What it says holds from now on."""
        self._settings, self._shown = config.recording, config.inspector.enabled
        keys = [one.api_key.get_secret_value() for one in config.backends.values() if one.api_key]
        self.secrets: Collection[bytes] = [key.encode() for key in keys]

    def begin(self, id: str, endpoint: str, headers: Iterable[tuple[bytes, bytes]]) -> Tape | None:
        """None where nobody wants it."""
        if (self._settings.mode == "off" and not self._shown) or endpoint not in _ENDPOINTS:
            return None
        chosen = self._chosen(headers)
        if not (chosen or self._shown):
            return None
        tape = Tape(id, self._settings.exchange_bytes, chosen=chosen)
        if self._shown:
            while sum(one.size for one in self.recent) > _MOST_RECENT:
                self.recent.popleft()
            self.recent.append(tape.recording)
        return tape

    def end(self, seen: Observation, tape: Tape) -> None:
        """It is over."""
        line = {name: value for name, value in told(seen).items() if name not in _TWICE}
        tape.over(seen.outcome, seen.problem, seen.ledger.entries(), line)
        failed = seen.outcome >= 400
        if tape.chosen and (failed or self._settings.mode != "errors") and tape.recording.asked:
            self._write(tape.recording)

    def _chosen(self, headers: Iterable[tuple[bytes, bytes]]) -> bool:
        match self._settings.mode:
            case "off":
                return False
            case "sample":
                return random.random() < self._settings.share
            case "header":
                return _ASKED_FOR in headers
            case _:
                return True

    def _write(self, recording: Recording) -> None:
        if sum([*self._waiting.values()]) + recording.size > _MOST_WAITING:
            _log.warning("a recording is lost: more come than can be written")
            return
        self._writer = self._writer or ThreadPoolExecutor(1, "recorder")
        work = self._writer.submit(files.write, recording, self._settings, self.secrets)
        self._waiting[work] = recording.size
        work.add_done_callback(self._written)

    def _written(self, work: Future[None]) -> None:
        """In the writer's thread."""
        if isinstance(error := work.exception(), OSError):
            _log.warning("a recording could not be written: %s", error.strerror)
        elif error:
            _log.error("a recording could not be written", exc_info=error)
        self._waiting.pop(work, None)

    async def flush(self) -> None:
        """Return when all is written, and let go of."""
        if self._writer:
            await asyncio.wrap_future(self._writer.submit(int))  # behind all that waits
