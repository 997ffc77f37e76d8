"""A request's place at a backend: its turn there, and what becomes of it, which shows the backend's health."""

import asyncio
import logging
import random
from collections.abc import Callable
from functools import partial
from math import inf

from msgspec import Struct

from gateway.config import QueueSettings
from gateway.errors import UpstreamUnavailable
from gateway.routing import FairQueue, Health

_log = logging.getLogger("gateway")
_AGAIN = "1"  # seconds after which there may be room


class QueueIdentity(Struct, frozen=True):
    """The tenant of a request in a queue.

    weight: how much of the turns is his where others wait as well; alone: no other backend could answer him.
    """

    tenant: str = ""
    weight: float = 2
    only_target: bool = False


class BackendLimiter:
    """Of one backend.  concurrent: requests that it gets at a time; 0: any number."""

    def __init__(self, name: str, concurrent: int, queue: QueueSettings) -> None:
        self.name, self.health = name, Health(random.random)
        self.turns, self.queue_timeout = FairQueue(concurrent, queue.length), queue.seconds or inf

    def probed(self, *, well: bool) -> None:
        """Note the result of a probe."""
        self.update_health(partial(self.health.probed, well=well))

    def update_health(self, failure: Callable[[float], None]) -> None:
        """Give the health what it makes of this time; where that opens the circuit it is logged."""
        now = _now()
        before = self.health.state(now)
        failure(now)
        after = self.health.state(now)
        if after == "open" != before:
            _log.warning("backend %s fails: left alone for %.0f s", self.name, self.health.back_in(now))


class Slot:
    """At a gate, from now on.  `taken`, or to be waited for; then `well` or what went wrong; `leave` in any case."""

    def __init__(self, gate: BackendLimiter, asker: QueueIdentity, now: float) -> None:
        self._gate, self._alone = gate, asker.only_target
        self._attempt = gate.health.begin(now)
        self._open = True  # its outcome is
        self._ticket = ticket = gate.turns.acquire(asker.tenant, asker.weight, _unheard)
        self.is_acquired = ticket is not None and ticket.inside
        self._until = now + gate.queue_timeout

    async def wait(self, seconds: float) -> bool:
        """Until it is taken; False after so many seconds.  Raises Unavailable if there is no hope for it."""
        if not self._ticket:
            raise UpstreamUnavailable(
                f"Too many requests wait for the backend '{self._gate.name}'.", retry_after=_AGAIN
            )
        if not self._ticket.inside:
            left = min(seconds, self._until - _now())
            turn = asyncio.get_running_loop().create_future()
            self._ticket.on_turn = partial(turn.set_result, None)
            await asyncio.wait((turn,), timeout=None if left == inf else max(left, 0))
        self.is_acquired = self._ticket.inside
        if self.is_acquired and not (self._alone or self._gate.health.is_current(self._attempt)):
            raise UpstreamUnavailable(f"The backend '{self._gate.name}' failed while the request waited for its turn.")
        if not self.is_acquired and _now() >= self._until:
            message = f"The request has waited for the backend '{self._gate.name}' for too long."
            raise UpstreamUnavailable(message, retry_after=_AGAIN)
        return self.is_acquired

    def release(self) -> None:
        if self._ticket:
            self._gate.turns.release(self._ticket)
        if self._open:
            self._open = False
            self._gate.health.record_no_outcome(self._attempt)

    # what came of it

    def well(self) -> None:
        """Note that the response began, or that the backend refused a faulty request; repeating it changes nothing."""
        if self._open:
            self._open = False
            if self._gate.health.well(self._attempt, _now()):
                _log.warning("backend %s is back", self._gate.name)

    def ill(self) -> None:
        """Note that the response did not begin, broke off, or was invalid."""
        self._open = False
        self._gate.update_health(partial(self._gate.health.ill, self._attempt))

    def record_status(self, status: int, retry_after: str | None, *, clients_fault: bool) -> None:
        """Note a response with this status, which is not 200."""
        health = self._gate.health
        if status in (429, 503) and retry_after and retry_after.isdecimal():
            health.rest(_now(), int(retry_after))
        elif status in (502, 503, 504):
            self.ill()
        elif clients_fault:
            self.well()
        else:
            self._open = False
            health.poor(self._attempt, _now())


def _unheard() -> None:
    """Do nothing: without a sleeping task, the next look finds the turn."""


def _now() -> float:
    return asyncio.get_running_loop().time()
