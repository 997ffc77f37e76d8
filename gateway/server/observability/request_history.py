"""Count the finished requests of a process by minutes, for the last hour.

A request costs one or two calls of functions.
"""

from gateway.server.observability.minute_counts import MINUTES, MinuteCounts, latency_step
from gateway.server.observability.snapshot import FailureInfo, RequestSnapshot

_MAX = 64  # groups of errors, and of warnings, in a minute; more are counted in one


class RequestHistory:
    """The counts of the last hour."""

    def __init__(self) -> None:
        self._minutes: dict[int, MinuteCounts] = {}
        self._start = self._end = 0.0  # Unix seconds of the current minute, at first of none
        self._minute = MinuteCounts(0)

    def add(self, one: RequestSnapshot, *, failed: bool) -> None:
        """Count a finished request."""
        ended = one.arrived + one.duration
        if not self._start <= ended < self._end:
            self._begin(ended)
        minute = self._minute
        minute.requests += 1
        minute.output_tokens += one.output_tokens
        if one.backend:
            minute.backends[one.backend].requests += 1
        if one.streamed and one.first_content is not None:
            step = latency_step(one.first_content)
            minute.first_tokens[step] += 1
            if one.backend:
                minute.backends[one.backend].first_tokens[step] += 1
        if failed:
            _add_error(minute, one, ended)
        if one.ledger:
            _add_warnings(minute, one)

    def failed(self, backend: str, failure: FailureInfo) -> None:
        """Count a failed attempt at a backend."""
        if not self._start <= failure.time < self._end:
            self._begin(failure.time)
        self._minute.backends[backend].failures += 1

    def minutes(self, now: float) -> list[MinuteCounts]:
        """Return the minutes of the last hour.  now: Unix seconds."""
        first = int(now // 60) - MINUTES
        return [minute for number, minute in self._minutes.items() if number > first]

    def _begin(self, time: float) -> None:
        """Count in the minute of this time from now on."""
        number = int(time // 60)
        self._start, self._end = 60.0 * number, 60.0 * (number + 1)
        self._minute = self._minutes.setdefault(number, MinuteCounts(number))
        if len(self._minutes) > MINUTES:
            del self._minutes[min(self._minutes)]


def _add_error(minute: MinuteCounts, one: RequestSnapshot, ended: float) -> None:
    minute.errors += 1
    key = one.status or 0, one.error or "", one.message or "", one.model, one.backend
    if key not in minute.groups and len(minute.groups) >= _MAX:
        key = 0, "", "", "", ""
    count, last = minute.groups.get(key, (0, ended))
    minute.groups[key] = count + 1, max(last, ended)


def _add_warnings(minute: MinuteCounts, one: RequestSnapshot) -> None:
    for code, times in one.ledger.items():
        key = code, one.model
        if key not in minute.warnings and len(minute.warnings) >= _MAX:
            key = code, ""
        minute.warnings[key] += times
