"""Measure how costs grow: each at several sizes, and as the power of the size.

`python -m bench --only growth` prints it.  0 is flat, 1 is linear; a logarithm is near 0.  The power of the last step
counts, since a fixed cost hides the others.
"""

import gc
import http.client
import itertools
import json
import math
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from statistics import median

from msgspec import Struct
from msgspec.structs import replace

from bench import core, store, traffic
from bench.figures import aligned, number
from bench.processes import Peak, cpu_seconds, resident_bytes
from bench.rounds import Server, Track, say
from bench.traffic import CHAT, KEY, RESPONSES, Traffic

FLAT, LINEAR = 0.15, 1.15  # powers; more than this is not noise

_WINDOW, _WINDOWS = 500, 8  # chunks that are timed together, and the number of timings at one place
_REQUESTS = 5


class Growth(Struct, frozen=True):
    """The costs at some sizes; may: the allowed growth, "flat" or "linear"."""

    name: str
    unit: str
    sizes: tuple[int, ...]
    costs: tuple[float, ...]
    may: str = "flat"

    @property
    def powers(self) -> list[float]:
        """The power of each step from one size to the next."""
        points = itertools.pairwise(zip(self.sizes, self.costs, strict=True))
        return [math.log(after / before) / math.log(larger / size) for (size, before), (larger, after) in points]

    @property
    def power(self) -> float:
        """The power over all sizes: the slope of the line through the points, in logarithms."""
        xs, ys = [*map(math.log, self.sizes)], [*map(math.log, self.costs)]
        x, y = sum(xs) / len(xs), sum(ys) / len(ys)
        return sum((a - x) * (b - y) for a, b in zip(xs, ys, strict=True)) / sum((a - x) ** 2 for a in xs)

    @property
    def verdict(self) -> str:
        """The result: "ok" or "over"."""
        most = FLAT if self.may == "flat" else LINEAR
        return "ok" if self.powers[-1] <= most else "over"

    def as_json(self) -> dict[str, object]:
        """Return the row as data."""
        row: dict[str, object] = {"name": self.name, "unit": self.unit, "sizes": self.sizes, "costs": self.costs}
        return row | {"power": self.power, "last": self.powers[-1], "may": self.may, "verdict": self.verdict}


def growths(quick: bool, track: Track) -> Iterator[Growth]:
    """Yield all growths; quick: only up to a tenth of the largest sizes."""
    yield from _lengths((1000, 10_000, 100_000) if quick else (1000, 10_000, 100_000, 1_000_000))
    yield from _tools_of_a_chunk((1, 10, 100, 500))
    with track.mock() as mock:
        with track.gateway(mock) as gateway:
            yield from _requests(gateway, (10, 100, 1000) if quick else (10, 100, 1000, 10_000))
        yield from _open_streams(track, mock, (50, 500) if quick else (50, 500, 5000))
    yield from _stored_rows((1000, 10_000, 100_000) if quick else (1000, 10_000, 100_000, 1_000_000))


def table(found: Iterable[Growth]) -> str:
    """Return a table for a terminal."""
    return aligned([_HEAD, *map(_cells, found)], "lllrrll")


def markdown(found: Iterable[Growth]) -> str:
    """Return a table for a document."""
    rows = [_HEAD, ("---", "---", "---", "---:", "---:", "---", "---"), *map(_cells, found)]
    return "\n".join("| " + " | ".join(row) + " |" for row in rows)


_HEAD = ("what grows", "unit", "size: cost", "power", "last step", "may be", "")


def _cells(row: Growth) -> tuple[str, ...]:
    costs = ", ".join(f"{size:,}: {number(cost)}" for size, cost in zip(row.sizes, row.costs, strict=True))
    return row.name, row.unit, costs, _power(row.power), _power(row.powers[-1]), row.may, row.verdict


def _power(value: float) -> str:
    return f"{round(value, 2) + 0:.2f}"  # never -0.00


# In process: chunks


def _lengths(sizes: Sequence[int]) -> Iterator[Growth]:
    for name, stretch in core.STRETCHES.items():
        say(f"growth: {name}")
        yield Growth(f"chunks before a chunk: {name}", "µs/chunk", (*sizes,), _along(stretch.begin(), sizes))


def _along(feed: Callable[[], object], sizes: Sequence[int]) -> tuple[float, ...]:
    """Return the cost of a chunk after this many chunks."""
    fed, costs = 0, []
    for size in sizes:
        for _ in range(size - fed):
            feed()
        costs.append(_per_chunk(feed))
        fed = size + _WINDOW * _WINDOWS
    return tuple(costs)


def _per_chunk(feed: Callable[[], object]) -> float:
    """Return microseconds per chunk: the median of some windows, without busy and lucky moments."""
    gc.collect()
    times = []
    for _ in range(_WINDOWS):
        begun = time.thread_time()
        for _ in range(_WINDOW):
            feed()
        times.append(time.thread_time() - begun)
    return median(times) / _WINDOW * 1e6


def _tools_of_a_chunk(counts: Sequence[int]) -> Iterator[Growth]:
    for name in ("native text", "hermes_json, call"):
        stretch = core.STRETCHES[name]
        costs = tuple(_per_chunk(stretch.begin(core.offering(count))) for count in counts)
        yield Growth(f"tools offered: {name}", "µs/chunk", (*counts,), costs)


# Over sockets: requests


def _requests(gateway: Server, sizes: Sequence[int]) -> Iterator[Growth]:
    tools = (1, 16, 128)  # the limit of the API
    for path, name in ((CHAT, "chat"), (RESPONSES, "responses")):
        say(f"growth: requests, {name}")
        bodies = [_question(path, size, 0) for size in sizes]
        yield Growth(
            f"items of a conversation: {name}", "ms/request", (*sizes,), _each(gateway, path, bodies), "linear"
        )
        bodies = [_question(path, 1, count) for count in tools]
        yield Growth(f"tools offered: request, {name}", "ms/request", tools, _each(gateway, path, bodies), "linear")
    bodies = [_follow_up(gateway, size) for size in sizes]
    name = "items of a stored conversation that goes on"
    yield Growth(name, "ms/request", (*sizes,), _each(gateway, RESPONSES, bodies), "linear")


def _question(path: str, items: int, tools: int, **more: object) -> bytes:
    """Return a request with this many messages and tools, for a short response."""
    messages = [
        {"role": ("user", "assistant")[i % 2], "content": f"message {i}, of some words"} for i in range(items - 1)
    ]
    messages.append({"role": "user", "content": "@@m=plain,n=5@@"})
    functions = [{**_FUNCTION, "name": f"tool_{i}"} for i in range(tools)]
    if path == RESPONSES:
        body = {"input": messages, "store": False, "tools": [{"type": "function", **one} for one in functions]}
    else:
        body = {"messages": messages, "tools": [{"type": "function", "function": one} for one in functions]}
    body = {"model": "mock", **body, **more}
    return json.dumps({key: value for key, value in body.items() if value != []}).encode()


_FUNCTION = {
    "description": "The weather in a city, now.",
    "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
}


def _follow_up(gateway: Server, items: int) -> bytes:
    """Return a request that continues a stored conversation of this many items."""
    first = json.loads(_post(gateway, RESPONSES, _question(RESPONSES, items, 0, store=True)))
    return _question(RESPONSES, 1, 0, previous_response_id=first["id"], store=True)


def _each(gateway: Server, path: str, bodies: Sequence[bytes]) -> tuple[float, ...]:
    return tuple(_cpu(gateway, path, body) for body in bodies)


def _cpu(gateway: Server, path: str, body: bytes) -> float:
    """Return CPU milliseconds per request, the median of some."""
    costs = []
    for _ in range(_REQUESTS):
        begun = cpu_seconds(gateway.pid)
        _post(gateway, path, body)
        costs.append(cpu_seconds(gateway.pid) - begun)
    return median(costs) * 1000


def _post(gateway: Server, path: str, body: bytes) -> bytes:
    connection = http.client.HTTPConnection("127.0.0.1", gateway.port, timeout=60)
    headers = {"content-type": "application/json", "authorization": f"Bearer {KEY}"}
    try:
        connection.request("POST", path, body, headers)
        answer = connection.getresponse()
        data = answer.read()
    finally:
        connection.close()
    assert answer.status == 200, data[:500]
    return data


def _open_streams(track: Track, mock: Server, counts: Sequence[int]) -> Iterator[Growth]:
    """Yield the cost of open streams at one chunk a second, each number with a new gateway."""
    cpu, memory = [], []
    for count in counts:
        say(f"growth: {count} open streams")
        load = Traffic("mock", "m=plain,n=10,p=1000,ts=1", streams=count, requests=count, ramp_ms=1000 + count)
        with track.gateway(mock) as gateway:
            traffic.run(replace(load, knobs="m=plain,n=1", requests=200, streams=1, ramp_ms=0), gateway.port)
            used, held = cpu_seconds(gateway.pid), resident_bytes(gateway.pid)
            with Peak(gateway.pid) as peak:
                report = traffic.run(load, gateway.port)
            used = cpu_seconds(gateway.pid) - used
        assert report.dones == count, report
        cpu.append(used / report.lines * 1e6)
        memory.append((peak.bytes - held) / count / 1000)
    yield Growth("open streams: CPU", "µs/line", (*counts,), tuple(cpu))
    yield Growth("open streams: memory", "kB/stream", (*counts,), tuple(memory))


# The store


def _stored_rows(counts: Sequence[int]) -> Iterator[Growth]:
    turns = []
    for count in counts:
        say(f"growth: {count:,} stored rows")
        with tempfile.TemporaryDirectory(prefix="bench-") as folder:
            turns.append(store.turn_beside(f"sqlite:///{folder}/gateway.db", count))
    yield Growth("stored rows: CPU of a turn", "ms", (*counts,), tuple(turns))
