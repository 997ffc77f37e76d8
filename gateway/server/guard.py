"""Requests to URLs that are anybody's word, to where everybody can reach.

The name of a URL is resolved here, each of its addresses must be allowed, and the connection goes to an address that
was looked at, so that no name can mean something else a moment later.  A redirect begins all of this anew.  Whatever
goes wrong on the way is one failure: a client must not learn from it what is behind the gateway's firewall.
"""

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import aclosing, asynccontextmanager, contextmanager
from functools import cache
from socket import SOCK_STREAM

from gateway import __version__
from gateway.server import httpx
from gateway.server.addresses import AddressFilter

Resolver = Callable[[str, int], Awaitable[list[str]]]
UrlFilter = Callable[[str], bool]  # whether a redirect may lead to this URL

_PORTS = {"http": 80, "https": 443}
_LAST_PORT = 65535
_REDIRECTS = 3
_TIMEOUT = {"connect": 3.0, "read": None, "write": None, "pool": None}  # to one address, as there may be others
_HEADERS = {"accept-encoding": "identity", "user-agent": f"gateway/{__version__}"}  # what is packed can grow


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
