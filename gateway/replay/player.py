"""A model server that says what others were recorded to say, with all their habits: no more of HTTP than that takes."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager, suppress

from msgspec import DecodeError, Struct, json

from gateway.replay.script import RecordedCall

CallChooser = Callable[["MockRequest"], RecordedCall | None]
_HEAD_LIMIT = 64 << 10
_GONE = (ConnectionError, asyncio.IncompleteReadError, asyncio.LimitOverrunError, asyncio.CancelledError, ValueError)
_NONE = RecordedCall("", "", 404, "application/json", None, (), "end")


class MockRequest(Struct, frozen=True):
    method: str
    path: str
    body: bytes

    @property
    def model(self) -> str:
        """The one that it names, "" if it names none."""
        try:
            said = json.decode(self.body)
        except (DecodeError, UnicodeDecodeError):
            return ""
        model = said.get("model") if isinstance(said, dict) else None
        return model if isinstance(model, str) else ""


class MockBackend:
    """choose: the call whose answer a question gets; None: it is not found.  timed: at the pace of the recording."""

    def __init__(self, choose: CallChooser, models: Iterable[str], *, timed: bool = False) -> None:
        self._choose, self._timed = choose, timed
        listed = [{"id": one, "object": "model", "created": 0, "owned_by": "replay"} for one in models]
        self._list = json.encode({"object": "list", "data": listed})
        self._talks: set[asyncio.Task[None]] = set()

    @asynccontextmanager
    async def serving(self, host: str = "127.0.0.1", port: int = 0) -> AsyncIterator[str]:
        """Serve in this block, and return the URL."""
        server = await asyncio.start_server(self._talk, host, port, limit=_HEAD_LIMIT)
        try:
            yield f"http://{host}:{server.sockets[0].getsockname()[1]}"
        finally:
            server.close()
            for talk in self._talks:
                talk.cancel()
            await asyncio.gather(*self._talks, return_exceptions=True)

    async def _talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        talk = asyncio.current_task()
        assert talk
        self._talks.add(talk)
        try:
            with suppress(*_GONE):
                while await self._answer(await _question(reader), reader, writer):
                    pass
        finally:
            self._talks.discard(talk)
            writer.close()

    async def _answer(self, asked: MockRequest, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        """True if the connection may be used again."""
        if asked.method == "GET":
            found = asked.path.endswith("/v1/models")
            writer.write(_whole(200 if found else 404, self._list if found else b"{}"))
            await writer.drain()
            return True
        call = self._choose(asked) or _NONE
        if call.status:
            writer.write(_head(call))
        for piece in call.pieces:
            await asyncio.sleep(piece.after if self._timed else 0)
            writer.write(b"%x\r\n%b\r\n" % (len(piece.data), piece.data))
            await writer.drain()
        if call.end == "hang":
            await reader.read(1)  # until the other side has had enough
        elif call.end == "end":
            writer.write(b"0\r\n\r\n")
            await writer.drain()
        return call.end == "end"


async def _question(reader: asyncio.StreamReader) -> MockRequest:
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
    line, *lines = head.split("\r\n")
    method, path, _ = line.split(" ")
    headers = {name.lower(): value.strip() for name, _, value in (one.partition(":") for one in lines)}
    body = await reader.readexactly(int(headers.get("content-length", "0")))
    return MockRequest(method, path.partition("?")[0], body)


def _head(call: RecordedCall) -> bytes:
    after = f"retry-after: {call.retry_after}\r\n" if call.retry_after else ""
    type = f"content-type: {call.content_type}\r\n" if call.content_type else ""
    return f"HTTP/1.1 {call.status} Said\r\n{type}{after}transfer-encoding: chunked\r\n\r\n".encode("latin-1")


def _whole(status: int, body: bytes) -> bytes:
    head = f"HTTP/1.1 {status} Said\r\ncontent-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
    return head.encode() + body
