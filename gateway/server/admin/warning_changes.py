"""Show what a warning is about: the text before the gateway changed it, and after."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

from msgspec import DecodeError, Struct, json

from gateway.recording import Recording, RequestEntry, ResponseDataEntry, UpstreamDataEntry, UpstreamRequestEntry

_LONGEST = 2000  # characters of each text
_VALUES = 20  # of a field that a request has several times


class TextChange(Struct, frozen=True):
    """A text before and after; "" if it is not there."""

    before: str
    after: str


def text_changes(recording: Recording, entries: Mapping[str, int]) -> dict[str, TextChange]:
    """Return the changes behind warnings, without those that the recording lacks.  entries: the entry of each warning.

    A field of the request is compared with the request to the backend.  Output is compared with what the client got of
    the same read.
    """
    bodies = _body(recording, RequestEntry), _body(recording, UpstreamRequestEntry)
    changes: dict[str, TextChange] = {}
    for warning, entry in entries.items():
        read = recording.entries[entry]
        if isinstance(read, UpstreamDataEntry):
            change = TextChange(_text(read.data), _text(_written(recording, entry)))
        else:
            path = warning.partition(":")[2].partition("=")[0].split(".")
            change = TextChange(*(_field(body, path) for body in bodies))
        if change.before != change.after:
            changes[warning] = change
    return changes


def _written(recording: Recording, entry: int) -> bytes:
    """Return the first data for the client behind an entry."""
    return next((one.data for one in recording.entries[entry:] if isinstance(one, ResponseDataEntry)), b"")


def _body(recording: Recording, kind: type[RequestEntry | UpstreamRequestEntry]) -> Any:  # noqa: ANN401 - decoded JSON
    """Return the last body of a kind; None if it is no JSON."""
    body = next((one.body for one in reversed(recording.entries) if isinstance(one, kind)), b"")
    try:
        return json.decode(body)
    except (DecodeError, UnicodeDecodeError, RecursionError):
        return None


def _field(body: Any, path: Sequence[str]) -> str:  # noqa: ANN401 - decoded JSON
    """Return the values of a field, one in a line."""
    return _text(b"\n".join(map(json.encode, islice(_values(body, path), _VALUES))))


def _values(data: Any, path: Sequence[str]) -> Iterator[Any]:  # noqa: ANN401 - decoded JSON
    """Yield the values at a path, in each element of a list; a tool of chat completions is in its `function`."""
    if not path:
        yield data
    elif isinstance(data, list):
        for one in data:
            if isinstance(one, dict):
                yield from _values(one, path)
    elif isinstance(data, dict):
        inner = data if path[0] in data else data.get("function")
        if isinstance(inner, dict) and path[0] in inner:
            yield from _values(inner[path[0]], path[1:])


def _text(data: bytes) -> str:
    return data.decode(errors="replace")[:_LONGEST]
