"""Summarize a recording for a list of requests: the request, its outcome, and its warnings."""

import re
from collections.abc import Collection, Iterator

from msgspec import DecodeError, Raw, Struct, ValidationError, json

from gateway.code_texts import WarningDetail, describe
from gateway.events import ToolCallStart
from gateway.recording.chunk_run import ChunkRun
from gateway.recording.entries import EndEntry, PreparedEntry, RoundEndEntry, UpstreamDataEntry
from gateway.recording.recording import Recording
from gateway.recording.redaction import redact_stream

_PROMPT = 160  # characters that are shown
_READ = 2000  # characters that are read, so that a secret at the end is seen as a whole
_TOOLS, _WARNINGS = 8, 16  # names of tools, and warnings
_SPACE = re.compile(r"\s+")
_TOOL = f'"{ToolCallStart.__struct_config__.tag}"'.encode()


class ExchangeSummary(Struct, frozen=True):
    """One request.

    started: ISO 8601; live: it is still running and has no status.
    first_byte: of the backend; first_token, duration: all in seconds since `started`.
    key: the name of the API key, known at the end; prompt: the beginning of the last text of the user.
    tools_called: the first names; ledger: the warnings; warnings: the first of them in words.
    entries, bytes: the size of the recording; cut: the recording is incomplete.
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
    key: str = ""
    prompt: str = ""
    tools_called: list[str] = []
    first_token: float | None = None
    input_tokens: int | None = None
    warnings: list[WarningDetail] = []


def summarize(recording: Recording, secrets: Collection[bytes]) -> ExchangeSummary:
    """Return the summary of a recording with entries.  Tool calls are only looked for in a complete one.

    The entries of chunks are not made for it.
    """
    parts, prepared, over = recording.parts, prepared_entry(recording), end_entry(recording)
    known = over.line if over else {}
    first = next((part.t for part in parts if isinstance(part, UpstreamDataEntry) and part.call), None)
    problem, request = over.problem if over else None, recording.request_entry
    return ExchangeSummary(
        id=recording.id,
        started=recording.started,
        endpoint=request.path if request else known.get("endpoint", ""),
        model=known.get("model") or (prepared.model if prepared else ""),
        backend=known.get("backend") or (prepared.backend if prepared else ""),
        format=known.get("format") or (prepared.format if prepared else ""),
        live=not over,
        status=over.status if over else None,
        error=(problem.code or problem.type) if problem else None,
        first_byte=first,
        duration=parts[-1].t,
        output_tokens=known.get("output_tokens"),
        ledger=over.ledger if over else [],
        entries=recording.count,
        bytes=recording.size,
        cut=recording.cut,
        key=known.get("key", ""),
        prompt=_prompt(request.body, secrets) if request else "",
        tools_called=_tools_called(recording) if over else [],
        first_token=known.get("first_content"),
        input_tokens=known.get("input_tokens"),
        warnings=[describe(entry) for entry in over.ledger[:_WARNINGS]] if over else [],
    )


def prepared_entry(recording: Recording) -> PreparedEntry | None:
    """Return the settings of the first attempt, if there was one."""
    return next((entry for entry in recording.parts if isinstance(entry, PreparedEntry)), None)


def end_entry(recording: Recording) -> EndEntry | None:
    """Return the outcome, if it is known."""
    return recording.last if isinstance(recording.last, EndEntry) else None


# The prompt


class _Message(Struct):
    role: str | None = None
    content: Raw = Raw()


class _Part(Struct):
    text: str | None = None


class _Body(Struct):
    messages: list[_Message] = []
    input: str | list[_Message | str | int] | None = None
    prompt: str | list[str] | None = None


_decode_body = json.Decoder(_Body).decode
_decode_content = json.Decoder(str | list[_Part] | None).decode


def _prompt(body: bytes, secrets: Collection[bytes]) -> str:
    """Return the beginning of the last text of the user; "" if the body has none that is valid."""
    try:
        text = _SPACE.sub(" ", _last_text(_decode_body(body))[:_READ]).strip()
    except (DecodeError, ValidationError, UnicodeDecodeError):
        return ""
    (shown,) = redact_stream([text.encode(errors="replace")], secrets, None)
    return shown.decode(errors="replace")[:_PROMPT]


def _last_text(body: _Body) -> str:
    for text in (body.prompt, body.input):
        if isinstance(text, str):
            return text
    if body.prompt:
        return str(body.prompt[-1])
    messages = [one for one in body.input or body.messages if isinstance(one, _Message)]
    texts = (_text(one) for one in reversed(messages) if one.role == "user")
    return next(filter(None, texts), "")


def _text(message: _Message) -> str:
    """Return the text of a message, "" for results of tools and images."""
    content = _decode_content(message.content) if message.content else None
    return content if isinstance(content, str) else " ".join(part.text for part in content or () if part.text)


# Tool calls


class _ToolStart(Struct):
    event: str
    name: str = ""


_decode_events = json.Decoder(list[_ToolStart]).decode


def _tools_called(recording: Recording) -> list[str]:
    names: dict[str, None] = {}
    for name in _calls(recording):
        names[name] = None
        if len(names) == _TOOLS:
            break
    return [*names]


def _calls(recording: Recording) -> Iterator[str]:
    for part in recording.parts:
        if isinstance(part, ChunkRun):
            yield from part.tool_names()
        elif isinstance(part, UpstreamDataEntry | RoundEndEntry) and _TOOL in part.events:
            yield from (
                one.name for one in _decode_events(part.events) if one.event == ToolCallStart.__struct_config__.tag
            )
