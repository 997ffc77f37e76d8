"""Choose the targets of one request: one backend after another, until there is content for the client."""

import asyncio
from hashlib import blake2b
from math import ceil
from typing import Literal

from msgspec import Struct, json

from gateway.config import ApiKey
from gateway.errors import Problem, UpstreamUnavailable
from gateway.request import LEADING, Request
from gateway.server.middleware.auth import may_use_model, require_model
from gateway.server.upstream.model_registry import BackendRoute, ModelEntry
from gateway.server.upstream.slots import QueueIdentity

_MAX_WAIT = 2  # seconds of `retry-after` that the gateway waits; for a longer one the client decides
_ELSEWHERE = (404, 429)  # client errors that another backend may not have
_TOO_LONG = "context_length_exceeded"
_WEIGHTS = {"high": 4.0, "normal": 2.0, "low": 1.0}


class Target(Struct, frozen=True):
    """A route to call, after a pause in seconds."""

    route: BackendRoute
    pause: float = 0


class RetryPolicy:
    """The targets of one request: `first`, then `next` for each that has failed.

    sticky: the name of requests that should reach the same backend.
    faithful: no fallback model will do, as counts of tokens and vectors hold for one model alone.
    spare: only slots that other requests leave free will do.
    served: the model that is called; identity: the tenant in the queues.
    """

    def __init__(
        self,
        served: ModelEntry,
        key: ApiKey | None,
        sticky: str | None = None,
        faithful: bool = False,
        spare: bool = False,
    ) -> None:
        self.served, self._requested, self._key, self._sticky = served, served, key, sticky
        self._fallbacks = [] if faithful else [*served.fallbacks]  # those left
        alone = len(served.routes) == 1 and not self._fallbacks
        self.identity = (
            QueueIdentity(key.name, _WEIGHTS[key.priority], alone, spare)
            if key
            else QueueIdentity(only_target=alone, spare=spare)
        )
        self._budget, self._retries_left = served.budget, served.settings.retries
        self._tried_backends: list[str] = []
        self._last_route = served.any  # the route of the last target

    @property
    def is_fallback(self) -> bool:
        """Return True if another model is called than the client has named."""
        return self.served is not self._requested

    @property
    def is_restricted(self) -> bool:
        """True if the key allows only some models."""
        return self._key is not None and self._key.models is not None

    def require_model(self, name: str) -> None:
        """Raise Forbidden if the key does not allow this model."""
        require_model(self._key, name, name)

    def first(self) -> Target:
        """Return the first target.  Raise UpstreamUnavailable if no backend is available.

        A single backend is always a target, as its own error tells more.
        """
        self._budget.count_first_attempt()
        if self.identity.only_target:
            return self._record_target(self._requested.any)
        if target := self._untried_target() or self._next_fallback("unavailable"):
            return target
        seconds, model = max(1, ceil(self._requested.balancer.back_in(_now()))), self._requested.model
        message = f"All backends of model '{model}' are unavailable after repeated failures. Retry after {seconds} s."
        raise UpstreamUnavailable(message, retry_after=str(seconds))

    def next(self, problem: Problem, retry_after: str | None) -> Target | None:
        """Return the target after a failure; None if none is left, or none could do better."""
        if problem.code == _TOO_LONG:
            target = self._next_fallback("too_long")
        elif problem.status < 500 and problem.status not in _ELSEWHERE:
            return None
        else:
            target = self._retry_target(retry_after) or self._next_fallback("unavailable")
        return target if target and self._budget.spend_retry() else None

    def skip(self) -> Target | None:
        """Return a backend that was not tried yet, if the last one cannot take the request and was not called."""
        return self._untried_target()

    def hedge(self) -> Target | None:
        """Return another backend of the same model, for a hedge."""
        target = self._untried_target()
        return target if target and self._budget.spend_retry() else None

    def _retry_target(self, retry_after: str | None) -> Target | None:
        """Return a target of the same model, as long as retries are left."""
        self._retries_left -= 1
        return None if self._retries_left < 0 else self._untried_target() or self._repeated_target(retry_after)

    def _untried_target(self) -> Target | None:
        """Return a backend that was not tried yet."""
        return self._choose_target(self.served, self._tried_backends)

    def _repeated_target(self, retry_after: str | None) -> Target | None:
        """Return the last backend, if its `retry-after` is short."""
        if not retry_after or int(retry_after) > _MAX_WAIT:
            return None
        return Target(self._last_route, int(retry_after))

    def _next_fallback(self, reason: Literal["unavailable", "too_long"]) -> Target | None:
        """Return the next fallback model that serves for this reason; each is returned once."""
        for index, (fallback, reasons) in enumerate(self._fallbacks):
            allowed = reason in reasons and may_use_model(self._key, fallback.model, fallback.model)
            if allowed and (target := self._choose_target(fallback, [])):
                del self._fallbacks[index]
                return target
        return None

    def _choose_target(self, served: ModelEntry, tried: list[str]) -> Target | None:
        """Return a backend of the model; None if no untried one admits a request."""
        member = served.balancer.choose(_now(), self._sticky, tried)
        if not member:
            return None
        if served is not self.served:
            self.served, self._retries_left = served, served.settings.retries
        self._tried_backends = tried
        return self._record_target(served.routes[member.name])

    def _record_target(self, route: BackendRoute) -> Target:
        """Return the target of a route, and note that it was tried."""
        self._tried_backends.append(route.backend.name)
        self._last_route = route
        return Target(route)


def affinity_key(request: Request, named: str | None, served: ModelEntry) -> str | None:
    """Return the key of requests that should reach the same backend.

    named: the client's own name for them.
    """
    policy = served.settings.sticky
    if policy == "none" or len(served.routes) == 1:
        return None
    return named or (_prefix(request) if policy == "prefix" else None)


def _prefix(request: Request) -> str:
    """Return a digest of the messages up to the first that is not an instruction: all turns share it."""
    end = next((i for i, one in enumerate(request.messages, 1) if one["role"] not in LEADING), None)
    return blake2b(json.encode(request.messages[:end]), digest_size=16).hexdigest()


def _now() -> float:
    return asyncio.get_running_loop().time()
