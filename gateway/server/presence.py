"""Whether the client is still there: from the moment its request was read until it has its answer."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from starlette.types import Receive

LEFT = "the client has left"  # as the message of a cancellation


@asynccontextmanager
async def present(receive: Receive) -> AsyncIterator[None]:
    """End the block as soon as the client goes, wherever it waits; nobody has to be told."""
    worker = asyncio.current_task()
    assert worker
    left = False

    async def watch() -> None:
        nonlocal left
        while (await receive())["type"] != "http.disconnect":
            pass
        left = True
        worker.cancel(LEFT)

    watcher = asyncio.create_task(watch())
    try:
        yield
    except asyncio.CancelledError:
        if not left:
            raise
        worker.uncancel()
    finally:
        watcher.cancel()
