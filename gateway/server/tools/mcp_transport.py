"""Connect to servers of the Model Context Protocol.  Only this module uses the SDK; the first session imports it."""

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager, contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TextIO

import anyio
import httpx
import httpx2
from mcp import Client, MCPError
from mcp.client._transport import Transport, TransportStreams
from mcp.client.session import IncomingMessage
from mcp.client.sse import sse_client
from mcp.client.stdio import StdioServerParameters, stdio_client
from mcp.client.streamable_http import streamable_http_client
from mcp_types import CONNECTION_CLOSED, INVALID_REQUEST, Implementation, ToolListChangedNotification

from gateway import __version__, config
from gateway.builtin_tools.untrusted_text import strip_template_tokens
from gateway.server.fetch.ssrf_guard import FetchFailed, SsrfGuard, address_filter
from gateway.server.tools.tool_server import ToolServer, ToolServerError

_MAX = 8 << 20  # bytes of one response, or of one event
_EVENTS = "text/event-stream"
_IDENTITY = {"accept-encoding": "identity", "user-agent": f"gateway/{__version__}"}  # compressed data can grow
_OF_A_CONNECTION = frozenset(("host", "connection", "transfer-encoding"))
_TERMINATED = "Session terminated"  # the SDK's error for a session that the server does not know
_GRACE = 1.0  # seconds that a server has to end a cancelled request
_LASTING = b'"method":"subscriptions/listen"'  # a request that lasts as long as its session
_CALL = b'"method":"tools/call"'
_LONGEST = 2_000  # characters of a server's error message
_OURS = Implementation(name="gateway", version=__version__)

_CLOSED = (anyio.ClosedResourceError, anyio.BrokenResourceError, anyio.EndOfStream)
# All errors of the SDK, servers and connections; ValueError and RuntimeError are for data that breaks its schema.
FAILURES = (MCPError, httpx2.HTTPError, httpx2.InvalidURL, OSError, ValueError, RuntimeError, ExceptionGroup, *_CLOSED)


def tool_server_error(error: Exception) -> ToolServerError:
    """Return an error whose message reveals nothing about the network of the gateway."""
    if isinstance(error, ExceptionGroup):
        return tool_server_error(error.exceptions[0])
    if isinstance(error, MCPError):
        return ToolServerError(
            f"The server reported an error: {strip_template_tokens(error.message)[:_LONGEST]}", error.code
        )
    if isinstance(error, TimeoutError):
        return ToolServerError("The server did not respond in time.")
    if isinstance(error, httpx2.HTTPError | httpx2.InvalidURL | OSError | anyio.ClosedResourceError):
        return ToolServerError("The server cannot be reached.")
    return ToolServerError("The server's response violates the protocol, or the schema that the server declared.")


def is_session_unknown(error: Exception) -> bool:
    """Return True if the server no longer knows the session, so the request can be repeated in a new one."""
    return isinstance(error, MCPError) and error.code == INVALID_REQUEST and error.message == _TERMINATED


def is_session_over(error: Exception) -> bool:
    """Return True if the session cannot be used any more."""
    return is_session_unknown(error) or (isinstance(error, MCPError) and error.code == CONNECTION_CLOSED)


@asynccontextmanager
async def connect(
    target: ToolServer, settings: config.McpSettings, gone: Callable[[], None], changed: Callable[[], None]
) -> AsyncIterator[Client]:
    """Yield a client in a session with the server.

    gone: called when the server has ended the session; changed: called when its tools have changed.
    """

    async def on_message(message: IncomingMessage) -> None:
        if isinstance(message, ToolListChangedNotification):
            changed()

    async with AsyncExitStack() as stack:
        transport = await _transport(target, settings, stack)
        client = Client(_WatchedTransport(transport, gone), client_info=_OURS, message_handler=on_message)
        await stack.enter_async_context(client)
        listening = asyncio.create_task(_listen(client, changed))
        stack.push_async_callback(_broken_off, listening)
        yield client


async def _listen(client: Client, changed: Callable[[], None]) -> None:
    """Subscribe to changes of the tools.

    Newer versions of the protocol need that; older servers notify without a subscription.
    """
    tools = client.server_capabilities.tools
    if tools and tools.list_changed:
        with suppress(*FAILURES):
            async with client.listen(tools_list_changed=True) as changes:
                async for _ in changes:
                    changed()


async def _broken_off(task: asyncio.Task[None]) -> None:
    task.cancel()
    await asyncio.wait((task,))


async def _transport(target: ToolServer, settings: config.McpSettings, stack: AsyncExitStack) -> Transport:
    if target.command:
        command, *arguments = target.command
        parameters = StdioServerParameters(command=command, args=arguments, env=target.env)
        return stdio_client(parameters, stack.enter_context(_nobody()))
    http = _http(target, settings)
    if target.transport == "sse":

        def same(
            headers: dict[str, str] | None = None,
            timeout: httpx2.Timeout | None = None,
            auth: httpx2.Auth | None = None,
        ) -> httpx2.AsyncClient:
            return http

        return sse_client(target.url, httpx_client_factory=same)
    return streamable_http_client(
        target.url, http_client=await stack.enter_async_context(http), max_sse_event_size=_MAX
    )


@contextmanager
def _nobody() -> Iterator[TextIO]:
    """Yield a file that discards the standard error of a program."""
    with Path(os.devnull).open("w", encoding="utf-8") as file:
        yield file


def _http(target: ToolServer, settings: config.McpSettings) -> httpx2.AsyncClient:
    inner: httpx2.AsyncBaseTransport = httpx2.AsyncHTTPTransport(trust_env=False)
    if target.guarded:
        inner = GuardedHttpTransport(SsrfGuard(address_filter(settings.networks, settings.ports)))
    timeout = httpx2.Timeout(None, connect=settings.connect_seconds)
    headers = {**_IDENTITY, **target.headers}
    bounded = BoundedHttpTransport(inner, target.seconds, settings.connect_seconds)
    return httpx2.AsyncClient(headers=headers, transport=bounded, timeout=timeout, trust_env=False)


class _WatchedTransport(AbstractAsyncContextManager[TransportStreams]):
    """A transport that calls `gone` at its end."""

    def __init__(self, transport: Transport, gone: Callable[[], None]) -> None:
        self._transport, self._gone = transport, gone

    async def __aenter__(self) -> TransportStreams:
        read, write = await self._transport.__aenter__()
        data: Any = _WatchedStream(read, self._gone)
        return data, write

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        return await self._transport.__aexit__(kind, error, trace)


class _WatchedStream:
    """The incoming messages of a server; calls `gone` when the reader leaves, as there are no more."""

    def __init__(self, stream: Any, gone: Callable[[], None]) -> None:  # noqa: ANN401 - the SDK has several
        self._stream, self._gone = stream, gone

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - as above
        return getattr(self._stream, name)

    def __aiter__(self) -> Any:  # noqa: ANN401 - as above
        return aiter(self._stream)

    async def __aenter__(self) -> Self:
        await self._stream.__aenter__()
        return self

    async def __aexit__(self, *reason: Any) -> bool | None:  # noqa: ANN401 - as above
        self._gone()
        left: bool | None = await self._stream.__aexit__(*reason)
        return left


class GuardedHttpTransport(httpx2.AsyncBaseTransport):
    """A transport for the SDK's HTTP client that sends requests through the SSRF guard."""

    def __init__(self, guard: SsrfGuard) -> None:
        self._guard = guard

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Send a request; raise httpx2.ConnectError if the guard refuses or the server cannot be reached."""
        headers = [(name, value) for name, value in request.headers.items() if name not in _OF_A_CONNECTION]
        there = httpx.Request(request.method, str(request.url), headers=headers, content=await request.aread())
        stack = AsyncExitStack()
        try:
            answer = await stack.enter_async_context(self._guard.answer(there))
        except FetchFailed:
            raise httpx2.ConnectError("unreachable", request=request) from None
        stream = _BoundedByteStream(answer.stream, stack.aclose)
        return httpx2.Response(answer.status_code, headers=answer.headers.multi_items(), stream=stream)


class BoundedHttpTransport(httpx2.AsyncBaseTransport):
    """Limit the size and the time of responses; in an event stream, the reader limits each event.

    call, other: seconds for a tool call, and for another request.  Older servers only get a notification that a request
    was cancelled, and may keep its response open.
    """

    def __init__(self, inner: httpx2.AsyncBaseTransport, call: float, other: float) -> None:
        self._inner, self._call, self._other = inner, call, other

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Send a request; respond with status 504 if it takes too long."""
        until = await self._until(request)
        try:
            async with asyncio.timeout_at(until):
                answer = await self._inner.handle_async_request(request)
        except TimeoutError:
            return httpx2.Response(504, request=request)  # an error would end the session, and its other calls
        most = float("inf") if answer.headers.get("content-type", "").startswith(_EVENTS) else _MAX
        stream = _BoundedByteStream(answer.stream, answer.aclose, most, until)
        return httpx2.Response(answer.status_code, headers=answer.headers, stream=stream, extensions=answer.extensions)

    async def _until(self, request: httpx2.Request) -> float | None:
        data = await request.aread()
        if request.method == "GET" or _LASTING in data:
            return None
        return asyncio.get_running_loop().time() + (self._call if _CALL in data else self._other) + _GRACE

    async def aclose(self) -> None:
        """Close the inner transport."""
        await self._inner.aclose()


class _BoundedByteStream(httpx2.AsyncByteStream):
    """The bytes of another stream, with a limit of bytes and a time limit."""

    def __init__(
        self,
        stream: Any,  # noqa: ANN401 - httpx has it as well
        close: Callable[[], Any],
        most: float = float("inf"),
        until: float | None = None,
    ) -> None:
        self._stream, self._close, self._left, self._until = stream, close, most, until

    async def __aiter__(self) -> AsyncIterator[bytes]:
        pieces = aiter(self._stream)
        while (piece := await self._next(pieces)) is not None:
            self._left -= len(piece)
            if self._left < 0:
                raise httpx2.StreamError("The response is too long.")
            yield piece

    async def _next(self, pieces: AsyncIterator[bytes]) -> bytes | None:
        try:
            async with asyncio.timeout_at(self._until):
                return await anext(pieces, None)
        except TimeoutError:
            raise httpx2.StreamError("The response takes too long.") from None
        except (httpx.HTTPError, FetchFailed):
            raise httpx2.ReadError("unreachable") from None

    async def aclose(self) -> None:
        await self._close()
