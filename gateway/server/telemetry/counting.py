"""An observation as numbers, and the backends as they are now."""

from collections.abc import Mapping
from typing import get_args

from gateway.errors import Problem
from gateway.routing.health import State
from gateway.server.backend import Backend
from gateway.server.telemetry.metrics import (
    BETWEEN,
    CIRCUIT,
    DURATION,
    FIRST_TOKEN,
    FORMATS,
    HEALTHY,
    LEDGER,
    QUEUE,
    RECEIVED,
    REQUESTS,
    SENT,
    STORED,
    TOKENS,
)
from gateway.server.telemetry.observation import Observation
from gateway.server.telemetry.tally import Series, Tally

_KINDS = {
    "upstream_unreachable": "unreachable",
    "upstream_timeout": "timeout",
    "upstream_lost": "lost",
    "upstream_auth_error": "auth",
    "model_loading": "loading",
    "server_is_overloaded": "overloaded",
    "rate_limit_exceeded": "rate_limit",
}


def count(seen: Observation, tally: Tally) -> None:
    """One request that is over."""
    endpoint = (seen.endpoint,)
    tally.count(REQUESTS, (seen.endpoint, seen.model, seen.backend, str(seen.outcome)))
    tally.count(RECEIVED, endpoint, seen.received)
    tally.count(SENT, endpoint, seen.sent)
    for code, times in seen.ledger.codes().items():
        tally.count(LEDGER, (code,), times)
    if seen.stored:
        tally.count(STORED)
    if seen.backend:
        _count_answer(seen, tally)


def _count_answer(seen: Observation, tally: Tally) -> None:
    tally.measure(DURATION, seen.ended - seen.arrived)
    if seen.format:
        tally.count(FORMATS, (seen.format,))
    pace = seen.pace
    if seen.streamed and pace.first_content is not None:
        tally.measure(FIRST_TOKEN, pace.first_content - seen.arrived)
        tally.add(BETWEEN, (*pace.gaps, pace.last - pace.first_content))
    used, model = seen.spent(), seen.model
    tally.count(TOKENS, (model, "input"), used.prompt)
    tally.count(TOKENS, (model, "output"), used.completion)
    tally.count(TOKENS, (model, "cached"), used.cached)
    tally.count(TOKENS, (model, "reasoning"), used.reasoning)


def kind(problem: Problem) -> str | None:
    """What sort of failure of a backend it is; None for what is the request's fault."""
    if problem.status < 500 and problem.status != 429:
        return None
    return _KINDS.get(problem.code or "", "error")


def states(backends: Mapping[str, Backend], now: float) -> Series:
    """What this process knows of each; now: in the event loop's time."""
    tally = Tally((HEALTHY, CIRCUIT, QUEUE))
    for name, backend in backends.items():
        health = backend.gate.health
        state = health.state(now)
        tally.count(HEALTHY, (name,), state == "closed" and not health.ejected(now))
        tally.count(QUEUE, (name,), backend.gate.turns.waiting)
        for one in get_args(State):
            tally.count(CIRCUIT, (name, one), one == state)
    return tally.series
