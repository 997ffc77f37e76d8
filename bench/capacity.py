"""Find the rates at which new clients load the core of a program by a share of it, beside open streams."""

from collections.abc import Callable
from functools import cache
from typing import Protocol, TypeVar

from msgspec.structs import replace

from bench.traffic import Traffic

_FIRST_RATES = 300.0, 600.0  # new clients a second
_MIN_RATE, _MAX_RATE = 10.0, 5000.0
_TRIES, _NEAR = 8, 0.01  # runs for a share, and how near to it one of them has to come
_LEAST = 1e-4  # of a core for a new client a second, so that noise gives no endless rate
_STREAM = "m=plain,n={},p=100,ts=1"


class Loaded(Protocol):
    """The run of a program under load."""

    @property
    def used(self) -> float:
        """The share of its core that the program used."""


AnyRun = TypeVar("AnyRun", bound=Loaded)


def open_streams(seconds: float) -> Traffic:
    """Return 400 streams that are open for so long, with ten chunks a second each."""
    knobs = _STREAM.format(round(seconds * 10))
    return Traffic("mock", knobs, streams=400, requests=400, ramp_ms=400, seconds=seconds)


def new_clients(seconds: float, share: int) -> Traffic:
    """Return clients that come at a rate for a share of a core; directly to the mock 1000 a second."""
    client = Traffic("mock", "m=plain,n=1", streams=32, requests=0, seconds=seconds, own=True, share=share)
    return at_rate(replace(client, open=open_streams(seconds + 1)), 1000.0)


def at_rate(clients: Traffic, rate: float) -> Traffic:
    """Return the clients at another rate a second."""
    return replace(clients, rate=rate, requests=round(rate * clients.seconds))


class CoreUse:
    """The use of a program's core, in shares of it, at the rates of new clients so far.

    The use is no line: a core that is nearly full does more work in a turn of its loop, and that costs less.
    So the rate for a share is searched, and the run that comes nearest to the share counts.  Near a full core
    a per cent of it is much delay, and the same rate uses some per cent more or less the next time.
    """

    def __init__(self) -> None:
        self._used: dict[float, float] = {}

    def nearest(self, share: float, run: Callable[[float], AnyRun]) -> AnyRun:
        """Return the run whose use of the core comes nearest to so many per cent, the open streams included.

        run: runs the program at a rate of new clients a second.
        """
        wanted = share / 100
        runs: list[AnyRun] = []
        for _ in range(_TRIES):
            rate = max(self._guess(wanted), _MIN_RATE)
            runs.append(run(rate))
            self._used[rate] = runs[-1].used
            if abs(runs[-1].used - wanted) <= _NEAR:
                break
        return min(runs, key=lambda each: abs(each.used - wanted))

    def _guess(self, wanted: float) -> float:
        """Return the rate to try next: between two that were tried, or above all of them."""
        points = sorted(self._used.items())
        above = next((point for point in points if point[1] > wanted), None)
        below = [point for point in points if not above or point[0] < above[0]]
        if above:
            return float(round(_on_line(below[-1], above, wanted))) if below else above[0] / 2
        if len(below) < len(_FIRST_RATES):
            return _FIRST_RATES[len(below)]
        return min(float(round(_on_line(below[-2], below[-1], wanted))), 2 * below[-1][0], _MAX_RATE)


def _on_line(first: tuple[float, float], second: tuple[float, float], used: float) -> float:
    """Return the rate at which the line through two points of rate and use reaches a use."""
    slope = max((second[1] - first[1]) / (second[0] - first[0]), _LEAST)
    return first[0] + (used - first[1]) / slope


@cache
def core_use(pid: int) -> CoreUse:
    """Return the use of its core by a running program."""
    return CoreUse()
