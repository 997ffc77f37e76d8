"""Limit the memory that request bodies take in one process, and return freed blocks to the system at once."""

import asyncio
import ctypes
import os
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from types import TracebackType
from typing import Any, Self

from gateway.errors import UpstreamUnavailable

FREE = 16 << 10  # bytes of a body that are not counted: small bodies need little memory in all
_COPIES = 3  # the raw body, the decoded one, and that for the backend
_MUCH = 32 << 20  # bytes
_MAX_WAIT = 5.0  # seconds that a body waits for room, unread
_FULL = "The bodies of the current requests take all of 'limits.memory_bytes'. Retry after 1 s."
_library: Any = ctypes.CDLL(None) if os.name == "posix" else None
_TRIM_THRESHOLD, _MMAP_THRESHOLD, _ARENA_MAX = -1, -3, -8  # of mallopt(3)
_LARGE = 256 << 10  # bytes
_SPARE = 1 << 20  # bytes at the end of the heap; otherwise each read of a large body takes fresh pages
_ARENAS = 2  # heaps: one of its own for each thread would keep its free parts


class Buffers:
    """The bytes of all request bodies in this process.

    emptied: called when no bytes are taken any more, after there were many.
    """

    def __init__(self, emptied: Callable[[], object] = lambda: None) -> None:
        self.taken = self._peak = 0
        self._emptied = emptied
        self._waiting: deque[tuple[int, int, int, asyncio.Future[None]]] = deque()

    async def take(self, size: int, limit: int, own: int = 0) -> None:
        """Wait until there is room for so many bytes.  Raise UpstreamUnavailable after 5 s.

        A body above the limit has room when no other bytes are taken.  own: bytes that the request has already.
        """
        if not self._waiting and self._fits(size, limit, own):
            self.taken += size
            return
        turn = asyncio.get_running_loop().create_future()
        entry = size, limit, own, turn
        self._waiting.append(entry)
        try:
            async with asyncio.timeout(_MAX_WAIT):
                await turn
        except BaseException as error:
            if turn.cancelled():
                with suppress(ValueError):  # it may have been removed already
                    self._waiting.remove(entry)
                self._go_on()
            else:
                self.give(size)  # it got room in the last moment
            if isinstance(error, TimeoutError):
                raise UpstreamUnavailable(_FULL, retry_after="1") from None
            raise

    def give(self, size: int) -> None:
        """Give bytes back."""
        self._peak = max(self._peak, self.taken)
        self.taken -= size
        self._go_on()
        if not self.taken and self._peak > _MUCH:
            self._peak = 0
            self._emptied()

    def _go_on(self) -> None:
        while self._waiting:
            size, limit, own, turn = self._waiting[0]
            if not turn.done():  # the request still waits
                if not self._fits(size, limit, own):
                    return
                self.taken += size
                turn.set_result(None)
            self._waiting.popleft()

    def _fits(self, size: int, limit: int, own: int) -> bool:
        return self.taken == own or self.taken + size <= limit


class Room:
    """The bytes that one request has taken; the end of the block gives them back."""

    def __init__(self, buffers: Buffers, limit: int) -> None:
        self._buffers, self._limit = buffers, limit
        self._taken = 0

    async def grow(self, size: int) -> None:
        """Take room for a body of `size` bytes, beyond the bytes that are taken already."""
        more = _COPIES * size - self._taken
        if size > FREE and more > 0:
            await self._buffers.take(more, self._limit, self._taken)
            self._taken += more

    async def add(self, size: int) -> None:
        """Take room for content of `size` bytes, besides the bytes that are taken already."""
        await self.grow(size + self._taken // _COPIES)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._taken:
            self._buffers.give(self._taken)
            self._taken = 0


def return_memory() -> None:
    """Keep bodies out of the heap, where small objects behind them would keep the memory.  This needs glibc.

    Otherwise glibc raises its threshold to the largest block that was freed, and the next bodies go to the heap.
    """
    with suppress(AttributeError):
        _library.mallopt(_MMAP_THRESHOLD, _LARGE)
        _library.mallopt(_TRIM_THRESHOLD, _SPARE)
        _library.mallopt(_ARENA_MAX, _ARENAS)


def trim() -> None:
    """Give free parts of the heap back to the system, in a thread: it takes some milliseconds."""
    with suppress(AttributeError):
        _library.malloc_trim(0)
