"""`python -m bench.peers.plot`: draw performance.svg from performance.json beside it, CPU on a logarithmic axis.

The picture is readable on a light page and on a dark one.
"""

import math
from collections.abc import Iterator
from xml.sax.saxutils import escape

import msgspec

from bench.document import DOCS
from bench.figures import number
from bench.peers.outcome import Line, Outcome
from bench.peers.programs import GATEWAY_NAME

RUN, PLOT = DOCS / "performance.json", DOCS / "performance.svg"

_ROWS = {
    "whole answer, 32 at a time: CPU": "an answer at once, µs/request",
    "burst, native text: CPU": "a burst, µs/line",
    "burst, hermes_json call: CPU": "a burst with calls as text, µs/line",
    "burst of responses, passed on: CPU": "a burst of responses from chat, µs/line",
    "20 streams × 50 chunks/s: CPU": "20 streams, 50 chunks/s, µs/line",
    "1000 streams × 10 chunks/s: CPU": "1000 streams, 10 chunks/s, µs/line",
}
_COLOURS = ("#d9480f", "#1c7ed6", "#9c36b5", "#2b8a3e", "#868e96")  # the gateway's is the first
_LEFT, _RIGHT, _TOP, _STEP, _WIDTH = 290, 40, 76, 38, 880
_STYLE = """\
text { font: 13px system-ui, sans-serif; fill: #343a40 }
line { stroke: #adb5bd; stroke-width: 1 }
.own { font-weight: 600 }
@media (prefers-color-scheme: dark) { text { fill: #dee2e6 } line { stroke: #495057 } }
"""


def svg(run: Outcome) -> str:
    """Return the picture of a run: a row per sort of traffic, a dot per program."""
    lines = [line for line in run.lines if line.name in _ROWS and line.values]
    names = [name for name in run.columns if any(name in line.values for line in lines)]
    colours = dict(zip(names, _COLOURS, strict=False))
    values = [value for line in lines for value in line.values.values()]
    scale = _Scale(min(values), max(values))
    height = _TOP + _STEP * len(lines) + 20
    parts = [*_legend(colours), *_axis(scale, height), *_dots(lines, colours, scale)]
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" role="img">'
    title = "<title>CPU of a request and of a line of a stream, in microseconds; further left is cheaper</title>"
    return "\n".join([head, title, f"<style>{_STYLE}</style>", *parts, "</svg>", ""])


class _Scale:
    """Where a value is on the axis, which has whole powers of ten at its ends."""

    def __init__(self, least: float, most: float) -> None:
        self.first, self.last = math.floor(math.log10(least)), math.ceil(math.log10(most))

    def __call__(self, value: float) -> float:
        share = (math.log10(value) - self.first) / (self.last - self.first)
        return round(_LEFT + share * (_WIDTH - _LEFT - _RIGHT), 1)


def _legend(colours: dict[str, str]) -> Iterator[str]:
    x = _LEFT
    for name, colour in colours.items():
        own = ' class="own"' if name == GATEWAY_NAME else ""
        yield f'<circle cx="{x}" cy="18" r="6" fill="{colour}"/><text x="{x + 11}" y="22"{own}>{escape(name)}</text>'
        x += 40 + 8 * len(name)


def _axis(scale: _Scale, height: int) -> Iterator[str]:
    for power in range(scale.first, scale.last + 1):
        x = scale(10**power)
        yield f'<line x1="{x}" y1="{_TOP - 22}" x2="{x}" y2="{height - 14}" stroke-dasharray="2 4"/>'
        yield f'<text x="{x}" y="{_TOP - 30}" text-anchor="middle">{10**power:,g} µs</text>'


def _dots(lines: list[Line], colours: dict[str, str], scale: _Scale) -> Iterator[str]:
    for place, line in enumerate(lines):
        y = _TOP + _STEP * place + 6
        yield f'<text x="{_LEFT - 14}" y="{y + 4}" text-anchor="end">{escape(_ROWS[line.name])}</text>'
        yield f'<line x1="{_LEFT}" y1="{y}" x2="{_WIDTH - _RIGHT}" y2="{y}"/>'
        for name, colour in reversed(colours.items()):  # the gateway's dot above the others
            if name in line.values:
                value = line.values[name]
                title = f"{escape(name)}: {number(value)} µs"
                yield f'<circle cx="{scale(value)}" cy="{y}" r="6" fill="{colour}"><title>{title}</title></circle>'
        if GATEWAY_NAME in line.values:
            own = line.values[GATEWAY_NAME]
            yield f'<text x="{scale(own)}" y="{y - 9}" text-anchor="middle" class="own">{number(own)}</text>'


def draw(run: Outcome) -> None:
    """Write the picture."""
    PLOT.write_text(svg(run))


if __name__ == "__main__":
    draw(msgspec.json.decode(RUN.read_bytes(), type=Outcome))
