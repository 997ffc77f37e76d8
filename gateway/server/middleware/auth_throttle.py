"""Delay clients that send wrong API keys.  The delay grows with each wrong key of a client's network."""

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from ipaddress import IPv6Address, IPv6Network, ip_address

from starlette.requests import HTTPConnection

from gateway.errors import RateLimited

LONGEST = 5.0  # seconds that a response is delayed at most
_FREE = 5  # failures without delay
_SHORTEST = 0.1  # seconds of the first delay, which doubles with each further failure
_WORST = 12.0  # failures beyond which the count no longer grows
_FORGIVEN = 20.0  # seconds after which one failure is forgotten
_PLACES = 16  # delayed responses of a client at a time
_ALL_PLACES = 256  # and of all clients; more are not delayed, as delayed requests use up the concurrency limit
_CLIENTS = 10_000  # clients with a record
_SILENCE = 60.0  # seconds between two log messages about a client
_ADDRESS = 64  # characters kept of an invalid address
_log = logging.getLogger("gateway")
_TOO_MANY = f"Too many requests with a wrong API key from your address are pending. Retry after {LONGEST:g} s."


@dataclass(slots=True)
class _FailureRecord:
    """The failures of a client.

    failures: the count at the time of the last one; unlogged: failures since the last log message.
    """

    failures: float = 0.0
    last: float = 0.0
    unlogged: int = 0
    silent_until: float = 0.0


class Tarpit:
    """Compute the delays of clients with wrong keys.

    clients: number of records; beyond that the client whose last failure is oldest is forgotten.
    """

    def __init__(self, clients: int = _CLIENTS) -> None:
        self._clients = clients
        self._records: dict[str, _FailureRecord] = {}  # in the order of their last failures
        self._waiting: Counter[str] = Counter()

    def is_full(self, client: str) -> bool:
        """Return True if the client has 16 delayed responses: more would let it try keys in parallel."""
        return self._waiting[client] >= _PLACES

    @property
    def is_empty(self) -> bool:
        """True if no response is delayed."""
        return not self._waiting

    def register_failure(self, client: str, now: float) -> float:
        """Count a failure; return the seconds to delay its response.  Call `release` after the delay."""
        record = self._records.pop(client, None) or _FailureRecord(last=now)
        left = max(record.failures - (now - record.last) / _FORGIVEN, 0.0)
        record.failures, record.last = min(left + 1, _WORST), now
        record.unlogged += 1
        self._records[client] = record
        if len(self._records) > self._clients:
            del self._records[next(iter(self._records))]
        crowded = self._waiting.total() >= _ALL_PLACES
        self._waiting[client] += 1
        return 0.0 if crowded else _delay(record.failures)

    def release(self, client: str) -> None:
        """End the delay of one response."""
        self._waiting[client] -= 1
        if not self._waiting[client]:
            del self._waiting[client]

    def failures_to_log(self, client: str, now: float) -> int:
        """Return the failures since the last log message; 0 if that was less than a minute ago."""
        record = self._records[client]
        if now < record.silent_until:
            return 0
        unlogged_count, record.unlogged, record.silent_until = record.unlogged, 0, now + _SILENCE
        return unlogged_count


def client_network(address: str) -> str:
    """Return the network of a client: an IPv4 address, or the /64 of an IPv6 address, which one client usually owns."""
    try:
        found = ip_address(address)
    except ValueError:
        return address[:_ADDRESS]  # any text that a proxy has sent
    if not isinstance(found, IPv6Address):
        return str(found)
    return str(found.ipv4_mapped or IPv6Network((int(found) >> 64 << 64, 64)))


def _delay(failures: float) -> float:
    return 0.0 if failures <= _FREE else min(_SHORTEST * 2 ** (failures - _FREE - 1), LONGEST)


class AuthThrottle:
    """Delay clients with wrong keys; one per process, kept across reloads.

    clock: seconds; sleep: called with seconds.
    """

    def __init__(
        self, clock: Callable[[], float] = time.monotonic, sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
    ) -> None:
        self._clock, self._sleep = clock, sleep
        self._tarpit = Tarpit()

    def reject_if_blocked(self, http: HTTPConnection) -> None:
        """Raise RateLimited if too many failed requests of this client are delayed; its key is not checked."""
        if not self._tarpit.is_empty and self._tarpit.is_full(_client(http)):
            raise RateLimited(_TOO_MANY, LONGEST, {})

    async def delay_failure(self, http: HTTPConnection) -> None:
        """Return when a request with a wrong key may get its error."""
        client, now = _client(http), self._clock()
        seconds = self._tarpit.register_failure(client, now)
        try:
            if times := self._tarpit.failures_to_log(client, now):
                _log.warning("requests with a wrong API key from %a: %d since the last report", client, times)
            await self._sleep(seconds)
        finally:
            self._tarpit.release(client)


def _client(http: HTTPConnection) -> str:
    return client_network(http.client.host if http.client else "")
