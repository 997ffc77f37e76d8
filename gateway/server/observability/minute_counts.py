"""Define the counts of one minute, which can be added up over workers, and compute percentiles of them."""

from bisect import bisect
from collections import Counter, defaultdict
from collections.abc import Iterable
from typing import TypeVar

from msgspec import Struct, field

MINUTES = 60  # that are kept
_FACTOR = 1.05  # between two steps, so a percentile is within 3 per cent
_STEPS = [0.001 * _FACTOR**number for number in range(320)]  # seconds, up to an hour and a half

LatencyCounts = dict[int, int]  # by the number of the step
ErrorKey = tuple[int, str, str, str, str]  # status, code, message, model, backend
WarningKey = tuple[str, str]  # code, model
_Key = TypeVar("_Key")


def _zeros() -> defaultdict[_Key, int]:
    return defaultdict(int)


class BackendMinute(Struct):
    """One minute of a backend.  failures: failed attempts, also those of requests that another backend completed."""

    requests: int = 0
    failures: int = 0
    first_tokens: LatencyCounts = field(default_factory=_zeros)


def _no_backends() -> defaultdict[str, BackendMinute]:
    return defaultdict(BackendMinute)


class MinuteCounts(Struct):
    """The requests that ended in one minute, without their content.

    number: Unix time in minutes; errors: failed requests; first_tokens: of streams.
    groups: the number of equal errors and the Unix time of the last one.
    """

    number: int
    requests: int = 0
    errors: int = 0
    output_tokens: int = 0
    first_tokens: LatencyCounts = field(default_factory=_zeros)
    backends: dict[str, BackendMinute] = field(default_factory=_no_backends)
    warnings: dict[WarningKey, int] = field(default_factory=_zeros)
    groups: dict[ErrorKey, tuple[int, float]] = field(default_factory=dict)


def latency_step(seconds: float) -> int:
    """Return the step in which a latency is counted."""
    return bisect(_STEPS, seconds)


def percentile(counts: LatencyCounts, share: float) -> float | None:
    """Return the seconds that this share of the counted latencies does not exceed; None if none was counted."""
    left = share * sum(counts.values())
    for step in sorted(counts):
        left -= counts[step]
        if left <= 0:
            return float(_STEPS[0] * _FACTOR ** (step - 0.5))
    return None


def sum_counts(several: Iterable[dict[_Key, int]]) -> dict[_Key, int]:
    """Return the sums of several counts."""
    sums: Counter[_Key] = Counter()
    for counts in several:
        sums.update(counts)
    return dict(sums)


def sum_groups(several: Iterable[dict[ErrorKey, tuple[int, float]]]) -> dict[ErrorKey, tuple[int, float]]:
    """Return the sums of several groups of errors, with the time of the last error."""
    sums: dict[ErrorKey, tuple[int, float]] = {}
    for groups in several:
        for key, (count, last) in groups.items():
            before, time = sums.get(key, (0, last))
            sums[key] = before + count, max(time, last)
    return sums
