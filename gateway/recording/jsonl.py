"""Convert a recording to the lines of a file, JSON objects, and back.

Bytes are {"text": …} if they are UTF-8, else {"base64": …}.
"""

from base64 import b64decode, b64encode
from collections.abc import Iterator, Sequence
from typing import Any, get_args

from msgspec import DecodeError, Struct, ValidationError, convert, json
from msgspec.structs import astuple

from gateway.recording.entries import EndEntry, RecordingEntry, RequestEntry, ResponseDataEntry, cause_of
from gateway.recording.recording import Recording
from gateway.recording.summary import ExchangeSummary

VERSION = 1
_KINDS: dict[str, type[RecordingEntry]] = {kind.__struct_config__.tag: kind for kind in get_args(RecordingEntry)}


class UnreadableRecording(ValueError):
    """A file that is no recording, or not replayable by this version."""


class _FileHeader(Struct, kw_only=True, omit_defaults=True, tag_field="schema", tag="gateway.recording"):
    """The first line.

    gateway: the version that wrote the file; redacted: the contents are masked.
    summary: the request in a list, so that a list reads no further.
    """

    version: int
    gateway: str
    id: str
    started: str
    redacted: bool
    summary: ExchangeSummary | None = None


def write_lines(
    recording: Recording, gateway: str, *, redacted: bool, summary: ExchangeSummary | None = None
) -> Iterator[bytes]:
    """Yield the lines of the file, with the members of its header."""
    head = _FileHeader(
        version=VERSION,
        gateway=gateway,
        id=recording.id,
        started=recording.started,
        redacted=redacted,
        summary=summary,
    )
    yield json.encode(head) + b"\n"
    for n, entry in enumerate(recording.entries):
        yield json.encode(entry_to_dict(n, entry, recording.entries)) + b"\n"


def parse_recording(data: bytes) -> Recording:
    """Parse a file.  Raises UnreadableRecording."""
    try:
        first, *lines = data.splitlines() or [b""]
        head = _header(first)
        recording = Recording(head.id, head.started, len(data))
        recording.entries = [_entry(json.decode(one, type=dict[str, Any])) for one in lines]
    except (DecodeError, ValidationError, UnicodeDecodeError, TypeError) as error:
        raise UnreadableRecording(f"it is not a recording: {error}") from None
    _complete(recording)
    return recording


def read_summary(line: bytes) -> ExchangeSummary:
    """Return the summary in the first line of a file.  Raises UnreadableRecording."""
    try:
        head = _header(line)
    except (DecodeError, ValidationError, UnicodeDecodeError) as error:
        raise UnreadableRecording(f"it is not a recording: {error}") from None
    if not head.summary:
        raise UnreadableRecording(f"it has no summary; gateway {head.gateway} wrote it")
    return head.summary


def _header(line: bytes) -> _FileHeader:
    head = json.decode(line, type=_FileHeader)
    if head.version > VERSION:
        raise UnreadableRecording(f"its version is {head.version}, and this gateway reads versions up to {VERSION}")
    return head


def _complete(recording: Recording) -> None:
    if not (recording.entries and isinstance(recording.entries[0], RequestEntry)):
        raise UnreadableRecording("it contains no request")
    last = recording.entries[-1]
    if not isinstance(last, EndEntry):
        raise UnreadableRecording("its end is missing")
    recording.size, recording.over = recording.max_bytes + last.cut, True


def entry_to_dict(n: int, entry: RecordingEntry, entries: Sequence[RecordingEntry]) -> dict[str, Any]:
    """Return an entry as data.  n: its number in `entries`."""
    fields: dict[str, Any] = {"n": n, "t": round(entry.t, 6), "kind": entry.__struct_config__.tag}
    for name in entry.__struct_fields__[1:]:  # skips the time
        value = getattr(entry, name)
        if name == "events":
            value = json.decode(value or b"[]")
        if value not in (None, [], {}):
            fields[name] = _plain(value)
    if isinstance(entry, ResponseDataEntry) and (of := cause_of(entries, n)) is not None:
        fields["of"] = of
    return fields


def _plain(value: Any) -> Any:  # noqa: ANN401 - a member of any type
    if isinstance(value, float):
        return round(value, 6)
    return _encoded_bytes(value) if isinstance(value, bytes) else value


def _encoded_bytes(data: bytes) -> dict[str, str]:
    try:
        return {"text": data.decode()}
    except UnicodeDecodeError:
        return {"base64": b64encode(data).decode()}


def _entry(line: dict[str, Any]) -> RecordingEntry:
    data = line | {name: _data(line[name]) for name in ("body", "data") if name in line}
    if "events" in line:
        data["events"] = json.encode(line["events"])
    kind = _KINDS.get(tag := line.get("kind", ""))
    if not kind:
        raise ValidationError(f"unknown entry kind '{tag}'")
    entry = kind(**{name: data[name] for name in kind.__struct_fields__ if name in data})
    checked: RecordingEntry = convert([tag, *astuple(entry)], type=RecordingEntry)
    return checked


def _data(data: dict[str, str]) -> bytes:
    return data["text"].encode() if "text" in data else b64decode(data.get("base64", ""))
