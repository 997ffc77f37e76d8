"""Decide whether the gateway is ready, by the checks that `server.ready` names."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from typing import Any

from gateway.config import Config, TlsSettings
from gateway.errors import StoreFailed
from gateway.installation import missing_extras
from gateway.server.limits import RateLimiter
from gateway.server.upstream.backend import Backend
from gateway.store.database import Database

_SECONDS = 1.0  # seconds that a caller waits for a check
_KNOWN = 1.0  # seconds that the result of a check of a server stays valid
_OK, _UNREACHABLE = "ok", "unreachable"


class SharedCheck:
    """Check a server for all callers at once, at most once a second: anyone may call `/ready`.

    check: raises StoreFailed; it may take longer than a caller waits.  clock: seconds.
    """

    def __init__(self, check: Callable[[], Awaitable[object]], clock: Callable[[], float] = time.monotonic) -> None:
        self._check, self._clock = check, clock
        self._task: asyncio.Task[str] | None = None
        self._valid_until = 0.0

    async def state(self) -> str:
        """Return `ok`, or `unreachable` if the check fails or is not complete in time."""
        if not self._task or (self._task.done() and self._clock() >= self._valid_until):
            self._task = asyncio.create_task(self._run())
        done, _ = await asyncio.wait([self._task], timeout=_SECONDS)
        return self._task.result() if done else _UNREACHABLE

    async def _run(self) -> str:
        try:
            await self._check()
        except StoreFailed:
            return _UNREACHABLE
        finally:
            self._valid_until = self._clock() + _KNOWN
        return _OK


class Readiness:
    """The checks of one application."""

    def __init__(self, config: Config, backends: Mapping[str, Backend], store: Database, limits: RateLimiter) -> None:
        self._required, self._tls, self._backends, self._store = config.server.ready, config.server.tls, backends, store
        self._servers = {"store": SharedCheck(store.ping), "redis": SharedCheck(limits.ping)}
        self._extras = "missing" if [*missing_extras(config)] else _OK

    async def state(self) -> tuple[bool, dict[str, Any]]:
        """Return whether the gateway is ready, and the states by which it decides."""
        states = [*await asyncio.gather(*map(_backend_state, self._backends.values()))]
        well = {"any_backend": _OK in states, "all_backends": all(state == _OK for state in states)}
        found: dict[str, str] = {name: await self._state_of(name) for name in self._required if name not in well}
        well |= {name: state == _OK for name, state in found.items()}
        if self._store.lost:
            found["store"] = "lost"
        is_ready = not self._store.lost and all(well[name] for name in self._required)
        return is_ready, {"backends": dict(zip(self._backends, states, strict=True)), **found}

    async def _state_of(self, name: str) -> str:
        if name == "extras":
            return self._extras
        if name == "certificate":
            return await asyncio.to_thread(_certificate_state, self._tls)
        return await self._servers[name].state()


async def _backend_state(backend: Backend) -> str:
    with suppress(TimeoutError):
        async with asyncio.timeout(_SECONDS):
            return _OK if await backend.alive() else _UNREACHABLE
    return _UNREACHABLE


def _certificate_state(tls: TlsSettings | None) -> str:
    """Return `invalid` for a certificate that cannot be read, or outside of its dates."""
    if not tls:
        return _OK
    from gateway.server.http.tls import certificate_validity  # noqa: PLC0415 - most gateways have no certificate

    with suppress(OSError):
        return _OK if certificate_validity(tls).valid else "invalid"
    return "invalid"
