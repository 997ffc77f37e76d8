"""Run long work in a thread of its own: the event loop gets a turn every few milliseconds meanwhile.

There is one such thread, since two would also compete with each other.
"""

import asyncio
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import TypeVar

LARGE = 256 << 10  # bytes of a body that takes at worst some 20 ms to parse
MANY = 200  # items of an input that take some 10 ms to parse

# Seconds after which Python hands the interpreter's lock on.  The event loop takes it for each callback of a turn.
_SWITCH = 0.0005
_T = TypeVar("_T")
_thread = ThreadPoolExecutor(1, "worker", sys.setswitchinterval, (_SWITCH,))


async def run_in_thread(work: Callable[..., _T], *args: object) -> _T:
    """Run the work in the thread; return its result and raise its errors.

    A cancelled caller also waits for work that has begun, so nothing changes after the call has ended.
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
    finally:
        del begun, result  # an error's traceback has this frame, and the future has the error: a cycle with the body


def start_in_thread(work: Callable[[], object]) -> None:
    """Run the work in the thread, without waiting for it."""
    _thread.submit(work)


async def parse_body(parse: Callable[..., _T], raw: str | bytes, *args: object) -> _T:
    """Parse a body, a large one in the thread; return the result and raise the errors of `parse`."""
    return parse(raw, *args) if len(raw) < LARGE else await run_in_thread(parse, raw, *args)
