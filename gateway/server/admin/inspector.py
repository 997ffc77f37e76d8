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

from msgspec import Struct
from msgspec.structs import replace

from gateway import __version__
from gateway.errors import BadRequest, NotFound
from gateway.formats import FORMATS, format_names
from gateway.formats.markers import END_TOKENS
from gateway.recording import (
    EndEntry,
    PreparedEntry,
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
_MAX = 1 << 18  # characters of a report
_NAME = "recording.jsonl"


class ExchangeSummary(Struct, frozen=True):
    """One request.

    started: ISO 8601; live: it is still running and has no status; first_byte, duration: seconds since `started`.
    ledger: the warnings; entries, bytes: the size of the recording; cut: the recording is incomplete.
    """

    id: str
    started: str
    endpoint: str
    model: str
    backend: str
    format: str
    live: bool
    status: int | None
    error: str | None
    first_byte: float | None
    duration: float
    output_tokens: int | None
    ledger: list[str]
    entries: int
    bytes: int
    cut: bool


class ExchangeDetail(ExchangeSummary, frozen=True):
    """A summary with more details.

    reason: of the format's choice; message: of the error; line: the fields of the access log.
    markers: the tags that models write, for highlighting.
    """

    reason: str
    message: str | None
    line: dict[str, Any]
    markers: list[str]


class EntriesPage(Struct, frozen=True):
    """A page of a recording's entries, in their order.

    more: further entries exist already; over: the recording is complete, and no entry will be added.
    `cut` in an entry is its size in bytes if the page shows only a part of it.
    """

    entries: list[dict[str, Any]]
    more: bool
    over: bool


def list_exchanges(recent: Iterable[Recording], model: str, status: str, code: str) -> list[ExchangeSummary]:
    """Return the running exchanges, then the finished ones, each the newest first.

    model: a part of its name; status: `live`, a number, or a class like `4xx`; code: of a warning.
    """
    items = [_exchange(one) for one in [*recent][::-1] if one.entries]
    fit = [one for one in items if _fits(one, model, status, code)]
    return sorted(fit, key=lambda one: not one.live)


def find_exchange(recent: Iterable[Recording], id: str, started: str) -> Recording:
    """Return the newest exchange of this id that started at `started`, or at any time if that is "".

    Clients may use an id twice.  Raises NotFound.
    """
    for one in [*recent][::-1]:
        if one.id == id and started in ("", one.started):
            return one
    raise NotFound(f"Exchange '{id}' is not in the inspector's memory.")


def exchange_detail(recording: Recording) -> ExchangeDetail:
    """Return the details of an exchange."""
    prepared, over = _prepared(recording), _over(recording)
    summary = _exchange(recording)
    return ExchangeDetail(
        **{name: getattr(summary, name) for name in summary.__struct_fields__},
        reason=prepared.reason if prepared else "",
        message=over.problem.message if over and over.problem else None,
        line=over.line if over else {},
        markers=_markers(),
    )


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


def _exchange(recording: Recording) -> ExchangeSummary:
    entries, prepared, over = recording.entries, _prepared(recording), _over(recording)
    known = over.line if over else {}
    first = next((entry.t for entry in entries if isinstance(entry, UpstreamDataEntry) and entry.call), None)
    problem = over.problem if over else None
    return ExchangeSummary(
        id=recording.id,
        started=recording.started,
        endpoint=recording.request_entry.path if recording.request_entry else known.get("endpoint", ""),
        model=known.get("model") or (prepared.model if prepared else ""),
        backend=known.get("backend") or (prepared.backend if prepared else ""),
        format=known.get("format") or (prepared.format if prepared else ""),
        live=not over,
        status=over.status if over else None,
        error=(problem.code or problem.type) if problem else None,
        first_byte=first,
        duration=entries[-1].t,
        output_tokens=known.get("output_tokens"),
        ledger=over.ledger if over else [],
        entries=len(entries),
        bytes=recording.size,
        cut=recording.cut,
    )


def _prepared(recording: Recording) -> PreparedEntry | None:
    return next((entry for entry in recording.entries if isinstance(entry, PreparedEntry)), None)


def _over(recording: Recording) -> EndEntry | None:
    last = recording.entries[-1] if recording.entries else None
    return last if isinstance(last, EndEntry) else None


def _fits(one: ExchangeSummary, model: str, status: str, code: str) -> bool:
    states = {"live"} if one.status is None else {str(one.status), f"{one.status // 100}xx"}
    codes = {entry.partition(":")[0] for entry in one.ledger}
    return model in one.model and (not status or status in states) and (not code or code in codes)


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
def _markers() -> list[str]:
    """Return the tags that models write around reasoning and tool calls, the longest first."""
    known = {sign for row in FORMATS.values() for sign in (*row.signs, *row.first)} | {"<think>", *END_TOKENS}
    signs = {sign for sign in known if _SIGN.fullmatch(sign)}
    ends = {f"</{sign[1:]}" for sign in signs if _TAG.fullmatch(sign)}
    return sorted(signs | ends, key=lambda sign: (-len(sign), sign))


class ReplayResult(Struct, frozen=True):
    """The result of a replay.

    same: the replay gives the same events; report: the differences, or the reason why a replay is not possible.
    """

    same: bool
    report: str


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
    command = (sys.executable, "-m", "gateway", "replay", str(Path(folder) / _NAME), "--format", format)
    try:
        async with (
            run_child(*command, stdin=DEVNULL, stdout=PIPE, stderr=DEVNULL) as process,
            asyncio.timeout(_SECONDS),
        ):
            data, _ = await process.communicate()
    except TimeoutError:
        return ReplayResult(False, f"The replay took longer than {_SECONDS} s.")
    report = data.decode(errors="replace").partition(f"{_NAME}: ")[2]
    return ReplayResult(process.returncode == 0, report[:_MAX].strip() or "The recording cannot be replayed.")
