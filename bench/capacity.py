"""Find the rates at which new clients load the core of a program by a share of it, beside open streams."""

import time
from collections.abc import Callable
from functools import cache, partial

from msgspec.structs import replace

from bench import traffic
from bench.processes import cpu_seconds
from bench.traffic import Traffic

_SECONDS = 3.0
_SETTLE_SECONDS = 2.0  # the gateway opens its store a second after the first request
_FIRST_RATES = 0.0, 200.0  # new clients a second
_MIN_RATE, _MAX_RATE = 10.0, 5000.0
_TRIES, _NEAR = 6, 0.02  # measurements for a share, and how near to it they have to come
_LEAST = 1e-4  # of a core for a new client a second, so that noise gives no endless rate
_STREAM = "m=plain,n={},p=100,ts=1"


def open_streams(seconds: float) -> Traffic:
    """Return 400 streams that are open for so long, with ten chunks a second each."""
    knobs = _STREAM.format(round(seconds * 10))
    return Traffic("mock", knobs, streams=400, requests=400, ramp_ms=400, seconds=seconds)


def new_clients(seconds: float, share: int) -> Traffic:
    """Return clients that come at a rate for a share of a core; directly to the mock 1000 a second."""
    streams = open_streams(seconds + 1)
    return replace(_client(seconds), rate=1000.0, requests=round(1000 * seconds), share=share, open=streams)


class CoreUse:
    """The use of a program's core, in shares of it, at the rates of new clients measured so far.

    measure: returns the share of the core at a rate of new clients a second.

    The use is no line: a core that is nearly full does more work in a turn of its loop, and that costs less.
    So the rate for a share is searched.
    """

    def __init__(self, measure: Callable[[float], float]) -> None:
        self._measure = measure
        self._used: dict[float, float] = {}

    def rate(self, share: float) -> float:
        """Return the rate at which the program uses so many per cent of its core, the open streams included."""
        wanted = share / 100
        for _ in range(_TRIES):
            rate = self._guess(wanted)
            if rate in self._used:
                break
            self._used[rate] = self._measure(rate)
            if abs(self._used[rate] - wanted) <= _NEAR:
                break
        return max(min(self._used, key=lambda rate: abs(self._used[rate] - wanted)), _MIN_RATE)

    def _guess(self, wanted: float) -> float:
        """Return the rate to measure next: between two that are measured, or above all of them."""
        points = sorted(self._used.items())
        above = next((point for point in points if point[1] > wanted), None)
        below = [point for point in points if not above or point[0] < above[0]]
        if above:
            return float(round(_on_line(below[-1], above, wanted))) if below else above[0]
        if len(below) < len(_FIRST_RATES):
            return _FIRST_RATES[len(below)]
        return min(float(round(_on_line(below[-2], below[-1], wanted))), 2 * below[-1][0], _MAX_RATE)


def _on_line(first: tuple[float, float], second: tuple[float, float], used: float) -> float:
    """Return the rate at which the line through two points of rate and use reaches a use."""
    slope = max((second[1] - first[1]) / (second[0] - first[0]), _LEAST)
    return first[0] + (used - first[1]) / slope


def offered(load: Traffic, use: Callable[[], CoreUse]) -> Traffic:
    """Return the traffic with its rate, if that is a share of a core."""
    if not load.share:
        return load
    rate = use().rate(load.share)
    return replace(load, rate=rate, requests=round(rate * load.seconds))


@cache  # once for a running program
def core_use(pid: int, port: int) -> CoreUse:
    """Return the use of a core by a program."""
    return CoreUse(partial(_used, pid, port))


def _used(pid: int, port: int, rate: float) -> float:
    """Return the share of a core that a program uses with the streams open, at a rate of new clients."""
    with traffic.opened(open_streams(_SETTLE_SECONDS + _SECONDS + 1), port):
        time.sleep(_SETTLE_SECONDS)
        cpu, began = cpu_seconds(pid), time.monotonic()
        if rate:
            traffic.run(replace(_client(_SECONDS), rate=rate, requests=round(rate * _SECONDS)), port)
        else:
            time.sleep(_SECONDS)
        return (cpu_seconds(pid) - cpu) / (time.monotonic() - began)


def _client(seconds: float) -> Traffic:
    """Return clients with one connection and one short stream each."""
    return Traffic("mock", "m=plain,n=1", streams=32, requests=1_000_000, seconds=seconds, own=True)
