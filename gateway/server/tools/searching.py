"""Search the web by the configured service."""

from collections.abc import Sequence
from typing import Protocol

from gateway import config
from gateway.hosted.search import ENGINES, SearchEngine, SearchHit, SearchQuery, is_within, make_hit
from gateway.server.tools.service import ToolServerClient


class SearchService(Protocol):
    """hits: raises ToolServerError."""

    async def hits(self, query: SearchQuery) -> list[SearchHit]: ...
    async def close(self) -> None: ...


class EngineSearch:
    def __init__(self, engine: SearchEngine, settings: config.WebSearchSettings) -> None:
        name, before = engine.head
        key = settings.api_key
        headers = {name: f"{before}{key.get_secret_value()}"} if key else {}
        self._engine = engine
        self._service = ToolServerClient("search service", settings.url or engine.root, headers)

    async def hits(self, query: SearchQuery) -> list[SearchHit]:
        return self._engine.hits(await self._service.ask(self._engine.ask(query)), query)

    async def close(self) -> None:
        await self._service.close()


class StaticSearch:
    """Pages that are written down, which have a word of the query."""

    def __init__(self, found: Sequence[config.StaticSearchResult]) -> None:
        self._hits = [make_hit(one.url, one.title, one.text) for one in found]

    async def hits(self, query: SearchQuery) -> list[SearchHit]:
        words = query.text.lower().split()
        found = [hit for hit in self._hits if any(word in f"{hit.title} {hit.text}".lower() for word in words)]
        return [hit for hit in found if is_within(hit.url, query.domains)][: query.most]

    async def close(self) -> None:
        """Do nothing: it has nothing open."""


def make_search_service(settings: config.WebSearchSettings) -> SearchService | None:
    if settings.service is None:
        return None
    if settings.service == "static":
        return StaticSearch(settings.found)
    return EngineSearch(ENGINES[settings.service], settings)
