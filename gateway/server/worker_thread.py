"""Work that takes long, in a thread of its own: the event loop has its turn every few milliseconds meanwhile.

There is one such thread, since two would take turns with each other as well.
"""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import TypeVar

_LARGE = 256 << 10  # bytes of a body that takes some 20 ms to read at worst
MANY = 200  # items of an input that take some 10 ms to read

_T = TypeVar("_T")
_thread = ThreadPoolExecutor(1, "apart")


async def apart(work: Callable[..., _T], *args: object) -> _T:
    """Return what the work returns, and raise what it raises.

    Work that has begun is waited for, also by a task that is cancelled: nothing changes behind its back.
    """
    begun = _thread.submit(work, *args)
    result = asyncio.wrap_future(begun)
    try:
        return await asyncio.shield(result)
    except asyncio.CancelledError:
        while not (begun.cancel() or begun.done()):
            with suppress(asyncio.CancelledError):
                await asyncio.wait([result])
        raise


def later(work: Callable[[], object]) -> None:
    """Run the work in the thread, without waiting for it."""
    _thread.submit(work)


async def parsed(parse: Callable[..., _T], raw: str | bytes, *args: object) -> _T:
    """Return what a parser makes of a body, and raise what it raises; a large one is parsed apart."""
    return parse(raw, *args) if len(raw) < _LARGE else await apart(parse, raw, *args)
