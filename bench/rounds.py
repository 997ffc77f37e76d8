"""Run rounds of scenarios: directly to the mock and through the gateway, in turn."""

import os
import shlex
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from http.client import HTTPException
from pathlib import Path
from statistics import median

from msgspec import Struct

from bench import compiled, traffic
from bench.capacity import at_rate, core_use
from bench.figures import Figure
from bench.processes import (
    Peak,
    cpu_seconds,
    free_port,
    last_lines,
    resident_bytes,
    running,
    wait_until_ready,
    waited_seconds,
)
from bench.scenarios import CROWDED, Run, Scenario
from bench.traffic import Traffic

GATEWAY = "{python} -m gateway serve --config {config} --port {port}"

CONFIG = """\
server: {{host: 127.0.0.1, port: {port}, workers: 1, drain_seconds: 1}}
store: {{url: "{store}"}}
backends:
  mock: {{kind: openai, url: "http://127.0.0.1:{mock}"}}
models:
  mock: {{backends: [mock], format: native}}
  mock-hermes: {{backends: [mock], upstream_model: mock, format: hermes_json}}
  mock-think: {{backends: [mock], upstream_model: mock, format: think}}
"""
_MARKUP = (b"<tool_call>", b"<think>")
_SETTLE_SECONDS = 3.0  # the first usage is stored, which imports the store: that is no memory of a stream


class Wrong(Exception):
    """The response through the gateway is not the one to measure."""


class Program(Struct, frozen=True):
    """A program in front of the mock.  Words in braces are filled in: see `Track.started`."""

    command: str
    config: str = ""
    ready: str = "/health"  # responds with 200 once it serves
    seconds: float = 20.0  # for its start, at most


class Server(Struct, frozen=True):
    """A running program."""

    pid: int
    port: int
    idle: int  # resident bytes after the start
    start: float = 0.0  # seconds until it was ready


class Track:
    """The cores of the machine: the gateway has one, the mock, the load generator and this program have the other."""

    def __init__(self, folder: Path, command: str, store: str) -> None:
        cores = sorted(os.sched_getaffinity(0))
        self._folder, self._command, self._store = folder, command, store
        self._core, self._gateway_core = cores[0], cores[-1]
        os.sched_setaffinity(0, {self._core})
        compiled.gateway()

    @contextmanager
    def mock(self) -> Iterator[Server]:
        """Run the mock upstream within the block."""
        port, log = free_port(), self._folder / "mock.log"
        with running([str(compiled.mock()), str(port)], self._core, log) as pid:
            wait_until_ready(pid, port, "/health", log)
            yield Server(pid, port, 0)

    @contextmanager
    def gateway(self, mock: Server) -> Iterator[Server]:
        """Run a gateway in front of the mock within the block."""
        with self.started(Program(self._command, CONFIG), mock) as server:
            yield server

    @contextmanager
    def started(self, program: Program, mock: Server) -> Iterator[Server]:
        """Run a program on the gateway's core within the block."""
        port = free_port()
        config, log = self._folder / f"{port}.yaml", self._folder / f"{port}.log"
        store = self._store or f"sqlite:///{self._folder}/{port}.db"
        words = {"python": sys.executable, "port": port, "spare": free_port(), "mock": mock.port, "store": store}
        words |= {"config": config, "folder": self._folder}
        config.write_text(program.config.format(**words))
        command = [word.format(**words) for word in shlex.split(program.command)]
        begun = time.monotonic()
        with running(command, self._gateway_core, log) as pid:
            wait_until_ready(pid, port, program.ready, log, program.seconds)
            start = time.monotonic() - begun
            try:
                yield Server(pid, port, resident_bytes(pid), start)
            except Wrong as problem:
                raise Wrong(f"{problem}\n{last_lines(log)}") from problem


class Results:
    """The runs of one scenario."""

    def __init__(self, scenario: Scenario) -> None:
        self.scenario = scenario
        self._direct: list[Run] = []
        self._through: list[Run] = []

    def measure(self, track: Track, mock: Server, gateway: Server) -> None:
        """Run one round: directly, then through the gateway."""
        self._direct.append(direct(self.scenario, mock))
        if self.scenario.fresh:
            with track.gateway(mock) as own:
                self._through.append(through(self.scenario, own))
        else:
            self._through.append(through(self.scenario, gateway))

    def figures(self) -> Iterator[Figure]:
        """Yield the rows of the scenario."""
        for row in self.scenario.rows:
            values = tuple(map(row.value, self._through))
            direct = tuple(map(row.value, self._direct)) if row.direct else ()
            name = f"{self.scenario.name}: {row.name}"
            yield Figure(self.scenario.group, name, row.unit, values, direct, row.wanted)

    def problems(self) -> Iterator[str]:
        """Yield failed requests, which make their figures useless."""
        for way, runs in (("direct", self._direct), ("gateway", self._through)):
            for run in (run for run in runs if run.missing):
                yield f"{self.scenario.name}, {way}: {run.failure}"

    def doubts(self) -> Iterator[str]:
        """Yield reasons to doubt the times, even without failures."""
        share = median(run.waiting for run in self._through)
        if share > CROWDED:
            yield f"{self.scenario.name}: others had the gateway's core for {share:.0%} of the time; read CPU only"


def direct(scenario: Scenario, mock: Server) -> Run:
    """Run a scenario without a program between."""
    load = scenario.traffic.direct()
    with traffic.opened(load.open, mock.port) as streams:
        report = traffic.run(load, mock.port)
    return Run(load, report, *streams)


def through(scenario: Scenario, gateway: Server) -> Run:
    """Run a scenario through a program, after a check of its response."""
    check(scenario, gateway.port)
    if scenario.fresh:
        time.sleep(_SETTLE_SECONDS)
    load = scenario.traffic
    if load.share:
        return core_use(gateway.pid).nearest(load.share, lambda rate: _run(at_rate(load, rate), gateway))
    return _run(load, gateway)


def _run(load: Traffic, gateway: Server) -> Run:
    memory = resident_bytes(gateway.pid)
    with Peak(gateway.pid) as peak, traffic.opened(load.open, gateway.port) as streams:
        cpu, waited = cpu_seconds(gateway.pid), waited_seconds(gateway.pid)
        report = traffic.run(load, gateway.port)
        cpu, waited = cpu_seconds(gateway.pid) - cpu, waited_seconds(gateway.pid) - waited
    growth = max(0, peak.bytes - memory)
    return Run(load, report, streams[0] if streams else None, cpu, waited, gateway.idle, growth)


def check(scenario: Scenario, port: int) -> None:
    """Raise Wrong unless a short response is as expected; this also warms up the path."""
    knobs = ",".join(knob for knob in scenario.traffic.knobs.split(",") if knob[:2] in ("m=", "at"))
    try:
        answers = [traffic.ask(scenario.traffic, port, f"{knobs},n=40") for _ in range(20)]
    except (OSError, HTTPException) as problem:
        raise Wrong(f"{scenario.name}: {problem!r}") from problem
    answer = answers[-1]
    ends = answer.endswith(b"data: [DONE]\n\n") or not scenario.traffic.stream
    if scenario.shows not in answer or not ends or any(mark in answer for mark in _MARKUP):
        raise Wrong(f"{scenario.name}: the answer is not as it must be:\n{answer[-2000:].decode(errors='replace')}")


def measure(chosen: Sequence[Scenario], rounds: int, track: Track) -> list[Results]:
    """Run every scenario once per round, so that all share the busy moments of the machine."""
    results = [Results(scenario) for scenario in chosen]
    with track.mock() as mock, track.gateway(mock) as gateway:
        for number in range(1, rounds + 1):
            for result in results:
                say(f"round {number}/{rounds}: {result.scenario.name}")
                result.measure(track, mock, gateway)
    say("")
    return results


def say(progress: str) -> None:
    """Print the progress over the last one; only on a terminal."""
    if sys.stderr.isatty():
        print(f"\r\033[K{progress}", end="", file=sys.stderr, flush=True)
