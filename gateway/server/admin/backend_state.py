"""Say in words what state a backend is in, and why."""

from typing import Literal

from gateway.server.admin.hour import BackendHourView
from gateway.server.observability.snapshot import BackendCondition, FailureInfo

BackendState = Literal["healthy", "degraded", "unreachable"]
_SHARE = 0.05  # of the attempts of the last ten minutes: more failures make a backend degraded


def backend_state(
    url: str, problem: str | None, condition: BackendCondition, hour: BackendHourView
) -> tuple[BackendState, str | None]:
    """Return the state of a backend and the cause, None for a healthy one.

    problem: why its models are unknown; hour: its requests.
    unreachable: it gets no requests, or did not respond now; degraded: it does, and some of its attempts fail.
    """
    if not condition.healthy:
        return "unreachable", _refusal(url, condition)
    if problem:
        works = hour.recent_requests > hour.recent_errors
        return "degraded" if works else "unreachable", f"{problem} Its address is {url}."
    if hour.recent_errors > _SHARE * max(hour.recent_requests, hour.recent_errors):
        what = f"{hour.recent_errors} attempt{'s' * (hour.recent_errors != 1)} at {url} failed in the last 10 minutes."
        return "degraded", f"{what}{_last(condition.failure)}"
    return "healthy", None


def _refusal(url: str, condition: BackendCondition) -> str:
    after = f"in {condition.back_in:.0f} s" if condition.back_in >= 1 else "now"
    cause = f"Attempts at {url} failed repeatedly.{_last(condition.failure)}"
    return f"{cause} The next attempt is possible {after}."


def _last(failure: FailureInfo | None) -> str:
    if not failure:
        return ""
    return (
        f" {failure.message}"
        if failure.message
        else f" The last error: {failure.status} {failure.code or ''}".rstrip() + "."
    )
