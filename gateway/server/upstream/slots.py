"""Limit concurrent requests per backend, and report each outcome to the health tracker."""

import asyncio
import logging
import random
from collections.abc import Callable
from functools import partial
from math import inf
from typing import Literal

from msgspec import Struct

from gateway.config import QueueSettings
from gateway.errors import UpstreamUnavailable
from gateway.routing import FairQueue, Health

_log = logging.getLogger("gateway")
_AGAIN = "1"  # seconds until a slot may be free


class QueueIdentity(Struct, frozen=True):
    """The tenant of a request in a queue.

    weight: its share of the slots while other tenants wait; only_target: no other backend can serve the request.
    spare: the request takes only slots that other requests leave free, and waits for one without a limit.
    """

    tenant: str = ""
    weight: float = 2
    only_target: bool = False
    spare: bool = False


class BackendLimiter:
    """The slots, the queue and the health of one backend.

    concurrent: requests at a time; 0: no limit.
    """

    def __init__(self, name: str, concurrent: int, settings: QueueSettings) -> None:
        self.name, self.health = name, Health(random.random)
        self.queue, self.queue_timeout = FairQueue(concurrent, settings.length), settings.seconds or inf
        self._logged: Literal["up", "down", "back"] = "up"  # back: a probe succeeded, and no request yet

    def record_probe(self, *, succeeded: bool) -> None:
        """Note the result of a probe."""
        self.update_health(partial(self.health.record_probe, succeeded=succeeded))
        if succeeded:
            self._log_recovery()

    def update_health(self, failure: Callable[[float], None]) -> None:
        """Call `failure` with the current time; log once that the circuit is open, until a request succeeds."""
        now = _now()
        failure(now)
        if self._logged == "up" and self.health.state(now) == "open":
            self._logged = "down"
            _log.warning("backend %s failed repeatedly: no requests for %.0f s", self.name, self.health.back_in(now))

    def record_recovery(self) -> None:
        """Note that a request succeeded and closed the circuit."""
        self._log_recovery()
        self._logged = "up"

    def _log_recovery(self) -> None:
        if self._logged == "down":
            self._logged = "back"
            _log.warning("backend %s is available again", self.name)


class Slot:
    """A slot at a backend for one attempt, or a place in its queue.

    If `is_acquired` is False, `wait` for the slot.  Report the outcome by one of the `record_` methods.  Call
    `release` in any case.
    """

    def __init__(self, limiter: BackendLimiter, identity: QueueIdentity) -> None:
        now, self._limiter, self._only_target = _now(), limiter, identity.only_target
        self._attempt = limiter.health.begin(now)
        self._open = True  # the outcome is not reported yet
        self._entry = entry = limiter.queue.acquire(identity.tenant, identity.weight, _unheard, spare=identity.spare)
        self.is_acquired = entry is not None and entry.has_slot
        self._until = inf if identity.spare else now + limiter.queue_timeout

    async def wait(self, seconds: float) -> bool:
        """Return True once the slot is acquired, False after `seconds`.

        Raises UpstreamUnavailable if the queue is full, the time in the queue is over or the backend has failed
        meanwhile.
        """
        if not self._entry:
            message = f"The queue of backend '{self._limiter.name}' is full (queue.length). Retry after {_AGAIN} s."
            raise UpstreamUnavailable(message, retry_after=_AGAIN)
        if not self._entry.has_slot:
            left = min(seconds, self._until - _now())
            turn = asyncio.get_running_loop().create_future()
            self._entry.on_turn = partial(turn.set_result, None)
            await asyncio.wait((turn,), timeout=None if left == inf else max(left, 0))
        self.is_acquired = self._entry.has_slot
        if self.is_acquired and not (self._only_target or self._limiter.health.is_current(self._attempt)):
            raise UpstreamUnavailable(f"Backend '{self._limiter.name}' failed while the request waited in its queue.")
        if not self.is_acquired and _now() >= self._until:
            limit = f"{self._limiter.queue_timeout:g} s (queue.seconds)"
            message = f"The request waited for backend '{self._limiter.name}' for {limit}. Retry after {_AGAIN} s."
            raise UpstreamUnavailable(message, retry_after=_AGAIN)
        return self.is_acquired

    def release(self) -> None:
        """Free the slot or leave the queue; an attempt without a reported outcome counts neither way."""
        if self._entry:
            self._limiter.queue.release(self._entry)
        if self._open:
            self._open = False
            self._limiter.health.record_no_outcome(self._attempt)

    # Report the outcome.

    def record_success(self) -> None:
        """Note that the response began, or that the backend rejected a faulty request; repeated calls do nothing."""
        if self._open:
            self._open = False
            if self._limiter.health.record_success(self._attempt, _now()):
                self._limiter.record_recovery()

    def record_failure(self) -> None:
        """Note that the response did not begin, broke off, or was invalid."""
        self._open = False
        self._limiter.update_health(partial(self._limiter.health.record_failure, self._attempt))

    def record_status(self, status: int, retry_after: str | None, *, clients_fault: bool) -> None:
        """Note a response with this status, which is not 200.  retry_after: whole seconds."""
        health = self._limiter.health
        if status in (429, 503, 529) and retry_after:
            health.pause(_now(), int(retry_after))
        elif status in (502, 503, 504):
            self.record_failure()
        elif clients_fault:
            self.record_success()
        else:
            self._open = False
            health.record_request_failure(self._attempt, _now())


def _unheard() -> None:
    """Do nothing: the next check finds an acquired slot if no task waits."""


def _now() -> float:
    return asyncio.get_running_loop().time()
