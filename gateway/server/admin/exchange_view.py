"""Show a request as its page does: the details, what the page says of them in words, and a time axis of the phases.

Places on the axis are percent of its length.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any

from msgspec import Struct

from gateway.recording import ExchangeSummary, Recording
from gateway.server.admin.exchange import ExchangeDetail, TokenCounts, exchange_detail
from gateway.server.admin.exchange_times import AttemptTimes, ExchangeTimes, OutputPace
from gateway.server.admin.exchange_verdict import RequestVerdict, request_verdict
from gateway.server.observability.minute_counts import MinuteCounts

_MOST = 40  # parts of the output with a row of their own
_SHORT = 0.001  # seconds: a wait of less has no row
_NAMES = {"reasoning": "Reasoning", "text": "Text", "tool_call": "Tool call"}
_LOOKS = {"reasoning": "reasoning", "text": "text", "tool_call": "call"}
_STEPS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 60, 120, 300, 600, 1800, 3600)
_TICKS = 5  # steps at most
_LAST = 0.95  # of the axis: a label behind it would not fit
_NARROWEST_BAR = 0.4  # percent
_WIDTH, _HEIGHT = 600, 60  # of the picture
_NARROWEST = 2.0
_SHORTEST = 0.001  # seconds
_NONE = "–"
Facts = list[tuple[str, str]]  # names with their values


class PhaseRow(Struct, frozen=True):
    """A row beside the axis.  look: the color of its bar; ended, took: times in words."""

    name: str
    note: str
    look: str
    start: float
    width: float
    ended: str
    took: str


class TimeAxis(Struct, frozen=True):
    """The time axis of a request.  ticks: places with their labels."""

    ticks: list[tuple[float, str]]
    rows: list[PhaseRow]


class Phase(Struct, frozen=True):
    """A phase of a request.  start, end: seconds since the request arrived."""

    name: str
    look: str
    start: float
    end: float
    note: str = ""


def time_axis(times: ExchangeTimes, duration: float, *, live: bool) -> TimeAxis:
    """Return the axis of a request that took so many seconds, until now if it is live."""
    end = max(duration if times.end is None else times.end, _SHORT)
    step = next((one for one in _STEPS if end / one <= _TICKS), end / _TICKS)
    places = [step * n for n in range(int(end / step) + 1)]
    ticks = [(round(100 * at / end, 2), _seconds(at) if at else "0") for at in places if at < end * _LAST]
    return TimeAxis(ticks, [_row(one, end) for one in phases(times, duration, live=live)])


def _row(phase: Phase, end: float) -> PhaseRow:
    took = max(0.0, phase.end - phase.start)
    start, width = min(100 - _NARROWEST_BAR, 100 * phase.start / end), max(_NARROWEST_BAR, 100 * took / end)
    return PhaseRow(
        phase.name, phase.note, phase.look, round(start, 2), round(width, 2), _seconds(phase.end), _seconds(took)
    )


def phases(times: ExchangeTimes, duration: float, *, live: bool) -> Iterator[Phase]:
    """Yield the phases of a request in order."""
    attempts, parts, end = times.attempts, times.parts, times.end if times.end is not None else duration
    prepared = times.prepared if times.prepared is not None else end
    yield Phase("Gateway", "queue", 0.0, attempts[0].started if attempts else prepared)
    for place, attempt in enumerate(attempts, 1):
        at = f"{attempt.backend}, attempt {place}" if len(attempts) > 1 else attempt.backend
        yield from _attempt(attempt, at, end)
    begun, token = attempts[-1].first_byte if attempts else None, times.first_token
    if begun is not None and token is not None and token > begun:
        yield Phase("Until first token", "wait", begun, token)
    for part in parts[:_MOST]:
        yield Phase(_NAMES[part.kind], _LOOKS[part.kind], part.start, part.end, part.name)
    if more := parts[_MOST:]:
        yield Phase(f"{len(more)} further parts", "text", more[0].start, more[-1].end)
    if not live and times.end is not None and attempts:
        last = parts[-1].end if parts else attempts[-1].ended or 0.0
        yield Phase("End", "queue", min(last, times.end), times.end)


def _attempt(attempt: AttemptTimes, at: str, end: float) -> Iterator[Phase]:
    """Yield the phases of a call.  at: its backend; end: of what is known."""
    started = attempt.started
    if attempt.wait is not None and attempt.wait > _SHORT:
        yield Phase("Wait before the attempt", "queue", started - attempt.wait, started)
    sent = attempt.sent if attempt.sent is not None else started
    if sent - started > _SHORT:
        yield Phase("Queue", "queue", started, sent, at)
    if attempt.connected is not None:
        yield Phase("Connect", "queue", sent, attempt.connected, at)
        sent = attempt.connected
    has_failed = attempt.error or (attempt.status or 0) >= 400
    note = f"{at}: {attempt.status or ''} {attempt.error or ''}" if has_failed else at
    look, first, over = "bad" if has_failed else "wait", attempt.first_byte, attempt.ended
    if first is not None:
        yield Phase("Until first byte", look, sent, first, note)
    else:
        yield Phase("Until the end", look, sent, end if over is None else over, note)


def _seconds(time: float) -> str:
    if time >= 1:
        return f"{time:.{2 if time < 10 else 1}f} s"
    return "< 1 ms" if 0 < time < _SHORT else f"{time * 1000:.0f} ms"


class ExchangeWords(Struct, frozen=True):
    """The texts and drawings of the page of a request.

    pace: of the output, in words; picture: of the same, outlines by their look.
    facts: below the title; usage, details: names with their values.
    """

    verdict: RequestVerdict
    axis: TimeAxis
    pace: str
    picture: dict[str, str]
    facts: list[str]
    usage: Facts
    details: Facts


class ExchangeView(ExchangeDetail, frozen=True, kw_only=True):
    """The details of a request, and how its page shows them."""

    shown: ExchangeWords


def exchange_view(
    recording: Recording,
    several: Iterable[Recording | ExchangeSummary],
    minutes: Iterable[MinuteCounts],
    secrets: Collection[bytes],
) -> ExchangeView:
    """Return an exchange as its page shows it.  The parameters are those of `exchange_detail`."""
    detail = exchange_detail(recording, several, minutes, secrets)
    members = {name: getattr(detail, name) for name in detail.__struct_fields__}
    return ExchangeView(**members, shown=_words(detail))


def _words(detail: ExchangeDetail) -> ExchangeWords:
    times, duration, live = detail.times, detail.duration, detail.live
    return ExchangeWords(
        verdict=request_verdict(detail, times, detail.failure, detail.client_status),
        axis=time_axis(times, duration, live=live),
        pace=describe_pace(times.pace, duration, detail.line, live=live),
        picture=draw_pace(times.pace, duration),
        facts=[*_facts(detail)],
        usage=[*_usage(detail.tokens, duration, times.first_token)],
        details=[(name, value or _NONE) for name, value in _details(detail)],
    )


def _facts(detail: ExchangeDetail) -> Iterator[str]:
    if detail.endpoint:
        yield detail.endpoint
    if detail.model:
        yield f"{detail.model} at {detail.backend}" if detail.backend else detail.model
    if detail.key:
        yield f"key {detail.key}"


def _usage(tokens: TokenCounts, duration: float, first_token: float | None) -> Iterator[tuple[str, str]]:
    known = tokens.input or tokens.output  # a backend that failed has counted none
    for name, count in (
        ("Input", tokens.input),
        ("Input, cached", tokens.cached),
        ("Output", tokens.output),
        ("Reasoning", tokens.reasoning),
        ("Text and tool calls", tokens.text),
    ):
        yield name, _NONE if count is None or not known else f"{count:,}"
    if tokens.output and first_token is not None and duration > first_token:
        yield "Output speed", f"{tokens.output / (duration - first_token):.0f} tokens/s"
    if tokens.estimated:
        yield "Estimated", ", ".join(tokens.estimated)


def _details(detail: ExchangeDetail) -> Iterator[tuple[str, str]]:
    yield "Request", detail.id
    yield "Format", f"{detail.format}: {detail.reason}" if detail.reason else detail.format
    yield "Backend", detail.backend
    yield "Model at the backend", detail.upstream_model
    yield "Client", detail.client
    if (received := detail.line.get("received_bytes")) is not None:
        yield "Bytes", f"{received:,} in, {detail.line['sent_bytes']:,} out"
    yield "Recording", f"{detail.entries:,} entries, {detail.bytes:,} bytes{', incomplete' if detail.cut else ''}"


def draw_pace(pace: OutputPace, duration: float) -> dict[str, str]:
    """Return the outlines of the silences, of the pieces and of the first byte, for the path of an SVG."""
    scale, most, width = _WIDTH / max(duration, _SHORTEST), max((1, *pace.bars)), _WIDTH / (len(pace.bars) or 1)
    pieces = ((place * width, width - 1, count / most) for place, count in enumerate(pace.bars) if count)
    first = () if pace.first_byte is None else ((min(_WIDTH - _NARROWEST, pace.first_byte * scale), _NARROWEST, 1.0),)
    return {
        "stall": _outline((start * scale, (end - start) * scale, 1.0) for start, end in pace.silences),
        "piece": _outline(pieces),
        "first": _outline(first),
    }


def _outline(bars: Iterable[tuple[float, float, float]]) -> str:
    """Return the outline of bars, each with its place, its width and its share of the height."""
    return "".join(f"M{x:.6g} {_HEIGHT}v{-_HEIGHT * share:.6g}h{width:.6g}V{_HEIGHT}z" for x, width, share in bars)


def describe_pace(pace: OutputPace, duration: float, line: Mapping[str, Any], *, live: bool) -> str:
    """Return the pace of the output in words.  line: the fields of the access log, {} before the end."""
    words = [_first_byte(pace.first_byte, live=live)]
    tokens, took = line.get("output_tokens"), duration - (line.get("first_content") or 0.0)
    if tokens and took > 0:
        words.append(f"{tokens} tokens, {tokens / took:.0f} a second")
    elif pieces := sum(pace.bars):
        words.append(f"{pieces} pieces")
    if pace.silences:
        longest = max(end - start for start, end in pace.silences)
        words.append(f"silent {len(pace.silences)} ×, for {_brief(longest)} at most")
    return " · ".join([*words, f"duration {_brief(duration)}"])


def _first_byte(time: float | None, *, live: bool) -> str:
    if time is None:
        return "no byte yet" if live else "no byte"
    return f"first byte after {_brief(time)}"


def _brief(seconds: float) -> str:
    return f"{seconds:.{2 if seconds < 10 else 0}f} s"
