"""A script for an upstream that sends more than a gateway can hold."""

import asyncio
from contextlib import suppress

from support.upstream import chunk

PIECE = "~" * 16_000
MAX_BUFFERED = 80_000_000  # bytes on the way to a side that does not read: a kernel can take 37 MB for a connection


class Pouring:
    """An upstream that sends many pieces as fast as it can; `over` is set when it has sent or cannot send any more."""

    def __init__(self, pieces):
        self._pieces = pieces
        self.sent = 0
        self.moved, self.over = asyncio.Event(), asyncio.Event()

    async def __call__(self, writer):
        frame = chunk(PIECE)
        writer.transport.set_write_buffer_limits(high=0)
        try:
            for _ in range(self._pieces):
                writer.write(b"%x\r\n%b\r\n" % (len(frame), frame))
                await writer.drain()
                self.sent += len(PIECE)
                self.moved.set()
        finally:
            self.over.set()

    async def stuck(self):
        """Wait until nothing has moved for a while."""
        with suppress(TimeoutError):
            while True:
                self.moved.clear()
                async with asyncio.timeout(0.3):
                    await self.moved.wait()
