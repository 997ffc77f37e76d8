"""A scripted upstream: a model server on a real socket that sends the bytes of a test.

A script is a list of steps.  Bytes are sent as they are, each in a packet of its own.  `head` begins a chunked
response, and the bytes that follow are chunks of its body.  END, CLOSE, RESET and HANG end a response.  The script
waits for an asyncio.Event, and calls a function with the writer.  Each POST takes the next script; the last script is
repeated.
"""

import asyncio
import fcntl
import json
import re
import socket
import struct
import termios
from contextlib import asynccontextmanager, suppress
from enum import Enum

from support.wait import idle, until


class Step(Enum):
    """A step of an upstream other than sending bytes."""

    END = "send the last chunk; the connection stays"
    CLOSE = "close the connection"
    RESET = "reset the connection, after all that was sent has arrived"
    HANG = "say nothing until the other side closes"


END, CLOSE, RESET, HANG = Step
TEMPLATES = {"/props", "/api/show", "/tokenizer_info", "/apply-template", "/tokenize"}
LOADED = {"/api/ps", "/api/v0/models"}
ASIDE = TEMPLATES | LOADED | {"/v1/chat/completions/input_tokens"}  # requests that reach no model
DONE = b"data: [DONE]\n\n"
KEY = "upstream-secret-0123456789"
SOON = 2.0  # seconds within which an upstream has to notice a disconnect


def head(status=200, type="text/event-stream", **headers):
    """Return the head of a response that is sent in chunks."""
    lines = {"content-type": type, **{name.replace("_", "-"): value for name, value in headers.items()}}
    return Head(status, lines)


class Head(bytes):
    """The head of a chunked response."""

    def __new__(cls, status, lines):
        header_lines = "".join(f"{name}: {value}\r\n" for name, value in lines.items())
        return super().__new__(
            cls, f"HTTP/1.1 {status} Said\r\n{header_lines}transfer-encoding: chunked\r\n\r\n".encode()
        )


def whole(body, status=200, type="application/json", **headers):
    """Return a response with a length."""
    body = body if isinstance(body, bytes) else json.dumps(body).encode()
    lines = {"content-type": type, **{name.replace("_", "-"): value for name, value in headers.items()}}
    header_lines = "".join(f"{name}: {value}\r\n" for name, value in lines.items())
    return [f"HTTP/1.1 {status} Said\r\n{header_lines}content-length: {len(body)}\r\n\r\n".encode() + body]


def chunk(content=None, /, *, index=0, finish=None, **more):
    """Return a frame of a streamed response; `more` are members of its delta."""
    delta = {**({} if content is None else {"content": content}), **more}
    return frame(choices=[{"index": index, "delta": delta, "finish_reason": finish}])


def frame(**members):
    """Return a frame with these members."""
    return (
        b"data: "
        + json.dumps({"id": "up-1", "object": "chat.completion.chunk", "created": 1, **members}).encode()
        + b"\n\n"
    )


def call(name=None, arguments=None, *, place=0, id=None):
    """Return the `tool_calls` of a delta with one piece of one call."""
    function = {key: value for key, value in {"name": name, "arguments": arguments}.items() if value is not None}
    return [{"index": place, **({"id": id, "type": "function"} if id else {}), "function": function}]


def stream(*frames):
    """Return a whole streamed response."""
    return [head(), *frames, DONE, END]


def paused(gate):
    """Return a streamed response, "Hello", that waits for the gate in its middle."""
    return [head(), chunk("Hel"), gate, chunk("lo"), chunk(finish="stop"), DONE, END]


def gated(text, gate):
    """Return a streamed response with this text that waits for the gate before its end."""
    return [head(), chunk(text), gate, chunk(finish="stop"), DONE, END]


def completion_body(content="Hi", **more):
    """Return a whole body with one choice; `more` are members of its message."""
    message = {"role": "assistant", "content": content, **more}
    choice = {"index": 0, "message": message, "finish_reason": "stop"}
    return {
        "id": "up-1",
        "object": "chat.completion",
        "created": 1,
        "model": "up",
        "choices": [choice],
        "usage": COUNTS,
    }


COUNTS = {"prompt_tokens": 7, "completion_tokens": 2, "total_tokens": 9}
HELLO = stream(chunk("Hi"), chunk(finish="stop"), frame(choices=[], usage=COUNTS))


class ReceivedRequest:
    """A request as the upstream received it."""

    def __init__(self, peer, head, body):
        self.peer = peer  # the port of the client
        line, *lines = head.decode("latin-1").split("\r\n")[:-2]
        self.method, self.path, _ = line.split(" ")
        self.headers = dict(one.split(": ", 1) for one in lines)
        self.body = body

    @property
    def json(self):
        """The body, decoded."""
        return json.loads(self.body)


class Upstream:
    """A scripted server; `posts`: the requests; `gone`: set when the other side disconnected during a script."""

    def __init__(self, scripts, models):
        self._scripts = [*scripts]
        self._models = list_of(*models) if all(isinstance(id, str) for id in models) else models
        self.posts, self.gets, self.aside = [], [], []
        self.shown = {}  # path → the script of template metadata; 404 without one
        self.arrived = asyncio.Event()  # a POST has arrived
        self.gone = asyncio.Event()
        self.sent = 0
        self._peers = set()

    @property
    def connections(self):
        """The number of open connections."""
        return len(self._peers)

    def answer_lists_with(self, script):
        """Set the script for lists of models."""
        self._models = script

    @asynccontextmanager
    async def serving(self):
        """Serve within the block, at `url`."""
        server = await asyncio.start_server(self._welcome, "127.0.0.1", 0)
        self.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        try:
            yield self
        finally:
            server.close()
            await server.wait_closed()
            if self._peers:
                await asyncio.wait(self._peers, timeout=5)

    async def _welcome(self, reader, writer):
        task = asyncio.current_task()
        self._peers.add(task)
        try:
            with suppress(ConnectionError, asyncio.IncompleteReadError):
                while await self._meet(reader, writer):
                    pass
            writer.close()
            with suppress(ConnectionError):
                await writer.wait_closed()
        finally:
            self._peers.discard(task)

    async def _meet(self, reader, writer):
        """Respond to one request; return False at the end of the connection."""
        head = await reader.readuntil(b"\r\n\r\n")
        size = re.search(rb"(?i)content-length: (\d+)", head)
        peer = writer.get_extra_info("peername")[1]
        chunked = b"transfer-encoding: chunked" in head.lower()
        body = await _chunks(reader) if chunked else await reader.readexactly(int(size[1]) if size else 0)
        request = ReceivedRequest(peer, head, body)
        path = request.path.partition("?")[0]
        if path in ASIDE:
            self.aside.append(request)
            script = self.shown.get(path) or whole({"error": "not here"}, status=404)
        elif request.method == "GET":
            self.gets.append(request)
            script = self._models
        else:
            self.posts.append(request)
            self.arrived.set()
            script = self.script_for(request)
        try:
            return await self._play(script, reader, writer)
        except ConnectionError:
            self.gone.set()
            raise

    def script_for(self, request):
        """Return the script of a POST."""
        return self._scripts.pop(0) if len(self._scripts) > 1 else self._scripts[0]

    async def _play(self, script, reader, writer):
        chunked = False
        for step in script:
            if isinstance(step, bytes):
                self._write(writer, step, chunked)
                await writer.drain()
                await asyncio.sleep(0)
                chunked = chunked or isinstance(step, Head)
            elif step is END:
                writer.write(b"0\r\n\r\n")
            elif step is HANG:
                await self._hang(reader)
                return False
            elif step is CLOSE:
                return False
            elif step is RESET:
                await arrived(writer)
                linger = struct.pack("ii", 1, 0)
                writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
                writer.transport.abort()
                return False
            elif isinstance(step, asyncio.Event):
                await step.wait()
            else:
                await step(writer)
        await writer.drain()
        return True

    def _write(self, writer, step, chunked):
        writer.write(b"%x\r\n%b\r\n" % (len(step), step) if chunked else step)
        self.sent += len(step)

    async def _hang(self, reader):
        with suppress(ConnectionError):
            while await reader.read(1024):
                pass
        self.gone.set()


async def _chunks(reader):
    """Return a body that came in chunks."""
    body = b""
    while size := int(await reader.readuntil(b"\r\n"), 16):
        body += await reader.readexactly(size)
        await reader.readexactly(2)
    await reader.readexactly(2)
    return body


def silent(seconds):
    """Return a step that sends nothing for this many seconds."""
    return lambda _: idle(seconds)


async def arrived(writer):
    """Wait until the other side's kernel has all that was sent."""
    number = writer.get_extra_info("socket").fileno()
    await until(lambda: struct.unpack("i", fcntl.ioctl(number, termios.TIOCOUTQ, bytes(4)))[0], 0)


def list_of(*ids):
    """Return the script of an upstream with these models."""
    return whole({"object": "list", "data": [{"id": id, "object": "model", "created": 3} for id in ids]})
