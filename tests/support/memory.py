"""What is in memory: all that a request made has to be gone when it is over, without the collector of cycles.

That comes seldom in a process that serves, and what waits for it piles up.
"""

import gc
from collections import Counter, deque
from contextlib import contextmanager, suppress
from functools import cache

from gateway.server.observability import metric_values
from gateway.server.observability.metric_values import MetricValues
from gateway.server.observability.minute_counts import BackendMinute, MinuteCounts
from gateway.server.observability.telemetry import RecentRequests, RequestHistory
from gateway.store.sqlite_driver import SqliteConnection
from gateway.store.tables import IdListType, IdType
from support.wait import until

OURS = {"gateway", "fastapi", "starlette", "uvicorn"}  # packages that make something for a request
# By what is counted first, up to what is remembered, up to as many as there were transactions at a time, and with the
# first execution of a statement.
COUNTS = {MetricValues, metric_values.MetricsCollector, RequestHistory, MinuteCounts, BackendMinute}
GROWING = COUNTS | {RecentRequests, SqliteConnection, IdType, IdListType}
DATA = {str, bytes, bytearray, memoryview, tuple, list, dict, set, frozenset, deque}  # no numbers: those may be counts


@contextmanager
def watched():
    """A census knows what is made from now on, and nothing is collected; to look at the rest would take longer."""
    gc.freeze()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
        gc.unfreeze()


def instances(kinds):
    """Return the objects of these classes.  No code of an object runs: a proxy whose object is gone would raise."""
    there = gc.get_objects()
    fitting = {kind for kind in {*map(type, there)} if issubclass(kind, kinds)}
    return [one for one in there if type(one) in fitting]


async def until_freed(kinds):
    """Wait until no object of these classes is left; only numbers are kept meanwhile, as a list would keep the objects."""
    with suppress(TimeoutError):
        await until(lambda: len(instances(kinds)), 0)
    if left := instances(kinds):
        gc.unfreeze()  # what was there before may hold them
        holders = [[type(by).__qualname__ for by in gc.get_referrers(one) if by is not left] for one in left]
        raise AssertionError(f"left: {left}, held by {holders}")


def census():
    """How many there are of each type of ours, and of the data that these hold, by its name."""
    there = gc.get_objects()
    ours = {*filter(is_ours, {*map(type, there)})}
    found, seen = Counter(), set()
    layer = [one for one in there if type(one) in ours]
    while layer:
        new = {id(one): one for one in layer if id(one) not in seen}
        seen.update(new)
        found.update(map(type, new.values()))
        # Structs that the collector does not know are found here only.
        layer = [one for one in gc.get_referents(*new.values()) if type(one) in DATA or is_ours(type(one))]
    return Counter({f"{kind.__module__}.{kind.__qualname__}": count for kind, count in found.items()})


@cache
def is_ours(kind):
    return str(kind.__module__).partition(".")[0] in OURS and kind not in GROWING
