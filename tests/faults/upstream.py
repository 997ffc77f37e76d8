"""A backend that does what a row of the matrix says, and notes when each of its connections is over."""

import asyncio
import re
from contextlib import asynccontextmanager
from enum import Enum

from support.upstream import CLOSE, END, RESET, ReceivedRequest, Upstream, list_of
from support.wait import until


class Trick(Enum):
    """What a script may begin with."""

    DOWN = "nobody listens"
    SLAM = "close every connection as soon as it is there"
    EARLY = "answer without reading more of the request than its head"


DOWN, SLAM, EARLY = Trick


class Line(asyncio.StreamReaderProtocol):
    """A connection; the moment in which the other side closes it is noted, whatever is being sent."""

    def __init__(self, upstream):
        self._reader = asyncio.StreamReader()
        super().__init__(self._reader, upstream._welcome)
        self._upstream = upstream

    def connection_made(self, transport):
        self._peer, self._transport = transport.get_extra_info("peername")[1], transport
        self._upstream.lines.add(self)
        if self._upstream.trick is SLAM:
            transport.abort()
        super().connection_made(transport)

    def eof_received(self):
        self._over()
        return super().eof_received()

    def connection_lost(self, exc):
        self._over()
        self._upstream.lines.discard(self)
        super().connection_lost(exc)

    def hang_up(self):
        self._transport.abort()

    def _over(self):
        self._upstream.over.setdefault(self._peer, asyncio.get_running_loop().time())


class Backend(Upstream):
    """lines: the connections that there are; over: when each that is over was seen to be, by the port of its other side."""

    def __init__(self):
        super().__init__([[END]], list_of("m"))
        self.lines, self.over, self.trick = set(), {}, None
        self._port = 0

    async def set_scripts(self, *scripts):
        """What every POST is answered from now on; the last one holds for ever."""
        first = scripts[0][0]
        was, self.trick = self.trick, first if isinstance(first, Trick) else None
        self._scripts = [[step for step in script if not isinstance(step, Trick)] for script in scripts]
        if self.trick:
            await self.hangs_up()
        if self.trick is DOWN:
            self._server.close()
        elif was is DOWN:
            await self._listen()

    async def hangs_up(self):
        """Close all connections."""
        for line in [*self.lines]:
            line.hang_up()
        await until(lambda: not self.lines)

    @asynccontextmanager
    async def serving(self):
        await self._listen()
        self.url = f"http://127.0.0.1:{self._port}"
        try:
            yield self
        finally:
            self._server.close()
            await self.hangs_up()
            if self._peers:
                await asyncio.wait(self._peers, timeout=5)

    async def _listen(self):
        self._server = await asyncio.get_running_loop().create_server(lambda: Line(self), "127.0.0.1", self._port)
        self._port = self._server.sockets[0].getsockname()[1]

    async def _meet(self, reader, writer):
        if self.trick is not EARLY:
            return await super()._meet(reader, writer)
        head = await reader.readuntil(b"\r\n\r\n")
        self.posts.append(ReceivedRequest(writer.get_extra_info("peername")[1], head, b""))
        goes_on = await self._play(self._scripts[0], reader, writer)
        if goes_on:
            await reader.readexactly(int(re.search(rb"(?i)content-length: (\d+)", head)[1]))
        return goes_on


def ends_itself(script):
    return script[-1] in (CLOSE, RESET) or isinstance(script[0], Trick)
