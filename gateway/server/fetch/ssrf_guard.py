"""Send requests to URLs that clients and models choose, to public addresses only.

The gateway resolves the name of a URL, each of its addresses must be allowed, and the connection goes to an address
that was checked, so that no name can mean something else a moment later.  A redirect begins all of this again.  All
errors on the way are one failure: a client must not learn from it what is behind an address.
"""

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterable, Iterator
from contextlib import aclosing, asynccontextmanager, contextmanager
from functools import cache
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from socket import SOCK_STREAM

from gateway import __version__
from gateway.server import httpx

AddressFilter = Callable[[str, int], bool]

# Addresses where clouds give machines their secrets; never a place of images, in any network.
_METADATA = tuple(
    map(
        ip_address,
        (
            "169.254.169.254",
            "169.254.170.2",  # a container's, at Amazon; the next one and fd00:ec2::23 are a pod's
            "169.254.170.23",
            "fd00:ec2::23",
            "fd00:ec2::254",
            "fd20:ce::254",  # Google's
            "100.100.100.200",  # Alibaba's
            "168.63.129.16",  # Azure's
            "192.0.0.192",  # Oracle's
        ),
    )
)
# Addresses of the IANA registries for special purposes that `is_global` counts as public, in one version of Python or
# another.
_SPECIAL_4 = tuple(
    map(
        IPv4Network,
        (
            "168.63.129.16/32",  # Azure's
            "192.0.0.0/24",  # protocols
            "192.88.99.0/24",  # once relays of 6to4
        ),
    )
)
_GLOBAL_6 = IPv6Network("2000::/3")  # all that is given out; the rest is special, NAT64 and mapped IPv4 included
_SPECIAL_6 = tuple(
    map(
        IPv6Network,
        (
            "2001::/23",  # protocols; Teredo, which has an IPv4 address inside
            "2001:db8::/32",
            "2002::/16",  # 6to4, which has one as well
            "3fff::/20",
        ),
    )
)

Resolver = Callable[[str, int], Awaitable[list[str]]]
UrlFilter = Callable[[str], bool]  # whether a redirect may lead to this URL
_PORTS = {"http": 80, "https": 443}
_LAST_PORT = 65535
_REDIRECTS = 3
_TIMEOUT = {"connect": 3.0, "read": None, "write": None, "pool": None}  # to one address, as there may be others
_HEADERS = {"accept-encoding": "identity", "user-agent": f"gateway/{__version__}"}  # what is packed can grow


def is_public(address: IPv4Address | IPv6Address) -> bool:
    """True if the address is that of one machine on the internet, and is written in no other way than its own."""
    if not address.is_global or address.is_multicast or address.is_reserved:
        return False
    if isinstance(address, IPv4Address):
        return not any(address in network for network in _SPECIAL_4)
    return address in _GLOBAL_6 and not any(address in network for network in _SPECIAL_6)


def address_filter(networks: Iterable[str], ports: Collection[int]) -> AddressFilter:
    """Tells whether one may connect to a port of an address: one of these of a public one, or any of these networks."""
    known = [ip_network(network) for network in networks]

    def check(text: str, port: int) -> bool:
        address = ip_address(text.partition("%")[0])  # the zone makes no other address of it
        if address in _METADATA:
            return False
        return (port in ports and is_public(address)) or any(address in network for network in known)

    return check


class FetchFailed(Exception):
    """There is no answer, or none that may be asked for."""


def any_url(_: str) -> bool:
    """A Within for which every URL is."""
    return True


class SsrfGuard:
    """resolve: the addresses of a name, for a port; tls: what the certificates of servers are checked by."""

    def __init__(
        self, allowed: AddressFilter, resolve: Resolver | None = None, tls: ssl.SSLContext | None = None
    ) -> None:
        self._allowed, self._resolve, self._tls = allowed, resolve or resolved, tls or _tls()

    @asynccontextmanager
    async def answer(
        self, request: "httpx.Request", within: UrlFilter = any_url, redirects: int = _REDIRECTS
    ) -> "AsyncIterator[httpx.Response]":
        """The answer to a request, to be read as it comes; time and size are for the caller to limit.

        Redirects of a GET are followed, to what is `within`, with no header but `accept` and from https to nothing
        else.  Raises Unreachable, for what goes wrong in its block as well.
        """
        with fetch_errors():
            async with self._sent(request) as answer:
                if request.method != "GET" or not answer.has_redirect_location:
                    yield answer
                    return
            request = _redirected(request, answer, redirects)
            if not within(str(request.url)):
                raise FetchFailed
            async with self.answer(request, within, redirects - 1) as answer:
                yield answer

    @asynccontextmanager
    async def _sent(self, request: "httpx.Request") -> "AsyncIterator[httpx.Response]":
        """To the first of the addresses that takes a connection, over a transport that is used once.

        Connections are not kept: another name may have the same address, and it has to show its own certificate.
        """
        addresses = await self._addresses(request.url)
        async with (
            httpx.AsyncHTTPTransport(verify=self._tls, trust_env=False) as transport,
            aclosing(await _first(transport, request, addresses)) as answer,
        ):
            yield answer

    async def _addresses(self, url: "httpx.URL") -> list[str]:
        if url.scheme not in _PORTS or url.userinfo or (url.port or 0) > _LAST_PORT:
            raise FetchFailed
        port = _PORTS[url.scheme] if url.port is None else url.port
        found = await self._resolve(url.raw_host.decode(), port)
        if not all(self._allowed(address, port) for address in found):
            raise FetchFailed
        return found


async def resolved(host: str, port: int) -> list[str]:
    """The addresses of a name, each once; OSError if it has none."""
    found = await asyncio.get_running_loop().getaddrinfo(host, port, type=SOCK_STREAM)
    return list(dict.fromkeys(str(address[0]) for *_, address in found))


@contextmanager
def fetch_errors() -> Iterator[None]:
    """Turn failures of URLs, names, connections and servers into FetchFailed."""
    try:
        yield
    except (httpx.HTTPError, httpx.InvalidURL, OSError, ValueError):
        raise FetchFailed from None


def _redirected(request: "httpx.Request", answer: "httpx.Response", redirects: int) -> "httpx.Request":
    url = request.url.join(answer.headers["location"])
    if not redirects or (request.url.scheme == "https" and url.scheme != "https"):
        raise FetchFailed
    accept = request.headers.get("accept")
    return httpx.Request("GET", url, headers={"accept": accept} if accept else None)


async def _first(
    transport: "httpx.AsyncHTTPTransport", request: "httpx.Request", addresses: list[str]
) -> "httpx.Response":
    """The answer under the URL's name, of the first address that can be connected to."""
    headers = httpx.Headers(_HEADERS)
    headers.update(request.headers)
    extensions = {"timeout": _TIMEOUT, "sni_hostname": request.url.raw_host.decode()}
    failure: Exception = FetchFailed()
    for address in addresses:
        url = request.url.copy_with(host=address)
        there = httpx.Request(request.method, url, headers=headers, stream=request.stream, extensions=extensions)
        try:
            return await transport.handle_async_request(there)
        except (httpx.ConnectError, httpx.ConnectTimeout) as error:
            failure = error
    raise failure


@cache
def _tls() -> ssl.SSLContext:
    """Takes long to make."""
    return ssl.create_default_context()
