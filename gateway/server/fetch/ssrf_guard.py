"""Send requests to URLs that clients and models choose, to public addresses only.

The gateway resolves the name of a URL, and each of its addresses must be allowed.  It connects to an address that it
has checked, so a name cannot change its address in between.  A redirect passes the same checks.  All failures raise the
same error: a client must not learn from it what an address hides.
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

# Addresses where clouds serve credentials to machines; never allowed, in any network.
_METADATA = tuple(
    map(
        ip_address,
        (
            "169.254.169.254",
            "169.254.170.2",  # of containers at Amazon; the next one and fd00:ec2::23 are for pods
            "169.254.170.23",
            "fd00:ec2::23",
            "fd00:ec2::254",
            "fd20:ce::254",  # Google
            "100.100.100.200",  # Alibaba
            "168.63.129.16",  # Azure
            "192.0.0.192",  # Oracle
        ),
    )
)
# Networks of addresses that end with an IPv4 address, to which the system or a router sends their packets.
_EMBEDDING = tuple(map(IPv6Network, ("::/96", "::ffff:0:0/96", "64:ff9b::/96")))
# Special-purpose addresses of the IANA registries that `is_global` counts as public in some version of Python.
_SPECIAL_4 = tuple(
    map(
        IPv4Network,
        (
            "168.63.129.16/32",  # Azure
            "192.0.0.0/24",  # protocol assignments
            "192.88.99.0/24",  # former 6to4 relays
        ),
    )
)
_GLOBAL_6 = IPv6Network("2000::/3")  # all assigned addresses; the rest is special, including NAT64 and mapped IPv4
_SPECIAL_6 = tuple(
    map(
        IPv6Network,
        (
            "2001::/23",  # protocol assignments, with Teredo, which embeds an IPv4 address
            "2001:db8::/32",
            "2002::/16",  # 6to4, which embeds one, too
            "3fff::/20",
        ),
    )
)

Resolver = Callable[[str, int], Awaitable[list[str]]]
UrlFilter = Callable[[str], bool]  # returns True if a redirect may lead to this URL
_PORTS = {"http": 80, "https": 443}
_LAST_PORT = 65535
_REDIRECTS = 3
_TIMEOUT = {"connect": 3.0, "read": None, "write": None, "pool": None}  # for one address, as there may be others
_HEADERS = {"accept-encoding": "identity", "user-agent": f"gateway/{__version__}"}  # compressed data can grow


def is_public(address: IPv4Address | IPv6Address) -> bool:
    """Return True for an address of a single host on the internet, and not for one that embeds another address."""
    if not address.is_global or address.is_multicast or address.is_reserved:
        return False
    if isinstance(address, IPv4Address):
        return not any(address in network for network in _SPECIAL_4)
    return address in _GLOBAL_6 and not any(address in network for network in _SPECIAL_6)


def address_filter(networks: Iterable[str], ports: Collection[int]) -> AddressFilter:
    """Return a function that checks an address and a port.

    It allows these ports of public addresses, and all ports of these networks.
    """
    known = [ip_network(network) for network in networks]

    def check(text: str, port: int) -> bool:
        address = ip_address(text.partition("%")[0])  # without the zone, which makes no other address
        if _is_metadata(address):
            return False
        return (port in ports and is_public(address)) or any(address in network for network in known)

    return check


def _is_metadata(address: IPv4Address | IPv6Address) -> bool:
    """Return True for an address of a metadata service, also in an IPv6 address."""
    if isinstance(address, IPv6Address):
        embedded = any(address in network for network in _EMBEDDING)
        address = IPv4Address(int(address) & 0xFFFFFFFF) if embedded else address.sixtofour or address
    return address in _METADATA


class FetchFailed(Exception):
    """There is no response, or the URL is not allowed."""


def any_url(_: str) -> bool:
    """Allow every URL: the UrlFilter for no filter."""
    return True


class SsrfGuard:
    """Send requests to allowed addresses only.

    resolve: returns the addresses of a name for a port; tls: checks the certificates of servers.
    """

    def __init__(
        self, allowed: AddressFilter, resolve: Resolver | None = None, tls: ssl.SSLContext | None = None
    ) -> None:
        self._allowed, self._resolve, self._tls = allowed, resolve or resolved, tls

    @asynccontextmanager
    async def answer(
        self, request: "httpx.Request", within: UrlFilter = any_url, redirects: int = _REDIRECTS
    ) -> "AsyncIterator[httpx.Response]":
        """Yield the response to a request, to be read as it arrives; the caller limits its time and size.

        Redirects of a GET are followed if `within` returns True.  The next request has no header but `accept`.  A
        redirect from https to http fails.  Raises FetchFailed, also for errors within the block.
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
        """Send a request to the first address that accepts a connection, over a transport that is used once.

        Connections are not kept: another name may have the same address, and must show its own certificate.
        """
        addresses = await self._addresses(request.url)
        tls = self._tls if self._tls else await asyncio.to_thread(_tls)  # reading the certificates takes 60 ms once
        async with (
            httpx.AsyncHTTPTransport(verify=tls, trust_env=False) as transport,
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
    """Return the addresses of a name, each once; raise OSError if it has none."""
    found = await asyncio.get_running_loop().getaddrinfo(host, port, type=SOCK_STREAM)
    return list(dict.fromkeys(str(address[0]) for *_, address in found))


@contextmanager
def fetch_errors() -> Iterator[None]:
    """Convert failures of URLs, names, connections and servers to FetchFailed."""
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
    """Return the response of the first address that accepts a connection, with the URL's name in Host and TLS."""
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
    """Return the TLS context; creating it takes long."""
    return ssl.create_default_context()
