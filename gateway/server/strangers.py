"""Delay responses to clients that send wrong API keys; the delay grows with each one."""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable

from starlette.requests import HTTPConnection

from gateway.errors import RateLimited
from gateway.tarpit import LONGEST, Tarpit, client_network

_log = logging.getLogger("gateway")
_TOO_MANY = "Too many wrong API keys came from your address, and are yet to be answered: try again later."


class AuthThrottle:
    """Of one process, whatever its configuration.  `clock` is in seconds, as is what `sleep` is given."""

    def __init__(
        self, clock: Callable[[], float] = time.monotonic, sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
    ) -> None:
        self._clock, self._sleep = clock, sleep
        self._tarpit = Tarpit()

    def check(self, http: HTTPConnection) -> None:
        """Raise RateLimited for one whose key is not even looked at, as too many of its wrong ones wait."""
        if not self._tarpit.empty and self._tarpit.full(_client(http)):
            raise RateLimited(_TOO_MANY, LONGEST, {})

    async def hold(self, http: HTTPConnection) -> None:
        """Return when one that has shown a wrong key may be told so."""
        client, now = _client(http), self._clock()
        seconds = self._tarpit.enter(client, now)
        try:
            if times := self._tarpit.to_tell(client, now):
                _log.warning("wrong API keys came from %a: %d since the last word of them", client, times)
            await self._sleep(seconds)
        finally:
            self._tarpit.leave(client)


def _client(http: HTTPConnection) -> str:
    return client_network(http.client.host if http.client else "")
