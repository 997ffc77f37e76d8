"""Show the pace of a request's output: in words, and as a picture."""

from collections.abc import Iterable, Mapping
from typing import Any

from gateway.server.admin.exchange_times import OutputPace

_WIDTH, _HEIGHT = 600, 60  # of the picture
_NARROWEST = 2.0
_SHORTEST = 0.001  # seconds


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
