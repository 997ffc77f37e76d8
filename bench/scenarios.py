"""Define the scenarios over sockets: each has one sort of traffic, and its rows."""

from collections.abc import Callable, Iterator

from msgspec import Struct
from msgspec.structs import replace

from bench.capacity import new_clients
from bench.traffic import RESPONSES, Report, Traffic

CROWDED = 0.05  # share of the time; a program that waits longer for its core looks slower than it is
SHARES = (50, 80, 95)  # of a core, in per cent


class Run(Struct, frozen=True):
    """One run of a scenario; a direct one has no figures of the gateway.

    load: the traffic that was sent.
    open: the report of the streams that were open meanwhile.
    """

    load: Traffic
    report: Report
    open: Report | None = None
    cpu: float = 0.0  # seconds of the gateway
    waited: float = 0.0  # seconds in which it was ready while others had its core
    idle: int = 0  # resident bytes after the start, before any request
    growth: int = 0  # resident bytes at the peak, above those before the run

    @property
    def used(self) -> float:
        """The share of its core that the gateway used."""
        return self.cpu / self.report.s

    @property
    def waiting(self) -> float:
        """The share of the time in which the gateway waited for its core."""
        return self.waited / self.report.s

    @property
    def streams(self) -> Report:
        """The report of the streams whose chunks are timed."""
        return self.open or self.report

    @property
    def missing(self) -> int:
        """The number of requests and open streams that did not end well."""
        ended = self.report.dones if self.load.stream else self.report.ok
        failed = self.report.failures
        if self.load.open and self.open:
            failed += self.load.open.requests - self.open.dones + self.open.failures
        return self.load.requests - ended + failed

    @property
    def failure(self) -> str:
        """The text about the missing ones."""
        error = self.report.err or (self.open.err if self.open else "")
        count = self.load.requests + (self.load.open.requests if self.load.open else 0)
        return f"{self.missing} of {count} requests and streams did not end well; {error}"


class Row(Struct, frozen=True):
    """A row of a scenario."""

    name: str
    unit: str
    value: Callable[[Run], float]
    wanted: float | None = None
    direct: bool = True  # the figure exists without the gateway


class Scenario(Struct, frozen=True):
    """A scenario: its traffic, and its rows."""

    group: str
    name: str
    traffic: Traffic
    rows: tuple[Row, ...]
    shows: bytes  # the expected content of a response through the gateway
    fresh: bool = False  # needs a gateway that has served nothing yet


_DELAY = (
    Row("delay of a chunk, p50", "ms", lambda run: run.streams.lat50),
    Row("delay of a chunk, p99", "ms", lambda run: run.streams.lat99),
)

_CORE = Row("core in use", "%", lambda run: run.used * 100, direct=False)


def _cpu_per_request(wanted: float | None = None) -> Row:
    return Row("CPU", "µs/request", lambda run: run.cpu / max(1, run.report.ok) * 1e6, wanted, direct=False)


def _cpu_per_line(wanted: float | None = None) -> Row:
    return Row("CPU", "µs/line", lambda run: run.cpu / max(1, run.report.lines) * 1e6, wanted, direct=False)


def _first_byte(wanted: float | None = None) -> tuple[Row, Row]:
    return (
        Row("first byte, p50", "ms", lambda run: run.report.ttfd50, wanted),
        Row("first byte, p99", "ms", lambda run: run.report.ttfd99),
    )


def scenarios(quick: bool) -> list[Scenario]:
    """Return all scenarios, in the order of the table."""
    parts = (*_whole(quick), *_burst(quick), _paced(quick), *_first(quick), _many(quick))
    return [*parts, *_offered(quick), *_responses(quick), *_arguments(quick)]


def _whole(quick: bool) -> list[Scenario]:
    one = Traffic("mock", "m=plain,n=50", streams=1, requests=300 if quick else 6000, stream=False)
    many = Traffic("mock", "m=plain,n=50", streams=32, requests=1000 if quick else 12000, stream=False)
    latency = (
        Row("latency, p50", "ms", lambda run: run.report.tot50),
        Row("latency, p99", "ms", lambda run: run.report.tot99),
    )
    rate = Row("rate", "requests/s", lambda run: run.report.rps)
    return [
        Scenario("whole", "whole answer, 1 at a time", one, (_cpu_per_request(250), *latency), b'"usage"'),
        Scenario("whole", "whole answer, 32 at a time", many, (_cpu_per_request(250), rate), b'"usage"'),
    ]


def _burst(quick: bool) -> list[Scenario]:
    requests = 80 if quick else 400
    rate = Row("rate", "lines/s", lambda run: run.report.lps)
    native = Traffic("mock", "m=plain,n=200", 16, requests)
    text = Traffic("mock-hermes", "m=plain,n=200", 16, requests, tools=True)
    call = Traffic("mock-hermes", "m=markup,n=200,at=10", 16, requests, tools=True)
    think = Traffic("mock-think", "m=think,n=200", 16, requests)
    return [
        Scenario("burst", "burst, native text", native, (_cpu_per_line(), rate), b'"content"'),
        Scenario("burst", "burst, hermes_json text", text, (_cpu_per_line(8), rate), b'"content"'),
        Scenario("burst", "burst, hermes_json call", call, (_cpu_per_line(8), rate), b'"tool_calls"'),
        Scenario("burst", "burst, think", think, (_cpu_per_line(), rate), b'"reasoning_content"'),
    ]


def _paced(quick: bool) -> Scenario:
    knobs = f"m=plain,n={25 if quick else 100},p=20,ts=1"
    traffic = Traffic("mock-hermes", knobs, streams=20, requests=20, tools=True, ramp_ms=100)
    return Scenario("paced", "20 streams × 50 chunks/s", traffic, (_cpu_per_line(), *_DELAY), b'"content"')


def _first(quick: bool) -> list[Scenario]:
    one = Traffic("mock-hermes", "m=plain,n=2,p=2", streams=1, requests=40 if quick else 150, tools=True)
    few = Traffic(
        "mock-hermes", "m=plain,n=7,p=100", streams=32, requests=32 if quick else 128, tools=True, ramp_ms=1000
    )
    return [
        Scenario("first", "1 stream", one, _first_byte(), b'"content"'),
        Scenario("first", "32 streams × 10 chunks/s", few, _first_byte(), b'"content"'),
    ]


def _many(quick: bool) -> Scenario:
    traffic = replace(_many_streams(quick), model="mock-hermes", tools=True)
    rows = (*crowded(traffic), *_DELAY, Row("idle gateway, memory", "MB", lambda run: run.idle / 1e6, direct=False))
    return Scenario("streams", "1000 streams × 10 chunks/s", traffic, rows, b'"content"', fresh=True)


def _many_streams(quick: bool) -> Traffic:
    knobs = f"m=plain,n={10 if quick else 60},p=100,ts=1"
    return Traffic("mock", knobs, streams=1000, requests=1000, ramp_ms=1000 if quick else 2000)


def crowded(traffic: Traffic) -> tuple[Row, ...]:
    """Return the rows of a scenario with many concurrent streams."""
    return (
        Row("not ended well", "streams", lambda run: traffic.requests - run.report.dones, 0),
        *_first_byte(5),
        _cpu_per_line(),
        _CORE,
        Row("memory", "kB/stream", lambda run: run.growth / traffic.streams / 1000, direct=False),
    )


def _offered(quick: bool) -> Iterator[Scenario]:
    rows = (Row("new clients", "1/s", lambda run: run.load.rate), *_first_byte(), *_DELAY, _CORE)
    for share in SHARES:
        traffic = new_clients(1.0 if quick else 4.0, share)
        yield Scenario("offered", offered_load(share), traffic, rows, b'"content"')


def offered_load(share: int) -> str:
    """Return the name of the scenario."""
    return f"offered load {share} % of a core"


def _responses(quick: bool) -> Iterator[Scenario]:
    for store, word in ((False, "passed on"), (True, "stored")):
        common = {"path": RESPONSES, "store": store}
        whole = Traffic("mock", "m=plain,n=50", streams=32, requests=500 if quick else 2000, stream=False, **common)
        burst = Traffic("mock", "m=plain,n=200", streams=16, requests=80 if quick else 400, **common)
        many = replace(_many_streams(quick), **common)
        shows, delta = b'"output_text"', b"response.output_text.delta"
        rate = Row("rate", "responses/s", lambda run: run.report.rps)
        yield Scenario("responses", f"a response, {word}", whole, (_cpu_per_request(), rate), shows)
        yield Scenario("responses", f"burst of responses, {word}", burst, (_cpu_per_line(),), delta)
        yield Scenario("responses", f"1000 responses × 10 chunks/s, {word}", many, crowded(many), delta, fresh=True)


def _arguments(quick: bool) -> list[Scenario]:
    size, deltas = ("100 kB", 25_000) if quick else ("1 MB", 250_000)
    native = Traffic("mock", f"m=tools,n={deltas}", 1, 1, tools=True)
    markup = Traffic("mock-hermes", f"m=markup,n={deltas},at=0", 1, 1, tools=True)
    rows = (
        Row("CPU", "s", lambda run: run.cpu, direct=False),
        Row("time", "s", lambda run: run.report.tot50 / 1000),
    )
    return [
        Scenario("arguments", f"{size} of arguments, native", native, rows, b'"tool_calls"'),
        Scenario("arguments", f"{size} of arguments, hermes_json", markup, rows, b'"tool_calls"'),
    ]
