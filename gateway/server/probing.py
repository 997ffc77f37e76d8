"""Probe backends, so that failed ones come back soon, and no request has to find out that one has failed."""

import asyncio
import random

from gateway.server.backend import Backend

_JITTER = 0.1  # so that many gateways do not ask at once


async def probe_forever(backend: Backend, *, always: bool) -> None:
    """Every `probe_seconds`; while nothing is wrong with it only if `always`."""
    clock = asyncio.get_running_loop().time
    while seconds := backend.probe_seconds:
        await asyncio.sleep(seconds * random.uniform(1 - _JITTER, 1 + _JITTER))
        if always or backend.gate.health.state(clock()) != "closed":
            backend.gate.probed(well=await backend.alive())
