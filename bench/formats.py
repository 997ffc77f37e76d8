"""Measure each format's parser alone on one long tool call: microseconds per delta of four characters.

`python -m bench --only formats` prints them.  The text is the example of the format, with a long string as the city.
"""

import gc
import json
import time
from collections.abc import Iterator, Sequence
from statistics import median

from bench.figures import Figure
from gateway.formats import FORMATS
from gateway.formats.markup import Markup
from gateway.formats.parser import FormatParser, ParseContext, ParserOutput
from gateway.formats.reader import TextReader

_DELTA = 4  # characters, about a token
_CITY = "Paris"
_CODE = 'for (i = 0; i < n; i++) {\n  a[i] = "x" + b;\n}, '
_OFFERED = ParseContext({"get_weather": {"properties": {"city": {"type": "string"}, "days": {"type": "integer"}}}})
_SIZES = {"4 kB": 4 << 10, "64 kB": 64 << 10, "1 MB": 1 << 20}
_PLAIN = ("think", "hermes_json", "qwen_xml", "harmony", "gemma4")  # also measured with texts and thoughts
_PASSES = 3  # over all formats, so that a busy moment of the machine does not hit a single one
_MEDIAN, _WORST, _FLAT = 3.0, 6.0, 1.3


class _Silent(ParserOutput):
    """A ParserOutput that keeps nothing."""


class _Arguments(_Silent):
    """A ParserOutput that keeps only arguments."""

    def __init__(self) -> None:
        self.kept: list[str] = []

    def tool_args(self, json: str) -> None:
        self.kept.append(json)


def figures(quick: bool) -> Iterator[Figure]:
    """Yield a summary of all formats, then each of them, then texts and thoughts."""
    sizes = dict(list(_SIZES.items())[: 2 if quick else 3])
    names = [name for name, row in FORMATS.items() if _CITY in row.example and row.parse]
    passes = [[_costs(name, sizes) for name in names] for _ in range(_PASSES)]
    costs = {name: [min(each) for each in zip(*all, strict=True)] for name, *all in zip(names, *passes, strict=True)}
    yield from _summary(costs, sizes)
    for name, each in costs.items():
        for size, cost in zip(sizes, each, strict=True):
            yield _figure(f"{name}: arguments of {size}", cost)
    for name in _PLAIN:
        for what, before in _plain(name):
            yield _figure(f"{name}: {what} of 64 kB", _cost(name, before + "the fast gateway " * (4 << 10), 3))


def _summary(costs: dict[str, list[float]], sizes: dict[str, int]) -> Iterator[Figure]:
    first, *_, last = sizes
    flat = {name: each[-1] / each[0] for name, each in costs.items()}
    middle = median(each[-1] for each in costs.values())
    worst = max(costs, key=lambda name: costs[name][-1])
    steepest = max(flat, key=flat.__getitem__)
    yield _figure(f"arguments of {last}, median of {len(costs)} formats", middle, _MEDIAN)
    yield _figure(f"arguments of {last}, the worst: {worst}", costs[worst][-1], _WORST)
    name = f"formats, {last} to {first}, the steepest: {steepest}"
    yield Figure("formats", name, "ratio", (flat[steepest],), wanted=_FLAT)


def _figure(name: str, cost: float, wanted: float | None = None) -> Figure:
    return Figure("formats", f"formats, {name}", "µs/delta", (cost,), wanted=wanted)


def _costs(name: str, sizes: dict[str, int]) -> list[float]:
    """Return the cost of a delta for arguments of each size; shorter ones run more often."""
    return [_cost(name, _call(name, size), max(1, min(8, (128 << 10) // size))) for size in sizes.values()]


def _call(name: str, size: int) -> str:
    """Return the format's example with `size` characters of code as the city, escaped as the format requires."""
    before, _, after = FORMATS[name].example.rpartition(_CITY)
    for code in (_CODE, json.dumps(_CODE)[1:-1]):
        if _city(name, before + code + after) == _CODE:
            return before + code * (size // len(code)) + after
    raise ValueError(f"The example of {name} takes no code for its city.")


def _city(name: str, text: str) -> object:
    emit = _Arguments()
    _run(name, [text], emit)
    try:
        return json.loads("".join(emit.kept)).get("city")
    except ValueError:
        return None


def _plain(name: str) -> Iterator[tuple[str, str]]:
    """Yield the beginnings of a text and of a thought."""
    yield "text", ""
    markup = FORMATS[name].parse if name in FORMATS else None
    if isinstance(markup, Markup):
        yield from (("thought", tag) for tag in [*markup.thoughts][:1])


def _cost(name: str, text: str, times: int) -> float:
    """Return microseconds per delta, the best of several runs."""
    deltas = [text[begin : begin + _DELTA] for begin in range(0, len(text), _DELTA)]
    best = min(_run(name, deltas, _Silent()) for _ in range(times))
    return best / len(deltas) * 1e6


def _run(name: str, deltas: Sequence[str], emit: ParserOutput) -> float:
    """Return the CPU seconds for a text in these pieces."""
    format = FORMATS[name].parse
    assert format
    gc.collect()
    begin = time.thread_time()
    read = TextReader()
    parse = FormatParser(read, format(read, emit, _OFFERED))
    for delta in deltas:
        parse.feed(delta)
    parse.close()
    return time.thread_time() - begin
