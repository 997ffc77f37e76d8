"""Provide the tools of an MCP server to one response, in sessions with the server.

The SDK is imported with the first session.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from importlib import import_module
from math import inf
from typing import TYPE_CHECKING, Any, TypeVar

import anyio
from msgspec import DecodeError, json

from gateway import config
from gateway.builtin_tools import BuiltinToolResult, BuiltinToolRun
from gateway.builtin_tools import mcp as protocol
from gateway.server.ids import new_id
from gateway.server.tools.tool_server import ToolServer, ToolServerError
from gateway.server.tools.toolset import ToolOffer
from gateway.warnings import Warnings

if TYPE_CHECKING:
    from mcp import Client


_T = TypeVar("_T")
_PAGES = 100  # of one list
_CLOSING = 5.0  # seconds for the end of a session
# Members of a tool: the protocol's name, and the API's.
_MEMBERS = {"name": "name", "description": "description", "inputSchema": "input_schema", "annotations": "annotations"}
_CLOSED = "The session was closed."
_decode = json.Decoder(dict[str, Any]).decode


class McpSession:
    """A session with an MCP server that begins at its first use, and again after it has ended.

    Several calls may share it.
    """

    def __init__(self, target: ToolServer, settings: config.McpSettings) -> None:
        self._target, self._settings = target, settings
        self._life: _SessionTask | None = None
        self._listed: list[dict[str, Any]] = []
        self._fresh_until = float("-inf")
        self._changes = 0

    async def tools(self) -> list[dict[str, Any]]:
        """Return the server's tools in the form of the API, cached for `list_seconds`; raise ToolServerError."""
        now = asyncio.get_running_loop().time
        if now() >= self._fresh_until:
            changes = self._changes
            try:
                async with asyncio.timeout(self._settings.connect_seconds):
                    self._listed = await self._with(_listed)
            except TimeoutError:
                seconds = f"{self._settings.connect_seconds:g} s (tools.mcp.connect_seconds)"
                raise ToolServerError(f"The server did not list its tools within {seconds}.") from None
            if changes == self._changes:
                self._fresh_until = now() + self._settings.list_seconds
        return self._listed

    async def call_tool(self, name: str, arguments: dict[str, Any]) -> dict[str, Any]:
        """Call a tool; return the protocol's CallToolResult as JSON data, or raise ToolServerError."""

        async def call(client: "Client") -> dict[str, Any]:
            result = await client.call_tool(name, arguments)
            return result.model_dump(mode="json", by_alias=True, exclude_none=True)

        return await self._with(call)

    async def close(self) -> None:
        """End the session, within 5 s."""
        life, self._life = self._life, None
        if life:
            task = life.end()
            await asyncio.wait((task,), timeout=_CLOSING)
            task.cancel()  # in case it has not ended by then

    def _changed(self) -> None:
        """Expire the list of tools; called when the server reports a change."""
        self._changes += 1
        self._fresh_until = float("-inf")

    async def _with(self, use: Callable[["Client"], Awaitable[_T]]) -> _T:
        """Return the result of `use`, in a new session if the server does not know the old one."""
        await asyncio.to_thread(import_module, "gateway.server.tools.mcp_transport")  # streams continue meanwhile
        from gateway.server.tools import mcp_transport  # noqa: PLC0415 - takes a second

        try:
            return await use(await self._client())
        except mcp_transport.FAILURES as error:
            if mcp_transport.is_session_over(error) and self._life:
                self._life.end()
                self._life = None
            if not mcp_transport.is_session_unknown(error):
                raise mcp_transport.tool_server_error(error) from None
        try:
            return await use(await self._client())
        except mcp_transport.FAILURES as error:
            raise mcp_transport.tool_server_error(error) from None

    async def _client(self) -> "Client":
        if not self._life or self._life.over.is_set():
            self._life = _SessionTask(self._target, self._settings, self._changed)
        client = await asyncio.shield(self._life.client)
        if isinstance(client, ToolServerError):
            raise ToolServerError(str(client), client.code)
        return client


class _SessionTask:
    """A session in a task of its own, as the SDK requires it.

    client: the client, or the error of the connection.  The error is a result and not raised, as its traceback would
    keep frames.  over: set to end the session.
    """

    def __init__(self, target: ToolServer, settings: config.McpSettings, changed: Callable[[], None]) -> None:
        self._target, self._settings, self._changed = target, settings, changed
        self.client: asyncio.Future[Client | ToolServerError] = asyncio.get_running_loop().create_future()
        self.over = asyncio.Event()
        # Not a timeout of asyncio: it would also cancel the SDK's end of a program, and leave the program running.
        self._scope = anyio.CancelScope()
        self._task = asyncio.create_task(self._live())

    def end(self) -> asyncio.Task[None]:
        self.over.set()
        if not self.client.done():
            self._scope.cancel()
        return self._task

    async def _live(self) -> None:
        from gateway.server.tools import mcp_transport  # noqa: PLC0415 - takes a second

        why = ToolServerError(_CLOSED)
        try:
            with self._scope as scope:
                scope.deadline = anyio.current_time() + self._settings.connect_seconds
                session = mcp_transport.connect(self._target, self._settings, self.over.set, self._changed)
                async with session as client:
                    scope.deadline = inf
                    self.client.set_result(client)
                    await self.over.wait()
            if scope.deadline <= anyio.current_time():
                raise TimeoutError
        except mcp_transport.FAILURES as error:
            why = mcp_transport.tool_server_error(error)
        finally:
            self.over.set()
            if not self.client.done():
                self.client.set_result(why)


async def _listed(client: "Client") -> list[dict[str, Any]]:
    tools: list[dict[str, Any]] = []
    cursor: str | None = None
    for _ in range(_PAGES):
        page = await client.list_tools(cursor=cursor)
        tools += [_tool(tool.model_dump(mode="json", by_alias=True, exclude_none=True)) for tool in page.tools]
        if not (cursor := page.next_cursor):
            break
    return tools


def _tool(data: dict[str, Any]) -> dict[str, Any]:
    return {ours: data[theirs] for theirs, ours in _MEMBERS.items() if theirs in data}


class McpProvider:
    """Provide the tools of an MCP server to one response.

    listed: the list of tools that the client has sent back; own: the session belongs to this response and ends with it.
    """

    def __init__(
        self,
        server: protocol.McpServerDefinition,
        session: McpSession,
        listed: Sequence[dict[str, Any]] | None,
        ledger: Warnings,
        most_bytes: int,
        *,
        own: bool = False,
    ) -> None:
        self._server, self._session, self._listed = server, session, listed
        self._ledger, self._most, self._own = ledger, most_bytes, own

    async def list_tools(self) -> ToolOffer:
        """Return the tools, with the events of a new list; a failure is part of the events."""
        server = self._server
        if self._listed is not None:
            return ToolOffer([server.ours(tool) for tool in server.tools(self._listed)])
        id = new_id("mcpl_")
        try:
            tools = server.tools(await self._session.tools())
        except ToolServerError as error:
            return ToolOffer([], protocol.list_events(id, server.label, [], str(error)))
        return ToolOffer([server.ours(tool) for tool in tools], protocol.list_events(id, server.label, tools))

    async def run(self, run: BuiltinToolRun) -> BuiltinToolResult:
        """Call a tool; a failure is part of the result."""
        try:
            arguments = _decode(run.arguments or "{}")
            data = await self._session.call_tool(run.ours.tool.name, arguments)
        except (DecodeError, RecursionError):
            why = "The arguments are not a JSON object."
            return BuiltinToolResult(run.id, why, protocol.failed_item(why))
        except ToolServerError as error:
            return BuiltinToolResult(run.id, str(error), protocol.failed_item(str(error), error.code))
        content, item, cut = protocol.call_result(data, self._most)
        if cut:
            self._ledger.add("truncated", "mcp_call.output")
        return BuiltinToolResult(run.id, content, item)

    async def close(self) -> None:
        """Close the session, if it belongs to this response."""
        if self._own:
            await self._session.close()
