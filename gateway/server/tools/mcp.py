"""A server of the Model Context Protocol, as one answer uses it."""

from collections.abc import Sequence
from typing import Any

from msgspec import DecodeError, json

from gateway.hosted import BuiltinToolResult, BuiltinToolRun
from gateway.hosted import mcp as protocol
from gateway.ledger import Warnings
from gateway.server.ids import new_id
from gateway.server.tools.sessions import McpSession
from gateway.server.tools.target import ToolServerError
from gateway.server.tools.toolbox import ToolOffer

_decode = json.Decoder(dict[str, Any]).decode


class McpProvider:
    """listed: the tool list that the client has; own: the session belongs to this response alone."""

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

    async def offer(self) -> ToolOffer:
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
        try:
            arguments = _decode(run.arguments or "{}")
            said = await self._session.call(run.ours.tool.name, arguments)
        except (DecodeError, RecursionError):
            why = "The arguments are no JSON object."
            return BuiltinToolResult(run.id, why, protocol.failed_item(why))
        except ToolServerError as error:
            return BuiltinToolResult(run.id, str(error), protocol.failed_item(str(error), error.code))
        content, item, cut = protocol.call_result(said, self._most)
        if cut:
            self._ledger.note("truncated", "mcp_call.output")
        return BuiltinToolResult(run.id, content, item)

    async def close(self) -> None:
        if self._own:
            await self._session.close()
