"""Show all that is known of one request: its times, warnings and failure; its conversation; likely formats."""

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

from msgspec import DecodeError, Struct, field, json

from gateway.formats.parser import ParseContext
from gateway.pipeline.format_mismatch import FormatGuess, likely_formats
from gateway.recording import (
    ExchangeSummary,
    PreparedEntry,
    RecordedResponse,
    Recording,
    RequestEntry,
    ResponseDataEntry,
    ResponseHeadersEntry,
    RoundEndEntry,
    UpstreamDataEntry,
    UpstreamRequestEntry,
    end_entry,
    recorded_response,
    redact,
    summarize,
)
from gateway.server.admin.conversation import RequestView, ToolView, read_request
from gateway.server.admin.exchange_failure import FailureView, failure_view
from gateway.server.admin.exchange_times import ExchangeTimes, exchange_times
from gateway.server.admin.exchange_verdict import RequestVerdict, response_verdict
from gateway.server.admin.inspector import markers
from gateway.server.observability.minute_counts import MinuteCounts

_LONGEST = 2000  # characters of each text
_VALUES = 20  # of a field that a request has several times
_PRODUCT = re.compile(r"[^\s/]+(?:/[^\s/]+)?")
_TO_BACKEND = ("renamed", "translated", "forwarded", "emulated")  # what the gateway did is seen in the upstream request
_TOKEN_WARNINGS = ("usage", "input_tokens", "usage.reasoning_tokens")


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


class ExchangeLink(Struct, frozen=True):
    """The id and the start of another request."""

    id: str
    started: str


class TokenCounts(Struct, frozen=True):
    """Tokens of all rounds; None if none are known.  text: output without reasoning.

    estimated: the counts that the gateway estimated.
    """

    input: int | None = None
    cached: int | None = None
    output: int | None = None
    reasoning: int | None = None
    text: int | None = None
    estimated: list[str] = []


class ExchangeDetail(ExchangeSummary, frozen=True):
    """A summary with more details.

    reason: of the format's choice; message: of the error; line: the fields of the access log.
    markers: the tags that models write, for highlighting.
    upstream_model: the model's name at the backend; client: the product of the user agent.
    client_status: the status that the client received, None before the response begins.
    warning_entries: the number of the entry that a warning belongs to.
    newer, older: the requests around this one; None at the end of the list.
    """

    reason: str = ""
    message: str | None = None
    line: dict[str, Any] = field(default_factory=dict)
    markers: list[str] = field(default_factory=list)
    upstream_model: str = ""
    client: str = ""
    client_status: int | None = None
    times: ExchangeTimes = ExchangeTimes()
    tokens: TokenCounts = TokenCounts()
    warning_entries: dict[str, int] = field(default_factory=dict)
    failure: FailureView | None = None
    newer: ExchangeLink | None = None
    older: ExchangeLink | None = None


class ConversationView(Struct, frozen=True):
    """The conversation of a request.

    received: the request as the model received it, None if no backend was called; sent: as the client sent it.
    looks_like: formats whose markup the text has, if tools were offered and none was called.
    verdict: on a response that came whole and is not as it should be, else None.
    changes: the texts before and after, by warning, where the gateway changed one.
    """

    received: RequestView | None
    sent: RequestView | None
    response: RecordedResponse
    looks_like: list[FormatGuess]
    changes: dict[str, TextChange]
    verdict: RequestVerdict | None


def exchange_detail(
    recording: Recording,
    several: Iterable[Recording | ExchangeSummary],
    minutes: Iterable[MinuteCounts],
    secrets: Collection[bytes],
) -> ExchangeDetail:
    """Return the details of an exchange.

    several: all exchanges that can be shown; minutes: the counts of the last hour of all workers.
    """
    summary, over = summarize(recording, secrets), end_entry(recording)
    prepared = next((entry for entry in recording.entries[::-1] if isinstance(entry, PreparedEntry)), None)
    newer, older = _neighbors(recording, several)
    return ExchangeDetail(
        **{name: getattr(summary, name) for name in summary.__struct_fields__},
        reason=prepared.reason if prepared else "",
        message=over.problem.message if over and over.problem else None,
        line=over.line if over else {},
        markers=markers(),
        upstream_model=prepared.upstream_model if prepared else "",
        client=_client(recording),
        client_status=next((one.status for one in recording.entries if isinstance(one, ResponseHeadersEntry)), None),
        times=exchange_times(recording),
        tokens=_tokens(over.line if over else {}, summary.ledger),
        warning_entries=_warning_entries(recording, summary.ledger),
        failure=failure_view(recording, over, minutes, secrets) if over and over.status >= 400 else None,
        newer=newer,
        older=older,
    )


def conversation_view(recording: Recording, secrets: Collection[bytes]) -> ConversationView:
    """Return the conversation without the secrets."""
    shown = redact(recording, secrets, contents=False)
    bodies = [entry.body for entry in shown.entries if isinstance(entry, UpstreamRequestEntry)]
    request, response = shown.request_entry, recorded_response(shown)
    sent = read_request(request.body) if request else None
    received = read_request(bodies[-1]) if bodies else None
    prepared = next((entry.format for entry in shown.entries if isinstance(entry, PreparedEntry)), "")
    tools = [*(received.tools if received else ()), *(sent.tools if sent else ())]
    changes = text_changes(shown, _warning_entries(shown, response.warnings))
    likely, over = _looks_like(response, tools, prepared), end_entry(shown)
    verdict = response_verdict(response, likely, prepared) if over and over.status < 400 else None
    return ConversationView(received, sent, response, likely, changes, verdict)


def _looks_like(response: RecordedResponse, tools: Sequence[ToolView], format: str) -> list[FormatGuess]:
    """Return the likely formats of the first text without a tool call."""
    if not tools:
        return []
    context = ParseContext({tool.name: tool.parameters for tool in tools})
    texts = [choice.text or choice.reasoning for choice in response.choices if not choice.tool_calls]
    return likely_formats(texts[0], format, context) if texts else []


def _client(recording: Recording) -> str:
    """Return the first product of the user agent: `openai-python 3.52.0`."""
    request = recording.request_entry
    agent = request.headers.get("user-agent", "") if request else ""
    found = _PRODUCT.match(agent)
    return found[0].replace("/", " ") if found else ""


def _tokens(line: dict[str, Any], warnings: Sequence[str]) -> TokenCounts:
    output, reasoning = line.get("output_tokens"), line.get("reasoning_tokens")
    subjects = [entry.partition(":")[2] for entry in warnings if entry.startswith("estimated:")]
    return TokenCounts(
        input=line.get("input_tokens"),
        cached=line.get("cached_tokens"),
        output=output,
        reasoning=reasoning,
        text=None if output is None or reasoning is None else max(0, output - reasoning),
        estimated=[subject for subject in subjects if subject in _TOKEN_WARNINGS],
    )


def _warning_entries(recording: Recording, warnings: Iterable[str]) -> dict[str, int]:
    return {warning: n for warning in warnings if (n := _place(recording, warning)) is not None}


def _place(recording: Recording, warning: str) -> int | None:
    """Return the entry that a warning belongs to: of the output, of the upstream request, or of the client's."""
    code, _, subject = warning.partition(":")
    if code == "unread":
        return _last_with(recording, b'"Text"')
    if subject.startswith("tool_calls"):
        return _last_with(recording, b'"ToolArgs"')
    if subject.startswith("usage") or subject == "empty":
        return _last_with(recording, b'"Usage"') or _last_with(recording, b'"Finish"')
    kind = UpstreamRequestEntry if code in _TO_BACKEND else RequestEntry
    return next((n for n, entry in enumerate(recording.entries) if isinstance(entry, kind)), None)


def _last_with(recording: Recording, mark: bytes) -> int | None:
    """Return the last entry whose events have a mark."""
    for n in range(len(recording.entries) - 1, -1, -1):
        entry = recording.entries[n]
        if isinstance(entry, UpstreamDataEntry | RoundEndEntry) and mark in entry.events:
            return n
    return None


def _neighbors(
    recording: Recording, several: Iterable[Recording | ExchangeSummary]
) -> tuple[ExchangeLink | None, ExchangeLink | None]:
    """Return the next and the previous exchange by start; those without entries do not count."""
    own = recording.started, recording.id
    others = {(one.started, one.id) for one in several if _has_entries(one)}
    newer, older = (
        min((one for one in others if one > own), default=None),
        max((one for one in others if one < own), default=None),
    )
    return _link(newer), _link(older)


def _has_entries(one: Recording | ExchangeSummary) -> bool:
    return (one.count if isinstance(one, Recording) else one.entries) > 0


def _link(place: tuple[str, str] | None) -> ExchangeLink | None:
    return ExchangeLink(place[1], place[0]) if place else None
