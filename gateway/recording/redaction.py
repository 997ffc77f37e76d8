"""Secrets and contents taken out of a recording, so that everything is still where it was.

Letters become x or X, digits 1, all else of a text stays; each character takes as many bytes as before, so that cuts,
JSON and markup are what they were.  The pieces of one text are looked at as one, however they came.
"""

import re
from collections.abc import Callable, Collection, Iterator, Sequence
from itertools import accumulate, pairwise
from typing import get_args

from msgspec import DecodeError, json
from msgspec.structs import replace

from gateway.events import Event
from gateway.recording.entries import (
    EndEntry,
    Recording,
    RecordingEntry,
    RequestEntry,
    ResponseDataEntry,
    RoundEndEntry,
    UpstreamDataEntry,
    UpstreamErrorEntry,
    UpstreamRequestEntry,
)
from gateway.recording.scan import JsonString, scan_strings
from gateway.recording.vocabulary import markup_words, names_in_request

_KEPT = frozenset(  # strings that are no content
    (
        "$ref", "call_id", "code", "const", "created_at", "detail", "done_reason", "effort", "encoding_format", "enum",
        "execution", "finish_reason", "format", "id", "include", "item_id", "mode", "model", "object", "param",
        "pattern", "previous_response_id", "reason", "required", "response_id", "role",
        "server_label", "service_tier", "status",
        "stop", "syntax", "system_fingerprint", "tool_call_id", "tool_choice", "truncation", "type", "verbosity",
    )
)  # fmt: skip
_SECRET = frozenset(("authorization", "headers", "api_key", "password", "secret", "access_token"))
_NAMES = re.compile(r"\\u00[4-7]|" + "|".join(sorted(_SECRET)))  # or a letter of one, escaped
_SCHEMAS = frozenset(("parameters", "properties", "schema", "arguments"))  # where these may be names of the user
_NUMBERS = frozenset(("bytes", "token_ids", "prompt_token_ids", "tokens", "embedding"))  # that stand for a text
_EVENTS = frozenset(kind.__struct_config__.tag for kind in get_args(Event))
_CREDENTIALS = re.compile(r"(?<=://)[^/@\s\"\\]+(?=@)")
_DATA = re.compile(r"data:[^,]{0,100};base64,.{0,24}")  # what tells of which sort it is
_UNIT = re.compile(r"\\u[0-9a-fA-F]{4}|\\.|.", re.DOTALL)
_ALNUM = re.compile(r"[^\W_]")
_ESCAPED = "\\u0078"
_WIDE = {1: "x", 2: "ä", 3: "文", 4: "𠀀"}  # by bytes

Mask = Callable[[str], str]
_Piece = tuple[int, str]  # the place of an entry, and the member of it


def redact(recording: Recording, secrets: Collection[bytes], *, contents: bool) -> Recording:
    """Return the recording, or a part of it, without secrets: known ones, and those in secret fields.

    contents: also without the contents.
    """
    entries = [*recording.entries]
    mask = _masking({*markup_words(), *_named(entries)}) if contents else None
    for stream in _streams(entries):
        pieces = [getattr(entries[place], member) for place, member in stream]
        for (place, member), data in zip(stream, redact_stream(pieces, secrets, mask), strict=True):
            entries[place] = replace(entries[place], **{member: data})
    result = Recording(recording.id, recording.started, recording.most)
    result.size, result.over = recording.size, recording.over
    result.entries = [_retold(entry, secrets, mask) for entry in entries]
    telling = [
        (place, entry)
        for place, entry in enumerate(result.entries)
        if isinstance(entry, UpstreamDataEntry | RoundEndEntry) and entry.events
    ]
    said = [entry.events + b"\n" for _, entry in telling]
    for (place, entry), events in zip(telling, redact_stream(said, secrets, mask), strict=True):
        result.entries[place] = replace(entry, events=events[:-1])
    return result


def redact_stream(pieces: Sequence[bytes], secrets: Collection[bytes], mask: Mask | None) -> list[bytes]:
    """The pieces of one stream.  mask: of contents; None: these stay."""
    data = b"".join(pieces)
    for secret in secrets:
        data = data.replace(secret, b"*" * len(secret))
    text = data.decode(errors="surrogateescape")
    text = _CREDENTIALS.sub(lambda said: _starred(said[0]), text)
    if mask or _NAMES.search(text):  # else there is nothing to be found
        text = _replaced(text, mask)
    data = text.encode(errors="surrogateescape")
    return [data[a:b] for a, b in pairwise((0, *accumulate(map(len, pieces))))]


def _streams(entries: Sequence[RecordingEntry]) -> list[list[_Piece]]:
    """Return the pieces of each text, in their order."""
    streams: dict[object, list[_Piece]] = {}
    for place, entry in enumerate(entries):
        match entry:
            case RequestEntry() | UpstreamRequestEntry() | UpstreamErrorEntry():
                streams[place] = [(place, "body")]
            case UpstreamDataEntry():
                streams.setdefault(("read", entry.call), []).append((place, "data"))
            case ResponseDataEntry():
                streams.setdefault("wrote", []).append((place, "data"))
    return [*streams.values()]


def _retold(entry: RecordingEntry, secrets: Collection[bytes], mask: Mask | None) -> RecordingEntry:
    """Without what is said of a failure."""
    if not isinstance(entry, RoundEndEntry | EndEntry) or not entry.problem:
        return entry
    (message,) = redact_stream([entry.problem.message.encode()], secrets, mask)
    return replace(entry, problem=replace(entry.problem, message=message.decode()))


def _named(entries: Sequence[RecordingEntry]) -> Iterator[str]:
    for entry in entries:
        if isinstance(entry, RequestEntry | UpstreamRequestEntry):
            try:
                yield from names_in_request(json.decode(entry.body))
            except (DecodeError, UnicodeDecodeError, RecursionError):
                continue  # then it has no names that anybody could read


def _replaced(text: str, mask: Mask | None) -> str:
    changes: list[tuple[int, int, str]] = []
    channels: dict[object, list[JsonString]] = {}
    for one in [*scan_strings(text)]:  # all of it: only then they know what belongs together
        path = frozenset(one.path)
        if one.bare:
            if mask and path & _NUMBERS:
                changes.append((one.start, one.end, re.sub(r"\d", "1", text[one.start : one.end])))
        elif path & _SECRET and not path & _SCHEMAS:
            changes.append((one.start, one.end, _starred(text[one.start : one.end])))
        elif mask and not _structural(one, text):
            channels.setdefault(one.channel, []).append(one)
    if mask:
        for pieces in channels.values():
            changes += _joined(text, pieces, mask)
    return _changed(text, changes)


def _structural(one: JsonString, text: str) -> bool:
    if one.name == "name":
        return not (one.inside and "role" in one.inside[-1].marks)  # that of who speaks is his own
    if one.name == "event":
        return text[one.start : one.end] in _EVENTS  # else it is a word of the user
    return bool(_KEPT.intersection(one.path[-1:]))


def _joined(text: str, pieces: Sequence[JsonString], mask: Mask) -> Iterator[tuple[int, int, str]]:
    """Each piece as it is where all of them together have been masked; escapes stay as long as they are."""
    units = [_UNIT.findall(text[one.start : one.end]) if one.inside else [*text[one.start : one.end]] for one in pieces]
    plain = "".join(_char(unit) for piece in units for unit in piece)
    said = iter(mask(plain))
    for one, piece in zip(pieces, units, strict=True):
        new = "".join(_unit(unit, char) for unit, char in zip(piece, said, strict=False))
        yield one.start, one.end, new


def _char(unit: str) -> str:
    """Return the character that an escape stands for; of control characters any."""
    if len(unit) == 6:
        return chr(int(unit[2:], 16))
    return "\n" if unit[-1].isalnum() and len(unit) == 2 else unit[-1]


def _unit(unit: str, char: str) -> str:
    if char == _char(unit):
        return unit
    return _ESCAPED if len(unit) == 6 else char


def _changed(text: str, changes: list[tuple[int, int, str]]) -> str:
    parts, done = [], 0
    for start, end, new in sorted(changes):
        parts += [text[done:start], new]
        done = end
    return "".join([*parts, text[done:]])


def _masking(words: Collection[str]) -> Mask:
    """Return a function that masks all of a text but these words and the syntax of JSON."""
    known = "|".join(map(re.escape, sorted(filter(None, words), key=len, reverse=True)))
    sign = re.compile(rf"({known}|\\[^u]|(?<=\d)[eE](?=[+-]?\d))|\\u[0-9a-fA-F]{{4}}|[^\W_]", re.DOTALL)

    def mask(text: str) -> str:
        begun = _DATA.match(text)
        kept = begun[0] if begun else ""
        return kept + sign.sub(lambda said: said[0] if said[1] else _masked(said[0]), text[len(kept) :])

    return mask


def _masked(said: str) -> str:
    if len(said) > 1:
        return _ESCAPED
    if said.isascii():
        return "1" if said.isdigit() else "X" if said.isupper() else "x"
    return _wide(said)


def _wide(char: str) -> str:
    return _WIDE[len(char.encode(errors="surrogatepass"))]


def _starred(said: str) -> str:
    return "".join("*" if char.isascii() else _wide(char) for char in said)
