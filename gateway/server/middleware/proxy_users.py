"""Admit users whom a trusted proxy has signed in, by the headers of `auth.header`.

A middleware marks the requests of the proxy before another one replaces the proxy's address by that of the client.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, MutableMapping
from ipaddress import ip_address, ip_network
from typing import Any

from starlette.types import ASGIApp, Receive, Scope, Send

from gateway.config import ApiKey
from gateway.config.auth import HeaderSettings
from gateway.config.limits import RateLimitSettings
from gateway.errors import BadRequest

PREFIX = "sso:"  # of the tenant; no API key has a name with a colon
_MARK = "gateway.trusted_proxy"
_ALL = "*"
_VALID = re.compile(r"[!-~]{1,200}").fullmatch
_FREE = RateLimitSettings()
_SEVERAL = "The request has {} '{}' headers. The proxy must replace those of clients by one."
_NO_NAME = "The header '{}' of the proxy must have 1 to 200 visible ASCII characters without spaces."


def peer_networks(proxies: Iterable[str]) -> Iterator[str]:
    """Yield the networks, and those that IPv4 addresses have at a socket that listens on `::`."""
    for network in map(ip_network, proxies):
        yield str(network)
        if network.version == 4:
            yield f"::ffff:{network.network_address}/{96 + network.prefixlen}"


class TrustedProxyMiddleware:
    """Mark the requests that a trusted proxy sends.  proxies: addresses and networks."""

    def __init__(self, app: ASGIApp, proxies: Iterable[str]) -> None:
        self._app, self._networks = app, [*map(ip_network, proxies)]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        client = scope.get("client")
        if client and self._trusts(client[0]):
            scope[_MARK] = True
        await self._app(scope, receive, send)

    def _trusts(self, host: str) -> bool:
        try:
            address = ip_address(host)
        except ValueError:
            return False
        return any(address in network for network in self._networks)


class ProxyUsers:
    """Find the user of a request.  budgets: the groups that have some, the first of a user's ones applies."""

    def __init__(self, settings: HeaderSettings, budgets: Iterable[str] = ()) -> None:
        self._budgets = tuple(budgets)
        self._user, self._groups = settings.user, settings.groups
        self._scopes: Mapping[str, tuple[Any, ...]] = settings.scopes

    def find(self, scope: MutableMapping[str, Any]) -> ApiKey | None:
        """Return the user as a key with the scopes and the budgets of its groups.

        None without a user, or without a trusted proxy.
        Raises BadRequest for headers that a proxy should not send.
        """
        name = _value(scope, self._user) if _MARK in scope else ""
        if not name:
            return None
        if not _VALID(name):
            raise BadRequest(_NO_NAME.format(self._user), code="invalid_value")
        groups = [_ALL, *(group.strip() for group in _value(scope, self._groups).split(","))]
        scopes = dict.fromkeys(one for group in groups for one in self._scopes.get(group, ()))
        group = next((one for one in self._budgets if one in groups), None)
        return ApiKey.model_construct(name=f"{PREFIX}{name}", key=(), scopes=tuple(scopes), limits=_FREE, group=group)


def _value(scope: MutableMapping[str, Any], header: str) -> str:
    """Return the value of a header, "" without it."""
    values = [value for name, value in scope["headers"] if name == header.encode()]
    if len(values) > 1:
        raise BadRequest(_SEVERAL.format(len(values), header), code="invalid_value")
    return values[0].decode("latin-1").strip() if values else ""
