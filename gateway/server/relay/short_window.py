"""Warn the operator of a context that is too short for tools: an agent's prompt does not fit."""

import logging

from gateway.server.upstream import model_registry
from gateway.server.upstream.model_registry import BackendRoute

_log = logging.getLogger("gateway")
_CHECKED = "short window"
_SHORT = 8192  # tokens of an agent's prompt with its tools


def warn_of_short_window(route: BackendRoute) -> None:
    """Log a warning if the context of a model that gets tools is known and short; once for each route."""
    if _CHECKED in route.cache or not (window := model_registry.remembered(route)):
        return
    route.cache[_CHECKED] = True
    if window < _SHORT:
        words = "the context of model %s has %d tokens, too few for tools; %s"
        _log.warning(words, route.model, window, _advice(route))


def _advice(route: BackendRoute) -> str:
    if route.backend.settings.kind == "ollama":
        return f"set models.{route.model}.defaults: {{num_ctx: 32768}}"
    return f"start backend {route.backend.name} with a longer one (`gateway doctor` says how)"
