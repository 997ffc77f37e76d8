"""Mask secrets and contents of a recording without moving a byte.

Letters become x or X, digits become 1, other characters stay.  Each character takes as many bytes as before, so chunk
borders, JSON and markup stay the same.  All pieces of one text are masked together, however they are chunked.  Words
that parsing and error mapping need stay.
"""

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from functools import cache, lru_cache
from itertools import accumulate, pairwise
from typing import Any, get_args

from msgspec import DecodeError, json
from msgspec.structs import replace

from gateway.events import Event, ToolKind
from gateway.formats import FORMATS
from gateway.formats.markers import END_TOKENS
from gateway.recording.entries import (
    EndEntry,
    RecordingEntry,
    RequestEntry,
    ResponseDataEntry,
    RoundEndEntry,
    UpstreamDataEntry,
    UpstreamErrorEntry,
    UpstreamRequestEntry,
)
from gateway.recording.json_strings import JsonContainer, JsonString, scan_strings
from gateway.recording.recording import Recording

_WORD = re.compile(r"[^\W\d]{2,}")
_PROSE = re.compile(r"get_weather|Paris|(?i:it is sunny|let me see)|city|days")  # prose in the examples of the formats
_COMMON_WORDS = (  # words of error messages, of JSON and of tool calls
    "maximum context prompt length longer exceeds exceeded exceed available model number tokens token input window "
    "size overflow greater requested inputs must less have limit reduce messages failed parse tools requires jinja "
    "not supported missing tool unable generate parser function initialize samplers invalid json schema grammar found "
    "does exist loaded loading such unknown server pinned overloaded only than too long n_keep n_ctx max_model_len "
    "max_length max_tokens max_completion_tokens max_new_tokens max_seq_len completion requested passed output "
    "input_ids type data signature thinking redacted_thinking true false null True False None "
    "action operation environment working_directory exec"
)
_KEPT = frozenset(  # members whose strings are no content
    (
        "$ref", "call_id", "code", "const", "created_at", "detail", "done_reason", "effort", "encoding_format", "enum",
        "display", "execution", "finish_reason", "format", "id", "include", "item_id", "media_type", "mode", "model",
        "object", "param",
        "pattern", "previous_response_id", "reason", "required", "response_id", "role",
        "server_label", "service_tier", "status",
        "stop", "stop_reason", "syntax", "system_fingerprint", "tool_call_id", "tool_choice", "tool_use_id",
        "truncation", "type", "verbosity",
    )
)  # fmt: skip
_SECRETS = r"authorization(?:[_-]token)?|headers|api[_-]?key|password|secret|(?:access|refresh)[_-]token"
_SECRET = re.compile(rf"(?:^|[_-])(?:{_SECRETS})$", re.IGNORECASE).search  # also `Authorization` and `MY_API_KEY`
_NAMES = re.compile(rf"\\u00[4-7]|{_SECRETS}")  # a name, or an escaped letter of one, in small letters
_SCHEMA = frozenset(("$defs", "definitions", "input_schema", "parameters", "properties", "schema"))
_SCHEMAS = _SCHEMA | {"arguments"}  # below these, the names may be the user's
_OWN = frozenset(  # objects whose members the user or the model names, so `_KEPT` says nothing about them
    (
        "arguments", "attributes", "chat_template_kwargs", "documents", "env", "input", "input_examples", "metadata",
        "variables",
    )
)  # fmt: skip
_NAMING = ("name", "server_label", "server_name", "mcp_server_name", "tool_name")
_TERMS = frozenset(("code", "reason"))  # may also be a program, or a sentence
_PLAIN = _KEPT - _TERMS
_EXTRA = '"Extra"'  # the event of a member that has no event of its own; `json` is its value
_TERM = re.compile(r"[\w.:-]{0,64}")
_NUMBERS = frozenset(("bytes", "token_ids", "prompt_token_ids", "tokens", "embedding"))  # their numbers encode a text
_VALUES = {  # of members of events; other values are the user's
    "event": frozenset(kind.__struct_config__.tag for kind in get_args(Event)),
    "kind": frozenset(get_args(ToolKind)),
    "member": frozenset(("content", "images", "blocks")),
}
_CREDENTIALS = re.compile(r"(?<=://)[^/@\s\"\\]+(?=@)")
_DATA = re.compile(r"data:[^,]{0,100};base64,.{0,24}")  # the media type, and the first bytes that show the file type
_UNIT = re.compile(r"\\u[0-9a-fA-F]{4}|\\.|.", re.DOTALL)
_ALNUM = re.compile(r"[^\W_]")
_ESCAPED = "\\u0078"
_WIDE = {1: "x", 2: "ä", 3: "文", 4: "𠀀"}  # by UTF-8 length
Mask = Callable[[str], str]
_Piece = tuple[int, str]  # index of an entry, and the name of its member


@cache
def markup_words() -> frozenset[str]:
    """Return the words that models and servers write as markup, in error messages and in JSON."""
    rows = FORMATS.values()
    signs = " ".join([*END_TOKENS, *(sign for row in rows for sign in (*row.signs, *row.first))])
    examples = _PROSE.sub(" ", " ".join(row.example for row in rows))
    return frozenset(_WORD.findall(f"{signs} {examples} {_COMMON_WORDS}")) | {*END_TOKENS}


def names_in_request(body: Any, *, in_schema: bool = False) -> Iterator[str]:  # noqa: ANN401 - decoded JSON
    """Yield the names in a request: of tools, of their parameters, and the values of enums."""
    if isinstance(body, list):
        for one in body:
            yield from names_in_request(one, in_schema=in_schema)
    elif isinstance(body, dict):
        for name, value in body.items():
            if in_schema or name not in _OWN or (name == "input" and isinstance(value, list)):
                yield from _names_of(body, name, value)
                yield from names_in_request(value, in_schema=in_schema or name in _SCHEMA)


def _names_of(body: dict[str, Any], name: str, value: Any) -> Iterable[str]:  # noqa: ANN401 - decoded JSON
    """Return the names that one member of an object has."""
    if name in ("properties", "$defs", "definitions") and isinstance(value, dict):
        return value
    if name in _NAMING and isinstance(value, str) and "role" not in body:
        return (value,)
    if name == "enum" and isinstance(value, list):
        return [one for one in value if isinstance(one, str)]
    return ()


def redact(recording: Recording, secrets: Collection[bytes], *, contents: bool) -> Recording:
    """Return a recording, or a part of one, with secrets masked: known ones, and those in secret fields.

    contents: mask the contents as well.
    """
    entries = [*recording.entries]
    mask = _masking({*markup_words(), *_named(entries)}) if contents else None
    for stream in _streams(entries):
        pieces = [getattr(entries[place], member) for place, member in stream]
        for (place, member), data in zip(stream, redact_stream(pieces, secrets, mask), strict=True):
            entries[place] = replace(entries[place], **{member: data})
    result = Recording(recording.id, recording.started, recording.max_bytes)
    result.size, result.over = recording.size, recording.over
    result.entries = [_retold(entry, secrets, mask) for entry in entries]
    telling = [
        (place, entry)
        for place, entry in enumerate(result.entries)
        if isinstance(entry, UpstreamDataEntry | RoundEndEntry) and entry.events
    ]
    items = [entry.events + b"\n" for _, entry in telling]
    for (place, entry), events in zip(telling, redact_stream(items, secrets, mask), strict=True):
        result.entries[place] = replace(entry, events=events[:-1])
    return result


def redact_text(text: str, secrets: Collection[bytes]) -> str:
    """Return a text of a backend without secrets."""
    return redact_stream([text.encode()], secrets, None)[0].decode()


def redact_stream(pieces: Sequence[bytes], secrets: Collection[bytes], mask: Mask | None) -> list[bytes]:
    """Mask the pieces of one stream.  mask: masks contents; None: contents stay."""
    data = b"".join(pieces)
    for secret in secrets:
        data = data.replace(secret, b"*" * len(secret))
    text = data.decode(errors="surrogateescape")
    text = _CREDENTIALS.sub(lambda match: _starred(match[0]), text)
    if mask or _NAMES.search(text.lower()):  # otherwise the text has no secret fields
        text = _replaced(text, mask)
    data = text.encode(errors="surrogateescape")
    return [data[a:b] for a, b in pairwise((0, *accumulate(map(len, pieces))))]


def _streams(entries: Sequence[RecordingEntry]) -> list[list[_Piece]]:
    """Return the pieces of each stream, in their order."""
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
    """Mask the error message of an entry."""
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
                continue  # an unreadable body has no names


def _replaced(text: str, mask: Mask | None) -> str:
    changes: list[tuple[int, int, str]] = []
    channels: dict[object, list[JsonString]] = {}
    for one in [*scan_strings(text)]:  # scans the whole text first: `channel` is complete only then
        path = frozenset(one.path)
        if one.bare:
            if mask and path & _NUMBERS:
                changes.append((one.start, one.end, re.sub(r"\d", "1", text[one.start : one.end])))
        elif not path & _SCHEMAS and any(map(_is_secret, path)):
            changes.append((one.start, one.end, _starred(text[one.start : one.end])))
        elif mask and not _structural(one, text):
            channels.setdefault(one.channel, []).append(one)
    if mask:
        for pieces in channels.values():
            changes += _joined(text, pieces, mask)
    return _changed(text, changes)


@lru_cache(1024)
def _is_secret(name: str) -> bool:
    return bool(_SECRET(name))


def _structural(one: JsonString, text: str) -> bool:
    if _is_own(one):
        return False
    if one.name in _TERMS:
        return bool(_TERM.fullmatch(text, one.start, one.end))
    if one.name == "name":
        return not (one.inside and "role" in one.inside[-1].marks)  # the name of a speaker is content
    if one.name == "json" and one.inside and one.inside[-1].marks.get("event") == _EXTRA:
        return one.inside[-1].called in _PLAIN
    if values := _VALUES.get(one.name):
        return text[one.start : one.end] in values
    return bool(_KEPT.intersection(one.path[-1:]))


def _is_own(one: JsonString) -> bool:
    """Return True for a string of the user or the model: within an object of their own, or of an action."""
    before: JsonContainer | None = None
    for place in one.inside:
        name = place.path[-1] if place.path else ""
        if name in _SCHEMA:
            return False
        listed = before is not None and not before.mapping
        if name in _OWN and place.mapping and not (name == "input" and listed):  # in a list: an item of the API
            return True
        before = place
    return "action" in one.path and one.name != "type"


def _joined(text: str, pieces: Sequence[JsonString], mask: Mask) -> Iterator[tuple[int, int, str]]:
    """Yield the masked pieces; they are masked as one text, and escapes keep their length."""
    units = [_UNIT.findall(text[one.start : one.end]) if one.inside else [*text[one.start : one.end]] for one in pieces]
    plain = "".join(_char(unit) for piece in units for unit in piece)
    items = iter(mask(plain))
    for one, piece in zip(pieces, units, strict=True):
        new = "".join(_unit(unit, char) for unit, char in zip(piece, items, strict=False))
        yield one.start, one.end, new


def _char(unit: str) -> str:
    """Return the character of an escape; a newline for any escaped control character."""
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
    """Return a function that masks everything except these words and the syntax of JSON."""
    known = "|".join(map(re.escape, sorted(filter(None, words), key=len, reverse=True)))
    sign = re.compile(rf"({known}|\\[^u]|(?<=\d)[eE](?=[+-]?\d))|\\u[0-9a-fA-F]{{4}}|[^\W_]", re.DOTALL)

    def mask(text: str) -> str:
        begun = _DATA.match(text)
        kept = begun[0] if begun else ""
        return kept + sign.sub(lambda match: match[0] if match[1] else _masked(match[0]), text[len(kept) :])

    return mask


def _masked(text: str) -> str:
    if len(text) > 1:
        return _ESCAPED
    if text.isascii():
        return "1" if text.isdigit() else "X" if text.isupper() else "x"
    return _wide(text)


def _wide(char: str) -> str:
    return _WIDE[len(char.encode(errors="surrogatepass"))]


def _starred(text: str) -> str:
    return "".join("*" if char.isascii() else _wide(char) for char in text)
