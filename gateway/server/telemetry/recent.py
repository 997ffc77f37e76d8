"""The requests of one process that go on, and the last ones that are over."""

from collections import defaultdict, deque
from collections.abc import Mapping
from itertools import chain
from time import time

from gateway.errors import Problem
from gateway.server.backend import Backend
from gateway.server.telemetry.observation import RequestRecord
from gateway.server.telemetry.rates import compute_rates
from gateway.server.telemetry.sight import (
    BackendCondition,
    FailureInfo,
    RequestSnapshot,
    WorkerSnapshot,
    failure_info,
    snapshot_request,
)

_KEPT = 200  # requests that are over
_KEPT_FAILED = 50  # of those that came to nothing
_TOLD = 100  # of those that go on


class RecentRequests:
    """The recent requests.  A request costs one entry at its end; all else is worked out on demand."""

    def __init__(self) -> None:
        self._live: defaultdict[str, set[RequestRecord]] = defaultdict(set)  # by endpoint
        self._over: deque[RequestSnapshot] = deque(maxlen=_KEPT)
        self._failed: deque[RequestSnapshot] = deque(maxlen=_KEPT_FAILED)
        self._failures: dict[str, FailureInfo] = {}  # the last of each backend

    def begin(self, seen: RequestRecord) -> None:
        self._live[seen.endpoint].add(seen)

    def end(self, seen: RequestRecord) -> None:
        self._live[seen.endpoint].discard(seen)
        entry = snapshot_request(seen, live=False)
        self._over.append(entry)
        if seen.problem:
            self._failed.append(entry)

    def failed(self, backend: str, problem: Problem) -> None:
        """An attempt has."""
        self._failures[backend] = failure_info(problem)

    def inside(self) -> dict[str, int]:
        """How many go on, by all endpoints that there have been."""
        return {endpoint: len(live) for endpoint, live in self._live.items()}

    def sight(self, backends: Mapping[str, Backend], now: float) -> WorkerSnapshot:
        """now: in the event loop's time."""
        live = [snapshot_request(seen, live=True) for seen in chain.from_iterable(self._live.values())]
        live.sort(key=lambda seen: -seen.arrived)
        since = self._over[0].ended if len(self._over) == _KEPT else 0.0
        return WorkerSnapshot(
            rates=compute_rates(live, self._over, since, time()),
            requests=[*live[:_TOLD], *reversed(self._over)],
            failed=[*reversed(self._failed)],
            backends={name: self._condition(name, backend, now) for name, backend in backends.items()},
        )

    def _condition(self, name: str, backend: Backend, now: float) -> BackendCondition:
        health, turns = backend.gate.health, backend.gate.turns
        state = health.state(now)
        return BackendCondition(
            state=state,
            healthy=state == "closed" and not health.ejected(now),
            back_in=health.back_in(now),
            queued=turns.waiting,
            failure=self._failures.get(name),
        )
