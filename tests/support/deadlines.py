"""Extend deadlines of the program that a busy machine misses.  A test of such a deadline sets it itself."""

from functools import cache
from importlib import import_module

from support.wait import DEADLINE

_SHORT = {
    "gateway.server.admin.overview": "_MAX_WAIT",
    "gateway.server.limits.redis_counter": "_WAIT",
    "gateway.server.routes.readiness": "_SECONDS",
    "gateway.server.upstream.discovery": "SECONDS",
    "gateway.server.upstream.model_metadata": "_WAIT",
}


@cache
def extend():
    """Extend them in this process."""
    for module, name in _SHORT.items():
        setattr(import_module(module), name, DEADLINE)
