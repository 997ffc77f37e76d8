"""Search in files, as one answer uses it."""

import asyncio
from typing import Any

from msgspec import DecodeError, Struct, json

from gateway import config
from gateway.hosted import BuiltinToolResult, BuiltinToolRun, files
from gateway.server.tools.service import ToolServerClient
from gateway.server.tools.target import ToolServerError
from gateway.server.tools.toolbox import ToolOffer
from gateway.server.tools.web import ProviderContext


class _FileSearchArguments(Struct):
    query: str


_decode_file_query = json.Decoder(_FileSearchArguments).decode


def file_search_client(settings: config.FileSearchSettings) -> ToolServerClient | None:
    key = settings.api_key
    headers = {"authorization": f"Bearer {key.get_secret_value()}"} if key else {}
    return ToolServerClient("file search", settings.url, headers) if settings.url else None


class FileSearchProvider:
    """definition: of the tool, as the client wrote it."""

    def __init__(self, definition: dict[str, Any], service: ToolServerClient, beside: ProviderContext) -> None:
        self._definition, self._service, self._beside = definition, service, beside

    async def offer(self) -> ToolOffer:
        return ToolOffer([files.file_search_tool()])

    async def run(self, run: BuiltinToolRun) -> BuiltinToolResult:
        try:
            query = _decode_file_query(run.arguments).query
        except (DecodeError, RecursionError):
            return BuiltinToolResult(run.id, "There has to be a 'query', which is a text.", run.ours.failed(""))
        try:
            said = await asyncio.gather(*map(self._service.ask, files.store_queries(self._definition, query)))
        except ToolServerError as error:
            return BuiltinToolResult(run.id, str(error), {**run.ours.failed(""), "queries": [query]})
        found = [passage for one in said for passage in files.read_passages(one)]
        text, results = files.passages_result(found, files.max_results(self._definition), self._beside.sources)
        text = self._beside.told(text, "file_search_call.results")
        return BuiltinToolResult(run.id, text, {"queries": [query], "results": results})

    async def close(self) -> None:
        """Do nothing: its resources belong to the gateway."""
