"""Extend deadlines that a busy machine misses: of the program, and of clients that open a WebSocket.

A test of such a deadline sets it itself.
"""

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
    from websockets.asyncio import client  # a run of unit tests has no use for it
    from websockets.sync.client import connect

    for module, name in _SHORT.items():
        setattr(import_module(module), name, DEADLINE)
    for opens in (client.connect.__init__, connect):
        opens.__kwdefaults__["open_timeout"] = DEADLINE
