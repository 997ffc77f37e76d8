"""A real server of the Model Context Protocol, made with the SDK, and observations for tests.

    async with toys() as server:
        async with gateway(..., tools=operators(server)) as site: ...

As a program (`python mcp_server.py`) it speaks over standard input and output.
"""

import asyncio
import inspect
import json
import os
import sys
from contextlib import asynccontextmanager

from mcp.server import MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from mcp.types import EmbeddedResource, ImageContent, ResourceLink, TextContent, TextResourceContents, ToolAnnotations
from sse_starlette.sse import AppStatus
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from support.wait import DEADLINE

PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
TOOL = {"name": "echo", "inputSchema": {"type": "object"}}


class Toys:
    """A server with tools for tests.  Docstrings of the tools would be their descriptions.

    begun, broken: set when a call of `wait` has begun, and when it was cancelled.
    go: lets `wait` end.
    calls: the calls so far.
    heads: the headers of all requests.
    """

    def __init__(self):
        self.begun, self.broken, self.go = asyncio.Event(), asyncio.Event(), asyncio.Event()
        self.calls, self.heads = [], []
        self.server = MCPServer("toys", log_level="CRITICAL")
        self.server.tool(description="Says it again.", annotations=ToolAnnotations(read_only_hint=True))(self.echo)
        for tool in (self.add, self.fail, self.wait, self.show, self.much, self.leave):
            self.server.tool()(tool)

    def echo(self, text: str) -> str:
        self.calls.append(("echo", text))
        return f"heard {text}"

    def add(self, a: int, b: int) -> dict[str, int]:
        self.calls.append(("add", a, b))
        return {"sum": a + b}

    def fail(self) -> str:
        raise ToolError("no such thing")

    async def wait(self, text: str = "") -> str:
        """Wait until `go` is set."""
        self.begun.set()
        try:
            await self.go.wait()
        except asyncio.CancelledError:
            self.broken.set()
            raise
        return f"waited {text}".strip()

    def show(self) -> list[TextContent | ImageContent | EmbeddedResource | ResourceLink]:
        note = TextResourceContents(uri="file:///note.txt", mime_type="text/plain", text="a note")
        return [
            TextContent(text="a picture"),
            ImageContent(data=PIXEL, mime_type="image/png"),
            EmbeddedResource(resource=note),
            ResourceLink(name="more", uri="https://example.com/more"),
        ]

    def much(self, size: int) -> str:
        return "x" * size

    def leave(self) -> str:
        os._exit(1)

    @asynccontextmanager
    async def listening(self, sse=False, **options):
        """Serve within the block, at `url`."""
        AppStatus.should_exit = False  # a flag of the whole process: the server of another test was stopped
        app = self.server.sse_app() if sse else self.server.streamable_http_app(**options)

        async def recording_app(scope, receive, send):
            if scope["type"] == "http":
                self.heads.append({name.decode(): value.decode() for name, value in scope["headers"]})
            await app(scope, receive, send)

        async with _running(recording_app) as url:
            self.url = f"{url}/sse" if sse else f"{url}/mcp"
            yield self


class Liar:
    """A server with the responses of a test.

    The responses are by method: a result, a Response, a coroutine function that returns one, or None for no response.

    methods: the methods of the requests so far.
    begun, broken: set when a request without a response has begun, and when it has ended.
    obeys: the server ends a call that was cancelled; its client can disconnect in any case.
    """

    def __init__(self, *, obeys=False, **answers):
        self._answers = {
            "initialize": {
                "protocolVersion": "2025-06-18",
                "capabilities": {"tools": {}},
                "serverInfo": {"name": "l", "version": "1"},
            },
            "tools_list": {"tools": [TOOL]},
            "tools_call": {"content": [{"type": "text", "text": "yes"}]},
            **answers,
        }
        self.methods, self.begun, self.broken = [], asyncio.Event(), asyncio.Event()
        self._obeys, self._cancelled = obeys, asyncio.Event()

    async def __call__(self, scope, receive, send):
        if scope["type"] == "lifespan":
            return await self._live(receive, send)
        request = Request(scope, receive)
        answer = await self._answer(request) if scope["method"] == "POST" else Response(status_code=405)
        answer.headers["connection"] = "close"
        return await answer(scope, receive, send)

    async def _answer(self, request):
        message = json.loads(await request.body())
        self.methods.append(message["method"])
        if "id" not in message:
            if message["method"] == "notifications/cancelled" and self._obeys:
                self._cancelled.set()
            return Response(status_code=202)
        if message["method"] not in ("initialize", "tools/list", "tools/call"):
            return JSONResponse(
                {"jsonrpc": "2.0", "id": message["id"], "error": {"code": -32601, "message": "no"}}, 200
            )
        answer = self._answers[message["method"].replace("/", "_")]
        answer = await answer(message) if inspect.iscoroutinefunction(answer) else answer
        if answer is None:
            return await self._nothing(request)
        if isinstance(answer, Response):
            return answer
        body = answer if "error" in answer else {"result": answer}
        session = {"mcp-session-id": "one"} if message["method"] == "initialize" else {}
        return JSONResponse({"jsonrpc": "2.0", "id": message["id"], **body}, headers=session)

    async def _nothing(self, request):
        self.begun.set()
        self._cancelled.clear()
        over = [asyncio.create_task(request.receive()), asyncio.create_task(self._cancelled.wait())]
        _, waits = await asyncio.wait(over, return_when=asyncio.FIRST_COMPLETED)
        for task in waits:
            task.cancel()
        self.broken.set()
        return Response()

    async def _live(self, receive, send):
        for answer in ("lifespan.startup.complete", "lifespan.shutdown.complete"):
            await receive()
            await send({"type": answer})

    @asynccontextmanager
    async def listening(self):
        """Serve within the block, at `url`."""
        async with _running(self) as url:
            self.url = f"{url}/mcp"
            yield self


def _running(app):
    """Serve an application.  The import is here since the program needs no gateway, which takes long to import."""
    from support.app import running

    return running(app)


@asynccontextmanager
async def toys(**options):
    """Run Toys within the block."""
    async with Toys().listening(**options) as server:
        yield server


def program():
    """Return a section `tools` with this module as a server that is a program, which starts slowly on a busy machine."""
    command = [sys.executable, "-m", "support.mcp_server"]
    server = {"command": command, "env": {"PYTHONPATH": ":".join(sys.path)}, "require_approval": "never"}
    return {"mcp": {"servers": {"toys": server}, "connect_seconds": DEADLINE}}


def operators(server, label="toys", **options):
    """Return a section `tools` with this server; calls need no approval."""
    return {"mcp": {"servers": {label: {"url": server.url, "require_approval": "never", **options}}}}


if __name__ == "__main__":
    Toys().server.run()
