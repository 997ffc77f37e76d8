"""A recording replayed in another format, to compare: in a process of its own, as it is a whole gateway."""

import asyncio
import sys
from asyncio.subprocess import DEVNULL, PIPE
from pathlib import Path
from tempfile import TemporaryDirectory

from msgspec import Struct

from gateway.errors import BadRequest
from gateway.formats import format_names
from gateway.server.child import run_child

_SECONDS = 60
_MOST = 1 << 18  # characters of a report
_NAME = "recording.jsonl"


class ReplayResult(Struct, frozen=True):
    """same: it means what it meant; report: what is different, or why it cannot be replayed."""

    same: bool
    report: str


class ReplayRunner:
    """One at a time."""

    def __init__(self) -> None:
        self._turn = asyncio.Lock()

    async def replay(self, recording: bytes, format: str) -> ReplayResult:
        """Raises BadRequest."""
        if format not in format_names():
            raise BadRequest(f"There is no format '{format}'.", param="format")
        async with self._turn:
            with TemporaryDirectory() as folder:
                await asyncio.to_thread((Path(folder) / _NAME).write_bytes, recording)
                return await _replay(folder, format)


async def _replay(folder: str, format: str) -> ReplayResult:
    command = (sys.executable, "-m", "gateway", "replay", str(Path(folder) / _NAME), "--format", format)
    try:
        async with (
            run_child(*command, stdin=DEVNULL, stdout=PIPE, stderr=DEVNULL) as process,
            asyncio.timeout(_SECONDS),
        ):
            said, _ = await process.communicate()
    except TimeoutError:
        return ReplayResult(False, f"It takes longer than {_SECONDS} seconds.")
    report = said.decode(errors="replace").partition(f"{_NAME}: ")[2]
    return ReplayResult(process.returncode == 0, report[:_MOST].strip() or "It cannot be replayed.")
