"""Show a request as its page does: the details, and what the page says of them in words."""

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any

from msgspec import Struct

from gateway.recording import ExchangeSummary, Recording
from gateway.server.admin.exchange import ExchangeDetail, TokenCounts, exchange_detail
from gateway.server.admin.exchange_phases import TimeAxis, time_axis
from gateway.server.admin.exchange_times import OutputPace
from gateway.server.admin.exchange_verdict import RequestVerdict, request_verdict
from gateway.server.observability.minute_counts import MinuteCounts

_WIDTH, _HEIGHT = 600, 60  # of the picture
_NARROWEST = 2.0
_SHORTEST = 0.001  # seconds


_NONE = "–"
Facts = list[tuple[str, str]]  # names with their values


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
