"""Search in files, as one answer uses it."""

import asyncio
from typing import Any

from msgspec import DecodeError, Struct, json

from gateway import config
from gateway.hosted import Result, Run, files
from gateway.server.tools.service import Service
from gateway.server.tools.target import ServerFailed
from gateway.server.tools.toolbox import Offer
from gateway.server.tools.web import Beside


class _Arguments(Struct):
    query: str


_decode = json.Decoder(_Arguments).decode


def service(settings: config.FileSearch) -> Service | None:
    key = settings.api_key
    headers = {"authorization": f"Bearer {key.get_secret_value()}"} if key else {}
    return Service("file search", settings.url, headers) if settings.url else None


class FilesProvider:
    """definition: of the tool, as the client wrote it."""

    def __init__(self, definition: dict[str, Any], service: Service, beside: Beside) -> None:
        self._definition, self._service, self._beside = definition, service, beside

    async def offer(self) -> Offer:
        return Offer([files.ours()])

    async def run(self, run: Run) -> Result:
        try:
            query = _decode(run.arguments).query
        except (DecodeError, RecursionError):
            return Result(run.id, "There has to be a 'query', which is a text.", run.ours.failed(""))
        try:
            said = await asyncio.gather(*map(self._service.ask, files.asks(self._definition, query)))
        except ServerFailed as error:
            return Result(run.id, str(error), {**run.ours.failed(""), "queries": [query]})
        found = [passage for one in said for passage in files.passages(one)]
        text, results = files.told(found, files.most(self._definition), self._beside.sources)
        text = self._beside.told(text, "file_search_call.results")
        return Result(run.id, text, {"queries": [query], "results": results})

    async def close(self) -> None:
        """What it uses is the gateway's."""
