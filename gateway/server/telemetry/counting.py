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

_SORTS = ("input", "output", "cached", "reasoning")  # of tokens
_KINDS = {
    "upstream_unreachable": "unreachable",
    "upstream_timeout": "timeout",
    "upstream_lost": "lost",
    "upstream_auth_error": "auth",
    "model_loading": "loading",
    "server_is_overloaded": "overloaded",
    "rate_limit_exceeded": "rate_limit",
}


class Counter:
    """Counts requests that are over: for all of one sort it looks their series up once."""

    def __init__(self, tally: Tally) -> None:
        self._tally = tally
        self._requests: dict[tuple[str, str, str, int], list[list[float]]] = {}
        self._tokens: dict[str, list[list[float]]] = {}

    def count(self, seen: Observation) -> None:
        sort = seen.endpoint, seen.model, seen.backend, seen.outcome
        requests, received, sent = self._requests.get(sort) or self._of_request(*sort)
        requests[0] += 1
        received[0] += seen.received
        sent[0] += seen.sent
        for code, times in seen.ledger.codes().items():
            self._tally.count(LEDGER, (code,), times)
        if seen.stored:
            self._tally.count(STORED)
        if seen.backend:
            self._count_answer(seen)

    def _count_answer(self, seen: Observation) -> None:
        tally, pace, used = self._tally, seen.pace, seen.spent()
        tally.measure(DURATION, seen.ended - seen.arrived)
        if seen.format:
            tally.count(FORMATS, (seen.format,))
        if seen.streamed and pace.first_content is not None:
            tally.measure(FIRST_TOKEN, pace.first_content - seen.arrived)
            tally.add(BETWEEN, (*pace.gaps, pace.last - pace.first_content))
        given, made, cached, thought = self._tokens.get(seen.model) or self._of_model(seen.model)
        given[0] += used.prompt
        made[0] += used.completion
        cached[0] += used.cached
        thought[0] += used.reasoning

    def _of_request(self, endpoint: str, model: str, backend: str, outcome: int) -> list[list[float]]:
        labels = endpoint, model, backend, str(outcome)
        cells = [self._tally.cell(REQUESTS, labels), *(self._tally.cell(one, (endpoint,)) for one in (RECEIVED, SENT))]
        return self._requests.setdefault((endpoint, model, backend, outcome), cells)

    def _of_model(self, model: str) -> list[list[float]]:
        return self._tokens.setdefault(model, [self._tally.cell(TOKENS, (model, one)) for one in _SORTS])


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
