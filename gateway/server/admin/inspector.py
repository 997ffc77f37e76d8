"""Show single requests step by step, as /admin/exchanges serves them: recent ones that this worker recorded.

The inspector shows contents, but no secrets.  A replay in another format runs in a process of its own.
"""

import asyncio
import re
import sys
from asyncio.subprocess import DEVNULL, PIPE
from collections.abc import Collection, Iterable, Iterator
from functools import cache
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from msgspec import DecodeError, Struct, ValidationError, json
from msgspec.structs import replace

from gateway import __version__
from gateway.errors import BadRequest
from gateway.formats import FORMATS, format_names
from gateway.formats.markers import END_TOKENS
from gateway.recording import (
    RecordedResponse,
    Recording,
    RecordingEntry,
    RequestEntry,
    ResponseDataEntry,
    UpstreamDataEntry,
    UpstreamErrorEntry,
    UpstreamRequestEntry,
    entry_to_dict,
    redact,
    write_lines,
)
from gateway.server.child_process import run_child

_ENTRIES = 500  # of a page
_BYTES = 1 << 20  # of the contents on a page
_LONGEST = 1 << 18  # bytes shown of one entry
_SIGN = re.compile(r'[<\[][^"{]{3,}')  # a marker that does not occur in ordinary text
_TAG = re.compile(r"<[a-z_:]+>")  # a tag that has an end tag
_SECONDS = 60
_MAX = 2000  # lines of differences
_NAME = "recording.jsonl"


class EntriesPage(Struct, frozen=True):
    """A page of a recording's entries, in their order.

    more: further entries exist already; over: the recording is complete, and no entry will be added.
    `cut` in an entry is its size in bytes if the page shows only a part of it.
    """

    entries: list[dict[str, Any]]
    more: bool
    over: bool


def find_exchange(recent: Iterable[Recording], id: str, started: str) -> Recording | None:
    """Return the newest exchange of this id that started at `started`, or at any time if that is "", up to now.

    Clients may use an id twice.
    """
    for one in [*recent][::-1]:
        if one.id == id and started in ("", one.started):
            one.settle()
            return one
    return None


def entries_page(recording: Recording, after: int, secrets: Collection[bytes]) -> EntriesPage:
    """Return the page of entries after number `after`, without the secrets."""
    some = [*_some(recording.entries[after + 1 :])]
    part = Recording(recording.id, recording.started, 0)
    part.entries = [_clipped(entry) for entry in some]
    shown = enumerate(redact(part, secrets, contents=False).entries, after + 1)
    lines = [entry_to_dict(n, entry, recording.entries) for n, entry in shown]
    for data, entry in zip(lines, some, strict=True):
        if (size := _size(entry)) > _LONGEST:
            data["cut"] = size
    known = after + 1 + len(some)
    return EntriesPage(lines, more=known < len(recording.entries), over=recording.over)


def recording_file(recording: Recording, secrets: Collection[bytes], *, contents: bool) -> bytes:
    """Return the recording as a file, without the secrets.  contents: False masks the contents of messages, too."""
    shown = redact(recording, secrets, contents=not contents)
    return b"".join(write_lines(shown, __version__, redacted=not contents))


def _some(entries: list[RecordingEntry]) -> Iterator[RecordingEntry]:
    """Yield as many entries as fit on a page, at least one."""
    room = _BYTES
    for entry in islice(entries, _ENTRIES):
        yield entry
        room -= min(_size(entry), _LONGEST)
        if room <= 0:
            return


def _size(entry: RecordingEntry) -> int:
    match entry:
        case RequestEntry() | UpstreamRequestEntry() | UpstreamErrorEntry():
            return len(entry.body)
        case UpstreamDataEntry() | ResponseDataEntry():
            return len(entry.data)
    return 0


def _clipped(entry: RecordingEntry) -> RecordingEntry:
    if _size(entry) <= _LONGEST:
        return entry
    name = "data" if isinstance(entry, UpstreamDataEntry | ResponseDataEntry) else "body"
    return replace(entry, **{name: getattr(entry, name)[:_LONGEST]})


@cache
def markers() -> list[str]:
    """Return the tags that models write around reasoning and tool calls, the longest first."""
    known = {sign for row in FORMATS.values() for sign in (*row.signs, *row.first)} | {"<think>", *END_TOKENS}
    signs = {sign for sign in known if _SIGN.fullmatch(sign)}
    ends = {f"</{sign[1:]}" for sign in signs if _TAG.fullmatch(sign)}
    return sorted(signs | ends, key=lambda sign: (-len(sign), sign))


class ReplayResult(Struct, frozen=True):
    """The result of a replay.

    same: the replay gives the same events; differences: lines that show them.
    reason: why a replay is not possible; response: the new response, None without a replay.
    """

    same: bool
    differences: list[str] = []
    reason: str = ""
    response: RecordedResponse | None = None


class ReplayRunner:
    """Run replays, one at a time."""

    def __init__(self) -> None:
        self._turn = asyncio.Lock()

    async def replay(self, recording: bytes, format: str) -> ReplayResult:
        """Replay a recording file in another format; raise BadRequest for an unknown one."""
        if format not in format_names():
            raise BadRequest(f"Unknown format '{format}'. `gateway formats` lists all formats.", param="format")
        async with self._turn:
            with TemporaryDirectory() as folder:
                await asyncio.to_thread((Path(folder) / _NAME).write_bytes, recording)
                return await _replay(folder, format)


async def _replay(folder: str, format: str) -> ReplayResult:
    command = (sys.executable, "-m", "gateway", "replay", str(Path(folder) / _NAME), "--format", format, "--json")
    try:
        async with (
            run_child(*command, stdin=DEVNULL, stdout=PIPE, stderr=DEVNULL) as process,
            asyncio.timeout(_SECONDS),
        ):
            data, _ = await process.communicate()
    except TimeoutError:
        return ReplayResult(False, reason=f"The replay took longer than {_SECONDS} s.")
    try:
        result = json.decode(data, type=ReplayResult)
    except (DecodeError, ValidationError):
        return ReplayResult(False, reason="The recording cannot be replayed.")
    return replace(result, differences=result.differences[:_MAX])
