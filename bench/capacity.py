"""Find the rates at which new clients load the core of a program by a share of it, beside open streams."""

import time
from collections.abc import Callable
from functools import cache

from msgspec import Struct
from msgspec.structs import replace

from bench import traffic
from bench.processes import cpu_seconds
from bench.traffic import Traffic

_SECONDS = 3.0
_SETTLE_SECONDS = 2.0  # the gateway opens its store a second after the first request
_LOW_RATE, _MIN_RATE, _MAX_RATE = 200.0, 10.0, 5000.0  # new clients a second
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


class CoreUse(Struct, frozen=True):
    """The use of a core by a program: by the open streams, and by each new client a second."""

    streams: float
    client: float

    def rate(self, share: float) -> float:
        """Return the new clients a second that use, with the streams, so many per cent of a core."""
        return min(max(float(round((share / 100 - self.streams) / self.client)), _MIN_RATE), _MAX_RATE)


def line(first: tuple[float, float], second: tuple[float, float]) -> CoreUse:
    """Return the use through two points: a rate of new clients, and the share of the core in use."""
    client = max((second[1] - first[1]) / (second[0] - first[0]), _LEAST)
    return CoreUse(second[1] - client * second[0], client)


def offered(load: Traffic, use: Callable[[], CoreUse]) -> Traffic:
    """Return the traffic with its rate, if that is a share of a core."""
    if not load.share:
        return load
    rate = use().rate(load.share)
    return replace(load, rate=rate, requests=round(rate * load.seconds))


def _client(seconds: float) -> Traffic:
    """Return clients with one connection and one short stream each."""
    return Traffic("mock", "m=plain,n=1", streams=32, requests=1_000_000, seconds=seconds, own=True)


@cache  # once for a running program
def core_use(pid: int, port: int) -> CoreUse:
    """Measure the use of a core without new clients, with some, and near three quarters of a core."""
    low = (_LOW_RATE, _used(pid, port, _LOW_RATE))
    rate = line((0.0, _used(pid, port, 0.0)), low).rate(75)
    return line(low, (rate, _used(pid, port, rate)))


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
