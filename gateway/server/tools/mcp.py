"""A server of the Model Context Protocol, as one answer uses it."""

from collections.abc import Sequence
from typing import Any

from msgspec import DecodeError, json

from gateway.hosted import Result, Run
from gateway.hosted import mcp as protocol
from gateway.ledger import Ledger
from gateway.server.ids import new_id
from gateway.server.tools.sessions import Session
from gateway.server.tools.target import ServerFailed
from gateway.server.tools.toolbox import Offer

_decode = json.Decoder(dict[str, Any]).decode


class McpProvider:
    """listed: what the client has been told of its tools before; own: the session is this answer's alone."""

    def __init__(
        self,
        server: protocol.Server,
        session: Session,
        listed: Sequence[dict[str, Any]] | None,
        ledger: Ledger,
        most_bytes: int,
        *,
        own: bool = False,
    ) -> None:
        self._server, self._session, self._listed = server, session, listed
        self._ledger, self._most, self._own = ledger, most_bytes, own

    async def offer(self) -> Offer:
        server = self._server
        if self._listed is not None:
            return Offer([server.ours(tool) for tool in server.tools(self._listed)])
        id = new_id("mcpl_")
        try:
            tools = server.tools(await self._session.tools())
        except ServerFailed as error:
            return Offer([], protocol.told(id, server.label, [], str(error)))
        return Offer([server.ours(tool) for tool in tools], protocol.told(id, server.label, tools))

    async def run(self, run: Run) -> Result:
        try:
            arguments = _decode(run.arguments or "{}")
            said = await self._session.call(run.ours.tool.name, arguments)
        except (DecodeError, RecursionError):
            why = "The arguments are no JSON object."
            return Result(run.id, why, protocol.failed(why))
        except ServerFailed as error:
            return Result(run.id, str(error), protocol.failed(str(error), error.code))
        content, item, cut = protocol.result(said, self._most)
        if cut:
            self._ledger.note("truncated", "mcp_call.output")
        return Result(run.id, content, item)

    async def close(self) -> None:
        if self._own:
            await self._session.close()
