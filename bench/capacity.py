"""Measure which rate of new clients fills the core of a program: the offered load is a share of that."""

import time
from collections.abc import Callable
from functools import cache

from msgspec.structs import replace

from bench import traffic
from bench.processes import cpu_seconds
from bench.traffic import Traffic

_SECONDS = 2.0
_SETTLE_SECONDS = 2.0  # the gateway opens its store a second after the first request
_STREAM = "m=plain,n={},p=100,ts=1"


def open_streams(seconds: float) -> Traffic:
    """Return 400 streams that are open for so long, with ten chunks a second each."""
    knobs = _STREAM.format(round(seconds * 10))
    return Traffic("mock", knobs, streams=400, requests=400, ramp_ms=400, seconds=seconds)


def new_clients(seconds: float, share: int) -> Traffic:
    """Return clients that come at a share of the capacity; directly to the mock 1000 a second."""
    streams = open_streams(seconds + 1)
    return replace(_client(seconds), rate=1000.0, requests=round(1000 * seconds), share=share, open=streams)


def offered(load: Traffic, capacity: Callable[[], float]) -> Traffic:
    """Return the traffic with its rate, if that is a share of the capacity of a program."""
    if not load.share:
        return load
    rate = load.share / 100 * capacity()
    return replace(load, rate=rate, requests=round(rate * load.seconds))


def _client(seconds: float) -> Traffic:
    """Return clients with one connection and one short stream each."""
    return Traffic("mock", "m=plain,n=1", streams=32, requests=1_000_000, seconds=seconds, own=True)


@cache  # once for a running program
def capacity(pid: int, port: int) -> float:
    """Return the new clients a second that fill the core of a process, with the streams open.

    They come as fast as the program takes them.  A second of its CPU time counts, not one of the clock.
    """
    with traffic.opened(open_streams(_SETTLE_SECONDS + _SECONDS + 1), port):
        time.sleep(_SETTLE_SECONDS)
        cpu = cpu_seconds(pid)
        report = traffic.run(_client(_SECONDS), port)
        return report.ok / (cpu_seconds(pid) - cpu)
