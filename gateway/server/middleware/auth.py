"""Authenticate API keys, and protect against web pages.  Only SHA-256 digests of keys are kept.

A browser lets any page send requests, also to a gateway on the user's own machine.  A page has no key, and cannot read
the response unless `server.cors` allows its origin.  Without keys, a page could still use the models.  Under a host
name of its own that suddenly resolves to this machine (DNS rebinding), it could also read every response.
"""

import re
import time
from collections.abc import AsyncIterator, Iterable, MutableMapping
from contextlib import asynccontextmanager
from functools import lru_cache
from ipaddress import ip_address
from typing import Any
from urllib.parse import urlsplit

from starlette.requests import HTTPConnection, Request

from gateway.config import ApiKey, Config, Scope, key_digest
from gateway.config.stored_keys import StoredApiKey
from gateway.errors import BadRequest, Forbidden, Unauthorized
from gateway.server.http.request_reader import get_header, header_dict
from gateway.server.middleware.auth_throttle import AuthThrottle
from gateway.server.middleware.proxy_users import PREFIX, ProxyUsers
from gateway.server.middleware.stored_keys import StoredKeys
from gateway.server.observability.request_record import set_key_name
from gateway.store.database import Database
from gateway.warnings import safe_name

BATCH_TENANT = "gateway.batch_tenant"  # in the scope of a request of a batch: its owner; no client can set it
_NO_KEY = (
    "You didn't provide an API key. Send it in the header 'Authorization: Bearer YOUR_KEY' or 'x-api-key: YOUR_KEY'."
)
_KEY_GONE = "The API key '{0}' of the {1} is no longer valid. Create the {1} with another key."
_NO_SCOPE = "API key '{}' lacks the scope '{}', which this endpoint requires."
_NO_USER_SCOPE = "User '{}' lacks the scope '{}': no group of the user has it in 'auth.header.scopes'."
_NO_ENDPOINT = "API key '{}' is not allowed to use the endpoint '{}'."
_NO_MODEL = "API key '{}' is not allowed to use the model '{}'."
_NO_OTHER_MODEL = "'{}' names the model '{}', which the API key '{}' is not allowed to use. Leave it out."
# By the scheme of a request: the schemes of the gateway's own pages.  A proxy may terminate TLS.
_OWN = {"ws": ("http", "https"), "http": ("http", "https"), "wss": ("https",), "https": ("https",)}
# Suffixes of names that no outsider can own.  Any machine in the network can take a name with .local (mDNS), and a DNS
# server may resolve .internal freely.
_PRIVATE = (".localhost", ".home.arpa")
# Installed applications and browser extensions have schemes of their own.
_APPLICATION = re.compile(r"(?!https?:|ftp:)[a-z][a-z0-9+.-]*://.")
_STRANGER = "Web pages of '{}' may not call the gateway: 'server.cors' does not list this origin."
_FOREIGN = "Web pages of '{}' may not use the proxy's sign-in. Send an API key instead."
_NAME = (
    "The gateway has no API keys and does not accept the host name '{}', which a web page may have forged. Use "
    "localhost or an IP address, add an origin with this name to 'server.cors', set 'auth.keys', or set "
    "'auth.open: true' to admit every client."
)


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


class OriginCheck:
    """Check the origin and the host of requests from browsers; requests without an origin pass."""

    def __init__(self, config: Config) -> None:
        self._allowed = frozenset(config.server.cors)
        self._guarded = not (config.auth.needs_key or config.auth.open)
        self._names = frozenset(_name(origin.partition("://")[2]) for origin in self._allowed)

    def check(self, http: HTTPConnection) -> None:
        """Raise Forbidden for a page of another origin than the gateway's own and the allowed ones.

        Without keys, also if an outsider may own the requested host name.
        """
        headers = header_dict(http.scope)
        if b"origin" in headers:
            self.check_origin(http)
        if self._guarded:
            self._check_host(headers.get(b"host", b"").decode("latin-1"))

    def check_origin(self, http: HTTPConnection) -> None:
        """Raise Forbidden for a page of another origin than the gateway's own and the allowed ones."""
        origin = get_header(http.scope, b"origin")
        if origin is None or not self._allowed.isdisjoint((origin, "*")) or _APPLICATION.match(origin):
            return
        if not _is_own(http, origin):
            raise Forbidden(_STRANGER.format(origin), code="origin_not_allowed")

    def check_own_origin(self, http: HTTPConnection) -> None:
        """Raise Forbidden for a page of another origin than the gateway's own.

        A browser sends the cookie of a proxy's sign-in along with the requests of other pages.
        """
        origin = get_header(http.scope, b"origin")
        if origin is not None and not _is_own(http, origin):
            raise Forbidden(_FOREIGN.format(origin), code="origin_not_allowed")

    def _check_host(self, host: str) -> None:
        name = _name(host)
        if name is None or not (name in self._names or _is_private(name)):
            raise Forbidden(_NAME.format(host), code="host_not_allowed")


def _is_own(http: HTTPConnection, origin: str) -> bool:
    host, schemes = get_header(http.scope, b"host"), _OWN[http.scope.get("scheme", "http")]
    return bool(host) and origin in [f"{scheme}://{host}" for scheme in schemes]


@lru_cache(1000)
def _name(host: str) -> str | None:
    """Return the host without the port; None if it is invalid."""
    try:
        return urlsplit(f"//{host}").hostname or ""
    except ValueError:
        return None


@lru_cache(1000)
def _is_private(name: str) -> bool:
    """Return True if no public host can have this name: an address, or a name of a private network."""
    if "." not in name or name.endswith(_PRIVATE):
        return True
    try:
        ip_address(name)
    except ValueError:
        return False
    return True
