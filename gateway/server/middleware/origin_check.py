"""Protect against web pages: a browser lets any page send requests, also to a gateway on the user's own machine.

A page has no key, and cannot read the response unless `server.cors` allows its origin.  Without keys, a page could
still use the models.  Under a host name of its own that suddenly resolves to this machine (DNS rebinding), it could
also read every response.
"""

import re
from functools import lru_cache
from ipaddress import ip_address
from urllib.parse import urlsplit

from starlette.requests import HTTPConnection

from gateway.config import Config
from gateway.errors import Forbidden
from gateway.server.http.request_reader import get_header, header_dict

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
