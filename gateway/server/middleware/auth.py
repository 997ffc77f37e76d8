"""Authenticate API keys, and delay clients that send wrong ones.  Only SHA-256 digests of keys are kept.

The delay grows with each wrong key of a client's network (`client_network`).
"""

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Awaitable, Callable, MutableMapping
from ipaddress import IPv6Address, IPv6Network, ip_address
from typing import Any

from msgspec import Struct
from starlette.requests import HTTPConnection

from gateway.config import ApiKey, Config, Scope, key_digest
from gateway.errors import BadRequest, Forbidden, RateLimited, Unauthorized
from gateway.server.http.request_reader import get_header
from gateway.server.middleware.origin_check import OriginCheck
from gateway.server.observability.request_record import set_key_name

LONGEST = 5.0  # seconds that an answer waits
_FREE = 5  # failures that are answered at once,
_SHORTEST = 0.1  # and seconds that the next one waits; each one after it twice as long
_WORST = 12.0  # failures beyond which nothing gets worse
_FORGIVEN = 20.0  # seconds in which one of them is forgotten
_PLACES = 16  # answers of a client that wait at a time,
_ALL_PLACES = 256  # and of all clients: beyond it no response waits, as waiting ones take places of others
_CLIENTS = 10_000  # that are remembered
_SILENCE = 60.0  # seconds between two words about a client
_ADDRESS = 64  # characters of an address that is none
_log = logging.getLogger("gateway")
_TOO_MANY = "Too many wrong API keys came from your address, and are yet to be answered: try again later."
_NO_KEY = "You didn't provide an API key. Send it in the header 'Authorization: Bearer YOUR_KEY'."
_NO_SCOPE = "The key '{}' is not for this: it has no scope '{}'."
_NO_ENDPOINT = "The key '{}' may not use the endpoint '{}'."
_NO_MODEL = "The key '{}' may not use the model '{}'."


class _FailureRecord(Struct):
    """failures: those that are not forgotten at the time of the last one; untold: those since the last word."""

    failures: float = 0.0
    last: float = 0.0
    unlogged: int = 0
    silent_until: float = 0.0


class Tarpit:
    """clients: how many are remembered; beyond that the one that failed least recently is forgotten."""

    def __init__(self, clients: int = _CLIENTS) -> None:
        self._clients = clients
        self._records: dict[str, _FailureRecord] = {}  # the one that failed last is the last
        self._waiting: Counter[str] = Counter()

    def is_full(self, client: str) -> bool:
        """Return True if one more waiting response would tell a client more than it may know."""
        return self._waiting[client] >= _PLACES

    @property
    def is_empty(self) -> bool:
        """Return True if no response waits."""
        return not self._waiting

    def register_failure(self, client: str, now: float) -> float:
        """Count a failure; return the seconds that its response waits.  Call `leave` at its end."""
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
        self._waiting[client] -= 1
        if not self._waiting[client]:
            del self._waiting[client]

    def failures_to_log(self, client: str, now: float) -> int:
        """How often one that has just failed did so since this was asked last; 0 where that is too recent."""
        record = self._records[client]
        if now < record.silent_until:
            return 0
        told, record.unlogged, record.silent_until = record.unlogged, 0, now + _SILENCE
        return told


def client_network(address: str) -> str:
    """Whose address it is: an IPv4 address, or the /64 of an IPv6 address, as that is what one client has."""
    try:
        found = ip_address(address)
    except ValueError:
        return address[:_ADDRESS]  # whatever a proxy has written
    if not isinstance(found, IPv6Address):
        return str(found)
    return str(found.ipv4_mapped or IPv6Network((int(found) >> 64 << 64, 64)))


def _delay(failures: float) -> float:
    return 0.0 if failures <= _FREE else min(_SHORTEST * 2 ** (failures - _FREE - 1), LONGEST)


class AuthThrottle:
    """Of one process, whatever its configuration.  `clock` is in seconds, as is what `sleep` is given."""

    def __init__(
        self, clock: Callable[[], float] = time.monotonic, sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
    ) -> None:
        self._clock, self._sleep = clock, sleep
        self._tarpit = Tarpit()

    def reject_if_blocked(self, http: HTTPConnection) -> None:
        """Raise RateLimited for one whose key is not even looked at, as too many of its wrong ones wait."""
        if not self._tarpit.is_empty and self._tarpit.is_full(_client(http)):
            raise RateLimited(_TOO_MANY, LONGEST, {})

    async def delay_failure(self, http: HTTPConnection) -> None:
        """Return when one that has shown a wrong key may be told so."""
        client, now = _client(http), self._clock()
        seconds = self._tarpit.register_failure(client, now)
        try:
            if times := self._tarpit.failures_to_log(client, now):
                _log.warning("wrong API keys came from %a: %d since the last word of them", client, times)
            await self._sleep(seconds)
        finally:
            self._tarpit.release(client)


def _client(http: HTTPConnection) -> str:
    return client_network(http.client.host if http.client else "")


class Authenticator:
    """Knows the keys only as digests, and finds the one that was shown by its digest, however many there are.

    The time that takes says nothing of the keys: a dict compares only texts of the same 64-bit hash, which is made
    with a secret of the process, so that being nearly right is like being quite wrong; and they are digests, not keys.
    """

    def __init__(self, config: Config, strangers: AuthThrottle) -> None:
        auth, self._pages = config.auth, OriginCheck(config)
        self._keys = {known.get_secret_value(): key for key in auth.keys for known in key.key}
        self._strangers = strangers

    async def authenticate(self, http: HTTPConnection, scope: Scope = "inference") -> ApiKey | None:
        """Return the client's key; None without keys, where the client must not be a foreign web page.

        Raises Unauthorized, after a while if that happens often; or RateLimited or Forbidden.
        """
        if not self._keys:
            self._pages.check_origin(http)
            self._pages.check_host(http)
            return None
        shown = _shown(http.scope)
        self._strangers.reject_if_blocked(http)
        key = self._keys.get(key_digest(shown))
        if not key:
            await self._strangers.delay_failure(http)
            raise Unauthorized(f"Incorrect API key provided: {_masked(shown)}.")
        if scope not in key.scopes:
            raise Forbidden(_NO_SCOPE.format(key.name, scope), code="scope_not_allowed")
        _allow_endpoint(key, http.scope["path"])
        set_key_name(http.scope, key.name)
        return key

    async def authenticate_tenant(self, http: HTTPConnection) -> str:
        """Return the owner of the client's data: the name of its key, "" without keys."""
        key = await self.authenticate(http)
        return key.name if key else ""


def may_use_model(key: ApiKey | None, text: str, model: str) -> bool:
    """True if the key is for the name that was asked for or for the model that it means."""
    return key is None or key.models is None or text in key.models or model in key.models


def require_model(key: ApiKey | None, text: str, model: str) -> None:
    """Raise Forbidden if the key is not for this model."""
    if key and not may_use_model(key, text, model):
        raise Forbidden(_NO_MODEL.format(key.name, text), code="model_not_allowed", param="model")


def _allow_endpoint(key: ApiKey, path: str) -> None:
    """Raise Forbidden if the key is not for this path: the one that routes are found by, decoded and nothing more."""
    if key.endpoints is not None and not any(f"{path}/".startswith(f"{one}/") for one in key.endpoints):
        raise Forbidden(_NO_ENDPOINT.format(key.name, path), code="endpoint_not_allowed")


def _shown(scope: MutableMapping[str, Any]) -> str:
    """The key in the headers; raises Unauthorized where there is none, and BadRequest where there are two."""
    keys = 0
    for name, _ in scope["headers"]:
        keys += name == b"authorization"
    if keys > 1:
        raise BadRequest("There is more than one 'Authorization' header: send one.", code="invalid_value")
    scheme, _, shown = (get_header(scope, b"authorization") or "").partition(" ")
    shown = shown.strip() if scheme.lower() == "bearer" else get_header(scope, b"api-key") or ""
    if not shown:
        raise Unauthorized(_NO_KEY)
    return shown


def _masked(key: str) -> str:
    return f"{key[:3]}…{key[-4:]}" if len(key) > 16 else "…"
