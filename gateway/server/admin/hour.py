"""Build the view of the last hour from the minutes of all workers, and draw its sparklines.

A sparkline is the data of an SVG path in a box of 300 by 48, one step for each value.
"""

from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import get_args

from msgspec import Struct

from gateway.code_texts import CODES, code_title
from gateway.server.observability.minute_counts import (
    MINUTES,
    LatencyCounts,
    MinuteCounts,
    percentile,
    sum_counts,
    sum_groups,
)
from gateway.warnings import WarningCode

_RECENT = 10  # minutes
_MAX = 50  # groups of errors and of warnings
_CODES: tuple[WarningCode, ...] = get_args(WarningCode)
_WIDTH, _HEIGHT, _ROOM = 300.0, 48.0, 4.0  # room above the highest value
Values = Sequence[float | None]
_Point = tuple[float, float]


class MinuteView(Struct, frozen=True):
    """One minute.  time: its start in Unix seconds; the first token in seconds, None without a stream."""

    time: int
    requests: int
    errors: int
    output_tokens: int
    first_token_median: float | None
    first_token_p95: float | None


class WarningCountView(Struct, frozen=True):
    """The warnings of a code for a model; model: "" for a request that reached none."""

    code: str
    title: str
    severity: str
    model: str
    count: int


class ErrorGroupView(Struct, frozen=True):
    """Equal errors.  last_time: Unix seconds; message: None if the log may not show it.

    status: 0 for the errors beyond those that a minute can tell apart.
    """

    status: int
    code: str | None
    message: str | None
    model: str
    backend: str
    count: int
    last_time: float


class HourView(Struct, frozen=True):
    """The last hour: minutes, the oldest first, and their sums.  errors, warnings: the most frequent ones."""

    minutes: list[MinuteView] = []
    requests: int = 0
    failed_requests: int = 0
    output_tokens: int = 0
    first_token_median: float | None = None
    first_token_p95: float | None = None
    errors: list[ErrorGroupView] = []
    warnings: list[WarningCountView] = []


class BackendHourView(Struct, frozen=True):
    """The last hour of a backend.

    minutes: its requests in each minute, the oldest first; errors: failed attempts, also those that a retry made good.
    recent_errors, recent_requests: of the last ten minutes.
    """

    minutes: list[int] = []
    requests: int = 0
    errors: int = 0
    recent_requests: int = 0
    recent_errors: int = 0
    first_token_median: float | None = None


def hour_view(several: Iterable[MinuteCounts], now: float) -> HourView:
    """Return the last hour.  several: the minutes of all workers; now: Unix seconds."""
    minutes = _by_minute(several, now)
    counted = [one for group in minutes for one in group]
    latencies = _latencies(counted)
    return HourView(
        minutes=[_minute(time, group) for time, group in zip(_times(now), minutes, strict=True)],
        requests=sum(one.requests for one in counted),
        failed_requests=sum(one.errors for one in counted),
        output_tokens=sum(one.output_tokens for one in counted),
        first_token_median=_rounded(percentile(latencies, 0.5)),
        first_token_p95=_rounded(percentile(latencies, 0.95)),
        errors=_errors(counted),
        warnings=_warnings(counted),
    )


def backend_hour(several: Iterable[MinuteCounts], name: str, now: float) -> BackendHourView:
    """Return the last hour of a backend."""
    minutes = [[one.backends[name] for one in group if name in one.backends] for group in _by_minute(several, now)]
    requests = [sum(one.requests for one in group) for group in minutes]
    errors = [sum(one.failures for one in group) for group in minutes]
    first = sum_counts(one.first_tokens for group in minutes for one in group)
    return BackendHourView(
        minutes=requests,
        requests=sum(requests),
        errors=sum(errors),
        recent_requests=sum(requests[-_RECENT:]),
        recent_errors=sum(errors[-_RECENT:]),
        first_token_median=_rounded(percentile(first, 0.5)),
    )


def _times(now: float) -> Sequence[int]:
    last = int(now // 60)
    return [60 * number for number in range(last - MINUTES + 1, last + 1)]


def _by_minute(several: Iterable[MinuteCounts], now: float) -> list[list[MinuteCounts]]:
    """Return the counts of each minute of the hour, the oldest first."""
    found: dict[int, list[MinuteCounts]] = {time // 60: [] for time in _times(now)}
    for one in several:
        if one.number in found:
            found[one.number].append(one)
    return [*found.values()]


def _latencies(counted: Iterable[MinuteCounts]) -> LatencyCounts:
    return sum_counts(one.first_tokens for one in counted)


def _minute(time: int, group: Collection[MinuteCounts]) -> MinuteView:
    latencies = _latencies(group)
    return MinuteView(
        time=time,
        requests=sum(one.requests for one in group),
        errors=sum(one.errors for one in group),
        output_tokens=sum(one.output_tokens for one in group),
        first_token_median=_rounded(percentile(latencies, 0.5)),
        first_token_p95=_rounded(percentile(latencies, 0.95)),
    )


def _rounded(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds, 3)


def _errors(counted: Iterable[MinuteCounts]) -> list[ErrorGroupView]:
    sums = sum_groups(one.groups for one in counted)
    views = [
        ErrorGroupView(status, code or None, message or None, model, backend, count, round(last, 3))
        for (status, code, message, model, backend), (count, last) in sums.items()
    ]
    return sorted(views, key=lambda one: (-one.count, -one.last_time))[:_MAX]


def _warnings(counted: Iterable[MinuteCounts]) -> list[WarningCountView]:
    sums = sum_counts(one.warnings for one in counted)
    views = [
        WarningCountView(code, code_title(code), CODES[code].severity, model, sums[code, model])
        for code in _CODES
        for other, model in sums
        if other == code
    ]
    return sorted(views, key=lambda one: (one.severity != "warn", -one.count, one.code, one.model))[:_MAX]


def line_path(values: Values, top: float) -> str:
    """Return a line with gaps where there is no value.  top: the value at the upper edge."""
    return " ".join(f"M{_joined(run if len(run) > 1 else _dash(*run))}" for run in _runs(values, top))


def area_path(values: Values, top: float) -> str:
    """Return the areas below the line."""
    return " ".join(
        f"M{_point((run[0][0], _HEIGHT))} {_joined(run)} {_point((run[-1][0], _HEIGHT))}z" for run in _runs(values, top)
    )


def bars_path(values: Values, top: float) -> str:
    """Return a bar for each value above zero."""
    return " ".join(
        f"M{_point(point)}V{_HEIGHT:g}" for run in _runs([one or None for one in values], top) for point in run
    )


def _runs(values: Values, top: float) -> Iterator[list[_Point]]:
    """Yield the points of neighboring values."""
    run: list[_Point] = []
    step = _WIDTH / max(1, len(values) - 1)
    for number, value in enumerate(values):
        if value is not None:
            run.append((number * step, _HEIGHT - (_HEIGHT - _ROOM) * value / (top or 1)))
        elif run:
            yield run
            run = []
    if run:
        yield run


def _dash(point: _Point) -> list[_Point]:
    """Return a short line that ends at a point without neighbors."""
    return [(max(0.0, point[0] - 4), point[1]), point]


def _point(point: _Point) -> str:
    return f"{point[0]:.0f},{point[1]:.1f}"


def _joined(run: Sequence[_Point]) -> str:
    return " ".join(map(_point, run))
