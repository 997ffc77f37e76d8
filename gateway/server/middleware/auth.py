"""Authenticate API keys, and delay clients that send wrong ones.  Only SHA-256 digests of keys are kept.

The delay grows with each wrong key of a client's network (`client_network`).
"""

import asyncio
import logging
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, MutableMapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from ipaddress import IPv6Address, IPv6Network, ip_address
from typing import Any

from starlette.requests import HTTPConnection, Request

from gateway.config import ApiKey, Config, Scope, key_digest
from gateway.config.stored_keys import StoredApiKey
from gateway.errors import BadRequest, Forbidden, RateLimited, Unauthorized
from gateway.server.http.request_reader import header_dict
from gateway.server.middleware.origin_check import OriginCheck
from gateway.server.middleware.proxy_users import PREFIX, ProxyUsers
from gateway.server.middleware.stored_keys import StoredKeys
from gateway.server.observability.request_record import set_key_name
from gateway.store.database import Database
from gateway.warnings import safe_name

BATCH_TENANT = "gateway.batch_tenant"  # in the scope of a request of a batch: its owner; no client can set it
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
_NO_KEY = (
    "You didn't provide an API key. Send it in the header 'Authorization: Bearer YOUR_KEY' or 'x-api-key: YOUR_KEY'."
)
_KEY_GONE = "The API key '{0}' of the {1} is no longer valid. Create the {1} with another key."
_NO_SCOPE = "API key '{}' lacks the scope '{}', which this endpoint requires."
_NO_USER_SCOPE = "User '{}' lacks the scope '{}': no group of the user has it in 'auth.header.scopes'."
_NO_ENDPOINT = "API key '{}' is not allowed to use the endpoint '{}'."
_NO_MODEL = "API key '{}' is not allowed to use the model '{}'."
_NO_OTHER_MODEL = "'{}' names the model '{}', which the API key '{}' is not allowed to use. Leave it out."


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


class Authenticator:
    """Authenticate requests by the SHA-256 digest of their API key.

    The time of the lookup reveals nothing about the keys.  A dict compares only texts with the same 64-bit hash, which
    depends on a secret of the process.  So a nearly correct key takes no longer than a wrong one, and only digests are
    compared.
    """

    def __init__(self, config: Config, throttle: AuthThrottle) -> None:
        auth, self._pages = config.auth, OriginCheck(config)
        self._keys = {known.get_secret_value(): key for key in auth.keys for known in key.key}
        self._names = {key.name: key for key in auth.keys}
        self._needs_key, self._has_stored_keys, self._strangers = auth.needs_key, auth.stored_keys, throttle
        self._users = ProxyUsers(auth.header, auth.groups) if auth.header else None
        self.stored: StoredKeys | None = None

    @asynccontextmanager
    async def following(self, store: Database) -> AsyncIterator[None]:
        """Accept the keys of the store as well within the block, if the configuration says so."""
        if not self._has_stored_keys:
            yield
            return
        self.stored = StoredKeys(store, self._names)
        async with self.stored.following():
            yield

    async def authenticate(self, http: HTTPConnection, scope: Scope = "inference") -> ApiKey | None:
        """Return the client's key; None without keys, where the client must not be a foreign web page.

        Raises Unauthorized, after a delay for repeated failures; or BadRequest, RateLimited or Forbidden.
        """
        if not self._needs_key and BATCH_TENANT in http.scope:
            return None
        if not self._needs_key:
            self._pages.check(http)
            return None
        key = self.signed_in(http) if self._users else None
        if BATCH_TENANT in http.scope:
            key = await self._owner(http.scope[BATCH_TENANT], "batch")
        elif key:
            self._pages.check_own_origin(http)
        else:
            key = await self._key_of(http)
        if scope not in key.scopes:
            raise Forbidden(_scope_text(key, scope), code="scope_not_allowed")
        _allow_endpoint(key, http.scope["path"])
        set_key_name(http.scope, key.name)
        return key

    def signed_in(self, http: HTTPConnection) -> ApiKey | None:
        """Return the user whom a trusted proxy has signed in; None without one, or if the request has a key."""
        return self._users.find(http.scope) if self._users and not _credential(http.scope) else None

    async def _key_of(self, http: HTTPConnection) -> ApiKey:
        if not (shown := _credential(http.scope)):
            raise Unauthorized(_NO_KEY)
        self._strangers.reject_if_blocked(http)
        digest = key_digest(shown)
        key = self._keys.get(digest)
        if not key and self.stored:
            key = await self.stored.find(digest)
        if not key:
            await self._strangers.delay_failure(http)
            raise Unauthorized(f"Incorrect API key provided: {_masked(shown)}.")
        return key

    async def job_owner(self, tenant: str) -> ApiKey | None:
        """Return the key of a response that goes on without its client; None if it has none.

        Raise Unauthorized if the key is no longer valid.
        """
        keyless = not tenant or (self._users and tenant.startswith(PREFIX))
        return None if keyless or not self._needs_key else await self._owner(tenant, "response")

    async def _owner(self, tenant: str, work: str) -> ApiKey:
        """Return the key that stored work belongs to; raise Unauthorized if it is no longer valid."""
        key = await self.key_named(tenant)
        if not key or (isinstance(key, StoredApiKey) and not key.is_valid(time.time())):
            raise Unauthorized(_KEY_GONE.format(tenant, work))
        return key

    async def key_named(self, name: str) -> ApiKey | None:
        """Return the key of this name, or None."""
        key = self._names.get(name)
        return key or (await self.stored.named(name) if self.stored else None)


async def authenticate(request: Request, scope: Scope = "inference") -> ApiKey | None:
    """Return the client's key, as the application's Authenticator does."""
    authenticator: Authenticator = request.app.state.authenticator
    return await authenticator.authenticate(request, scope)


async def authenticate_tenant(request: Request) -> str:
    """Return the owner of the client's data: the name of its key, "" without keys."""
    key = await authenticate(request)
    return key.name if key else ""


def may_use_model(key: ApiKey | None, text: str, model: str) -> bool:
    """Return True if the key allows the requested name, or the model behind it."""
    return key is None or key.models is None or text in key.models or model in key.models


def require_model(key: ApiKey | None, text: str, model: str, others: Iterable[tuple[str, str]] = ()) -> None:
    """Raise Forbidden if the key does not allow this model, or another one that its request names.

    others: the other ones, each behind the field that names it.
    """
    if key is None or key.models is None:
        return
    if not may_use_model(key, text, model):
        raise Forbidden(_NO_MODEL.format(key.name, text), code="model_not_allowed", param="model")
    for field, name in others:
        if name != text and name not in key.models:
            message = _NO_OTHER_MODEL.format(safe_name(field), safe_name(name), key.name)
            raise Forbidden(message, code="model_not_allowed", param=field)


def _allow_endpoint(key: ApiKey, path: str) -> None:
    """Raise Forbidden if the key does not allow this path: the decoded path, as the router uses it."""
    if key.endpoints is not None and not any(f"{path}/".startswith(f"{one}/") for one in key.endpoints):
        raise Forbidden(_NO_ENDPOINT.format(key.name, path), code="endpoint_not_allowed")


def _credential(scope: MutableMapping[str, Any]) -> str:
    """Return the key in the headers, "" without one; raise BadRequest for several."""
    headers = header_dict(scope)
    if len(headers) < len(scope["headers"]):
        keys = [name for name, _ in scope["headers"]].count(b"authorization")
        if keys > 1:
            raise BadRequest(f"The request has {keys} 'Authorization' headers. Send exactly one.", code="invalid_value")
    if key := headers.get(b"x-api-key"):
        return key.decode("latin-1")
    scheme, _, token = headers.get(b"authorization", b"").partition(b" ")
    if scheme.lower() == b"bearer" and (bearer := token.decode("latin-1").strip()):
        return bearer
    return headers.get(b"api-key", b"").decode("latin-1")


def _scope_text(key: ApiKey, scope: Scope) -> str:
    if key.name.startswith(PREFIX):
        return _NO_USER_SCOPE.format(key.name.removeprefix(PREFIX), scope)
    return _NO_SCOPE.format(key.name, scope)


def _masked(key: str) -> str:
    return f"{key[:3]}…{key[-4:]}" if len(key) > 16 else "…"
