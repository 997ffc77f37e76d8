"""Images that a request names by their URLs, fetched for servers that do not do that themselves.

A URL is anybody's word.  Its name is resolved here, each of its addresses must be one that everybody can reach, and
the connection goes to an address that was looked at, so that no name can mean something else a moment later.  A
redirect begins all of this anew.  Whatever goes wrong on the way is told in the same words: nobody is to learn from
them what there is on the gateway's side of a firewall.
"""

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from functools import cache
from socket import SOCK_STREAM

import httpx

from gateway import __version__, config, images
from gateway.backends import Kind
from gateway.errors import BadRequest
from gateway.ledger import Ledger
from gateway.request import Request
from gateway.server.addresses import allowed

Resolve = Callable[[str, int], Awaitable[list[str]]]

_PORTS = {"http": 80, "https": 443}
_LAST_PORT = 65535
_AT_ONCE = 4
_REDIRECTS = 3
_CONNECT_SECONDS = 3.0  # to one address, as there may be others
_HEADERS = {"accept": "image/*", "accept-encoding": "identity", "user-agent": f"gateway/{__version__}"}


async def read(request: Request, kind: Kind, settings: config.Images, ledger: Ledger) -> Request:
    """The request as a server of this kind can see all of its images; raises BadRequest for one that it could not."""
    if kind.fetches or not (wanted := images.addresses(request)):
        return request
    if not settings.fetch:
        message = (
            "The server of this model cannot fetch images: send the image itself, as a data URL, or have "
            "'images.fetch' set to true in the configuration of the gateway."
        )
        raise BadRequest(message, code="unsupported_value", param=next(iter(wanted.values())))
    fetched = await Fetching(settings).all(wanted)
    ledger.note("translated", "image_url")
    return images.inlined(request, fetched)


class Fetching:
    """Fetches the images of one request, within the limits for all of them."""

    def __init__(
        self, settings: config.Images, resolve: Resolve | None = None, tls: ssl.SSLContext | None = None
    ) -> None:
        self._resolve, self._tls = resolve or resolved, tls or _tls()
        self._allowed = allowed(settings.networks)
        self._seconds, self._most = settings.seconds, settings.max_bytes
        self._left = settings.max_bytes

    async def all(self, wanted: Mapping[str, str]) -> dict[str, bytes]:
        """The image at each URL; raises BadRequest with the path of the first that there is none at."""
        until = asyncio.get_running_loop().time() + self._seconds
        fetched: dict[str, bytes] = {}
        left = iter(wanted.items())

        async def fetch() -> None:
            for url, param in left:
                fetched[url] = await self._image(url, param, until)

        try:
            async with asyncio.TaskGroup() as group:
                for _ in range(_AT_ONCE):
                    group.create_task(fetch())
        except ExceptionGroup as failed:
            raise failed.exceptions[0] from None
        return fetched

    async def _image(self, url: str, param: str, until: float) -> bytes:
        try:
            async with asyncio.timeout_at(until):
                data = await self._get(httpx.URL(url))
        except _TooLarge:
            message = f"Invalid '{param}': the images of a request may have {self._most} bytes in all."
            raise BadRequest(message, code="image_file_too_large", param=param) from None
        except (httpx.HTTPError, httpx.InvalidURL, OSError, ValueError):
            message = f"Invalid '{param}': the image could not be downloaded."
            raise BadRequest(message, code="failed_to_download_image", param=param) from None
        if not images.media_type(data):
            message = f"Invalid '{param}': expected an image of the type PNG, JPEG, GIF or WebP."
            raise BadRequest(message, code="unsupported_image_media_type", param=param)
        return data

    async def _get(self, url: httpx.URL, redirects: int = _REDIRECTS) -> bytes:
        async with self._answer(url) as answer:
            if not answer.has_redirect_location:
                return await self._body(answer)
            url = url.join(answer.headers["location"])
        if not redirects:
            raise _Refused
        return await self._get(url, redirects - 1)

    @asynccontextmanager
    async def _answer(self, url: httpx.URL) -> AsyncIterator[httpx.Response]:
        """From the first of the URL's addresses that takes a connection, in a client that is used once.

        Connections are not kept: another name may have the same address, and it has to show its own certificate.
        """
        addresses = await self._addresses(url)
        timeout = httpx.Timeout(None, connect=_CONNECT_SECONDS)
        async with httpx.AsyncClient(verify=self._tls, trust_env=False, timeout=timeout, headers=_HEADERS) as client:
            answer = await _first(client, url, addresses)
            try:
                yield answer
            finally:
                await answer.aclose()

    async def _addresses(self, url: httpx.URL) -> list[str]:
        if url.scheme not in _PORTS or url.userinfo or (url.port or 0) > _LAST_PORT:
            raise _Refused
        found = await self._resolve(url.raw_host.decode(), url.port or _PORTS[url.scheme])
        if not all(map(self._allowed, found)):
            raise _Refused
        return found

    async def _body(self, answer: httpx.Response) -> bytes:
        """As it came: what is compressed all the same is no image, and cannot grow."""
        if answer.status_code != 200:
            raise _Refused
        data = bytearray()
        async for piece in answer.aiter_raw():
            self._left -= len(piece)
            if self._left < 0:
                raise _TooLarge
            data += piece
        return bytes(data)


async def resolved(host: str, port: int) -> list[str]:
    """The addresses of a name, each once; OSError if it has none."""
    found = await asyncio.get_running_loop().getaddrinfo(host, port, type=SOCK_STREAM)
    return list(dict.fromkeys(str(address[0]) for *_, address in found))


class _Refused(OSError):
    """Not to be told from a connection that failed."""


class _TooLarge(Exception):
    pass


async def _first(client: httpx.AsyncClient, url: httpx.URL, addresses: list[str]) -> httpx.Response:
    """The answer under the URL's name, of the first address that can be connected to."""
    head, name = {"host": url.netloc.decode()}, {"sni_hostname": url.raw_host.decode()}
    failure: Exception = _Refused()
    for address in addresses:
        request = client.build_request("GET", url.copy_with(host=address), headers=head, extensions=name)
        try:
            return await client.send(request, stream=True)
        except (httpx.ConnectError, httpx.ConnectTimeout) as error:
            failure = error
    raise failure


@cache
def _tls() -> ssl.SSLContext:
    """Takes long to make."""
    return ssl.create_default_context()
