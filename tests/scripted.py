"""A model server that says exactly what a test has written, and a gateway in front of it.

    async with gateway([*head(), chunk("Hi"), chunk(finish="stop"), DONE, END]) as site:
        answer = await site.chat(stream=True)

An upstream's script is a list of steps: bytes are sent as they are, each in a packet of its own; `head` begins an
answer and whatever bytes follow it are chunks of its body; END, CLOSE, RESET and HANG end it; an asyncio.Event is
waited for.  Every POST takes the next script, and the last one is played again for ever.
"""

import asyncio
import atexit
import fcntl
import inspect
import itertools
import json
import re
import socket
import struct
import tempfile
import termios
from contextlib import asynccontextmanager, suppress
from enum import Enum

import httpx
import pytest
import uvicorn
import uvloop

from gateway import config, formats
from gateway.server.app import create_app
from gateway.server.protocols import STOPPING, Settings


class Step(Enum):
    """What an upstream does, apart from sending bytes."""

    END = "send the last chunk; the connection stays"
    CLOSE = "close the connection"
    RESET = "reset the connection, after all that was sent has arrived"
    HANG = "say nothing until the other side closes"


END, CLOSE, RESET, HANG = Step
TEMPLATES = {"/props", "/api/show", "/tokenizer_info", "/apply-template", "/tokenize"}
LOADED = {"/api/ps", "/api/v0/models"}
ASIDE = TEMPLATES | LOADED | {"/v1/chat/completions/input_tokens"}  # questions that no model answers
DONE = b"data: [DONE]\n\n"
KEY = "upstream-secret-0123456789"
SOON = 2.0  # seconds within which an upstream has to see that it is not needed any more


# What an upstream says


def head(status=200, type="text/event-stream", **headers):
    """Begins an answer that is sent in chunks."""
    lines = {"content-type": type, **{name.replace("_", "-"): value for name, value in headers.items()}}
    return Head(status, lines)


class Head(bytes):
    """Bytes after which the body comes in chunks."""

    def __new__(cls, status, lines):
        said = "".join(f"{name}: {value}\r\n" for name, value in lines.items())
        return super().__new__(cls, f"HTTP/1.1 {status} Said\r\n{said}transfer-encoding: chunked\r\n\r\n".encode())


def whole(body, status=200, type="application/json", **headers):
    """An answer with a length."""
    body = body if isinstance(body, bytes) else json.dumps(body).encode()
    lines = {"content-type": type, **{name.replace("_", "-"): value for name, value in headers.items()}}
    said = "".join(f"{name}: {value}\r\n" for name, value in lines.items())
    return [f"HTTP/1.1 {status} Said\r\n{said}content-length: {len(body)}\r\n\r\n".encode() + body]


def chunk(content=None, /, *, index=0, finish=None, **more):
    """A frame of a streamed answer; `more` are members of its delta."""
    delta = {**({} if content is None else {"content": content}), **more}
    return frame(choices=[{"index": index, "delta": delta, "finish_reason": finish}])


def frame(**said):
    return (
        b"data: "
        + json.dumps({"id": "up-1", "object": "chat.completion.chunk", "created": 1, **said}).encode()
        + b"\n\n"
    )


def call(name=None, arguments=None, *, place=0, id=None):
    """The `tool_calls` of a delta with one piece of one call."""
    function = {key: value for key, value in {"name": name, "arguments": arguments}.items() if value is not None}
    return [{"index": place, **({"id": id, "type": "function"} if id else {}), "function": function}]


def stream(*frames):
    """A whole streamed answer."""
    return [head(), *frames, DONE, END]


def said(content="Hi", **more):
    """A whole body with one choice; `more` are members of its message."""
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


class Asked:
    """A request as the upstream got it."""

    def __init__(self, peer, head, body):
        self.peer = peer  # the port it came from
        line, *lines = head.decode("latin-1").split("\r\n")[:-2]
        self.method, self.path, _ = line.split(" ")
        self.headers = dict(one.split(": ", 1) for one in lines)
        self.body = body

    @property
    def json(self):
        return json.loads(self.body)


class Upstream:
    """`posts` are the requests that came; `gone` is set when the other side closed while it was to be answered."""

    def __init__(self, scripts, models):
        self._scripts = [*scripts]
        self._models = list_of(*models) if all(isinstance(id, str) for id in models) else models
        self.posts, self.gets, self.aside = [], [], []
        self.shown = {}  # path → the script of what it gives away of its templates; without one it is not there
        self.arrived = asyncio.Event()  # a POST is here
        self.gone = asyncio.Event()
        self.sent = 0
        self._peers = set()

    def answer_lists_with(self, script):
        self._models = script

    @asynccontextmanager
    async def serving(self):
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
        """One request and its answer; False when the connection is over."""
        head = await reader.readuntil(b"\r\n\r\n")
        size = re.search(rb"(?i)content-length: (\d+)", head)
        peer = writer.get_extra_info("peername")[1]
        asked = Asked(peer, head, await reader.readexactly(int(size[1]) if size else 0))
        path = asked.path.partition("?")[0]
        if path in ASIDE:
            self.aside.append(asked)
            script = self.shown.get(path) or whole({"error": "not here"}, status=404)
        elif asked.method == "GET":
            self.gets.append(asked)
            script = self._models
        else:
            self.posts.append(asked)
            self.arrived.set()
            script = self._scripts.pop(0) if len(self._scripts) > 1 else self._scripts[0]
        return await self._play(script, reader, writer)

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


def silent(seconds):
    """A step that says nothing for so long."""
    return lambda _: asyncio.sleep(seconds)


async def arrived(writer):
    """Wait until the other side's kernel has all that was sent."""
    number = writer.get_extra_info("socket").fileno()
    while struct.unpack("i", fcntl.ioctl(number, termios.TIOCOUTQ, bytes(4)))[0]:  # noqa: ASYNC110 (only it knows)
        await asyncio.sleep(0.005)


def list_of(*ids):
    """The answer of an upstream that has these models."""
    return whole({"object": "list", "data": [{"id": id, "object": "model", "created": 3} for id in ids]})


# A gateway

STORES, NUMBERS = tempfile.TemporaryDirectory(), itertools.count()
atexit.register(STORES.cleanup)


def settings(url, *, backend=None, model=None, more_backends=None, more_models=None, store=None, **sections):
    """A config with the backend `up`, the model `m` on it unless `model` is False, and a new store."""
    models = {} if model is False else {"m": {"backends": ["up"], **(model or {})}}
    backends = {"up": {"url": url, "api_key": KEY, **(backend or {})}, **(more_backends or {})}
    url = f"sqlite:///{STORES.name}/{next(NUMBERS)}.db"
    store = {"url": url, "sealing_keys": ["s" * 32], **(store or {})}
    known = {"backends": backends, "models": {**models, **(more_models or {})}, "store": store}
    return config.parse(json.dumps({**known, **sections}), "test.yaml", {}, formats.names())


HELLO_MESSAGES = [{"role": "user", "content": "Hello"}]


class Site:
    """A gateway with one upstream, and a client of it."""

    def __init__(self, upstream, client, app=None):
        self.upstream, self.client, self.app = upstream, client, app

    async def chat(self, body=None, *, headers=None, **fields):
        """POST a chat completion: `body` as it is, or the smallest one with these fields."""
        if body is None:
            body = json.dumps({"model": "m", "messages": HELLO_MESSAGES, **fields}).encode()
        return await self._post("/v1/chat/completions", body, headers)

    async def respond(self, body=None, *, headers=None, **fields):
        """POST a response, likewise."""
        if body is None:
            body = json.dumps({"model": "m", "input": "Hello", **fields}).encode()
        return await self._post("/v1/responses", body, headers)

    async def _post(self, path, body, headers):
        said = {"content-type": "application/json", **(headers or {})}
        return await self.client.post(path, content=body, headers=said)

    @property
    def asked(self):
        """The body of the last request that reached the upstream."""
        return self.upstream.posts[-1].json


@asynccontextmanager
async def gateway(*scripts, models=(), **said):
    """A Site without a socket in front: its client calls the application itself."""
    async with Upstream(scripts, models).serving() as upstream:
        app = create_app(settings(upstream.url, **said))
        transport = httpx.ASGITransport(app, raise_app_exceptions=False)
        async with (
            app.router.lifespan_context(app),
            httpx.AsyncClient(transport=transport, base_url="http://gateway", timeout=20, verify=False) as client,
        ):
            yield Site(upstream, client, app)


async def overheard(site, take, body, headers=None):
    """POST a chat completion; `take` is given each message of the answer before the client is."""
    app = site.client._transport.app

    async def watched(scope, receive, send):
        async def tell(message):
            await take(message)
            await send(message)

        await app(scope, receive, tell)

    async with httpx.AsyncClient(
        transport=httpx.ASGITransport(watched), base_url="http://gateway", verify=False
    ) as one:
        return await one.post("/v1/chat/completions", content=body, headers=headers)


@asynccontextmanager
async def listening(*scripts, models=(), **said):
    """A Site behind a real socket, at `site.client.base_url`."""
    async with Upstream(scripts, models).serving() as upstream:
        known = settings(upstream.url, **said)
        app = create_app(known)
        async with running(app, known) as url, httpx.AsyncClient(base_url=url, timeout=20, verify=False) as client:
            yield Site(upstream, client, app)


@asynccontextmanager
async def running(app, said=None, request_seconds=60, idle_seconds=5):
    """The url of a gateway that runs in this loop as it runs in production; said: its config.

    request_seconds: without a byte of a request that has no end yet; idle_seconds: between two.
    """
    sock = socket.create_server(("127.0.0.1", 0))
    server = uvicorn.Server(Settings(app, said or config.Config()))
    server.config.request_seconds, server.config.timeout_keep_alive = request_seconds, idle_seconds
    server.config.load()
    server.lifespan = server.config.lifespan_class(server.config)
    await server.startup([sock])
    server.lifespan.state.setdefault(STOPPING, lambda: None)  # an application that is no gateway does not mind
    try:
        yield f"http://127.0.0.1:{sock.getsockname()[1]}"
    finally:
        for listener in server.servers:
            listener.close()
        state = server.server_state
        for connection in [*state.connections]:
            connection.shutdown()
        async with asyncio.timeout(5):
            while state.connections or state.tasks:  # noqa: ASYNC110 (nothing tells when they have gone)
                await asyncio.sleep(0.001)
        await server.lifespan.shutdown()
        sock.close()


# What a client gets


def payloads(text):
    """The `data:` of each event, decoded; comments are left out."""
    said = [block[6:] for block in text.strip().split("\n\n") if block.startswith("data: ")]
    return [one if one == "[DONE]" else json.loads(one) for one in said]


def events(text):
    """The events of a response, decoded; each has to be what its `event:` line says."""
    blocks = [block.split("\n") for block in text.strip().split("\n\n") if block.startswith("event: ")]
    told = [(name.removeprefix("event: "), json.loads(data.removeprefix("data: "))) for name, data in blocks]
    assert all(name == event["type"] for name, event in told)
    return [event for _, event in told]


def comments(text):
    return [block for block in text.split("\n\n") if block.startswith(":")]


def text_of(text, field="content", index=0):
    """The deltas of one field, joined."""
    deltas = [
        choice["delta"].get(field) or ""
        for chunk in payloads(text)
        if isinstance(chunk, dict)
        for choice in chunk.get("choices", ())
        if choice["index"] == index
    ]
    return "".join(deltas)


def problem(answer):
    """Status, type, code and param of an answer that is an error in the shape of the API."""
    error = answer.json()["error"]
    assert set(error) == {"message", "type", "param", "code"}
    return answer.status_code, error["type"], error["code"], error["param"]


LOOPS = {"asyncio": asyncio.new_event_loop, "uvloop": uvloop.new_event_loop}


def on_both_loops(test):
    """Turn an async test into a plain one that runs on a new loop of either kind, for 60 seconds at most."""

    async def bounded(arguments):
        async with asyncio.timeout(60):
            await test(**arguments)

    def run(loop, **arguments):
        with asyncio.Runner(loop_factory=LOOPS[loop]) as runner:
            runner.run(bounded(arguments))

    run.__name__, run.__doc__, run.__module__ = test.__name__, test.__doc__, test.__module__
    run.pytestmark = getattr(test, "pytestmark", [])
    own = inspect.Parameter("loop", inspect.Parameter.POSITIONAL_OR_KEYWORD)
    run.__signature__ = inspect.Signature([own, *inspect.signature(test).parameters.values()])
    return pytest.mark.parametrize("loop", LOOPS)(run)
