"""Fetch the URLs of a request, within limits for all of them together."""

import asyncio
from collections.abc import Mapping

from msgspec import Struct

from gateway import config
from gateway.errors import BadRequest
from gateway.server import httpx
from gateway.server.fetch.ssrf_guard import FetchFailed, SsrfGuard, UrlFilter, address_filter, any_url, fetch_errors
from gateway.server.http.memory import Room
from gateway.server.worker_thread import run_in_thread

_AT_ONCE = 4


class FetchKind(Struct, frozen=True):
    """A kind of content to fetch.  accept: the header; too_large: the API's error code for too much content."""

    name: str
    accept: str
    too_large: str


class FetchedContent(Struct, frozen=True):
    """Fetched content.

    type: the content type with its parameters, "" without one; packed: the data is compressed.
    """

    type: str
    data: bytes
    packed: bool = False


class Fetcher:
    """Fetch the URLs of one request; its limits of bytes and time hold for all of them together.

    room: counts the memory that the content takes; None: it is small.
    """

    def __init__(
        self, settings: config.FetchSettings, sort: FetchKind, guard: SsrfGuard | None = None, room: Room | None = None
    ) -> None:
        self._guard = guard or SsrfGuard(address_filter(settings.networks, settings.ports))
        self._sort, self._seconds, self._most = sort, settings.seconds, settings.max_bytes
        self._left = self._unreserved = settings.max_bytes
        self._room = room

    async def all(self, wanted: Mapping[str, str]) -> dict[str, FetchedContent]:
        """Return the content of each URL.

        wanted: each URL with the parameter that names it.  Raises BadRequest for the first URL that fails.
        """
        until = asyncio.get_running_loop().time() + self._seconds
        fetched: dict[str, FetchedContent] = {}
        left = iter(wanted.items())

        async def fetch() -> None:
            for url, param in left:
                fetched[url] = await self._one(url, param, until)

        try:
            async with asyncio.TaskGroup() as group:
                for _ in range(_AT_ONCE):
                    group.create_task(fetch())
        except ExceptionGroup as failed:
            raise failed.exceptions[0] from None
        return fetched

    async def _one(self, url: str, param: str, until: float) -> FetchedContent:
        name = self._sort.name
        try:
            with fetch_errors():
                async with asyncio.timeout_at(until):
                    return await self.get(httpx.Request("GET", url, headers={"accept": self._sort.accept}))
        except FetchTooLarge:
            message = f"Invalid '{param}': the {name}s of the request exceed the limit of {self._most} bytes in total."
            raise BadRequest(message, code=self._sort.too_large, param=param) from None
        except FetchFailed:
            message = f"Invalid '{param}': the {name} could not be downloaded."
            raise BadRequest(message, code=f"failed_to_download_{name}", param=param) from None

    async def get(self, request: "httpx.Request", within: UrlFilter = any_url) -> FetchedContent:
        """Return the content of a URL as sent.

        Compressed content stays compressed, so it cannot exceed the limit later.

        Raises FetchFailed and FetchTooLarge, and UpstreamUnavailable if there is no room for it.
        """
        async with self._guard.answer(request, within) as answer:
            if answer.status_code != 200:
                raise FetchFailed
            await self._reserve(answer)
            pieces: list[bytes] = []
            async for piece in answer.aiter_raw():
                self._left -= len(piece)
                if self._left < 0:
                    raise FetchTooLarge
                pieces.append(piece)
            packed = answer.headers.get("content-encoding", "identity") != "identity"
            data = await run_in_thread(b"".join, pieces)  # ten milliseconds for 20 MB
            return FetchedContent(answer.headers.get("content-type", ""), data, packed)

    async def _reserve(self, answer: "httpx.Response") -> None:
        """Wait for room for the content, unread; without a length, for the most that it may be."""
        if self._room:
            length = answer.headers.get("content-length", "")
            size = min(int(length) if length.isdecimal() else self._unreserved, self._unreserved)
            self._unreserved -= size
            await self._room.add(size)


class FetchTooLarge(Exception):
    """The content has more bytes than allowed."""
