"""Search on the web, as one answer uses it."""

import logging
from collections.abc import Sequence
from typing import Any

from msgspec import Struct, json

from gateway import config
from gateway.hosted import BuiltinToolResult, BuiltinToolRun, Sources, web
from gateway.hosted.untrusted import truncate_fenced
from gateway.ledger import Warnings
from gateway.request import Message
from gateway.server.pdfs import Pdfs
from gateway.server.tools.pages import WebPageFetcher, can_read_html
from gateway.server.tools.searching import SearchService, make_search_service
from gateway.server.tools.target import ToolServerError
from gateway.server.tools.toolbox import ToolOffer

_log = logging.getLogger("gateway")

_decode_arguments = json.Decoder(dict[str, Any]).decode
_UNKNOWN = "This page is not opened: its address is in nothing that the user has said or that was found."


class ProviderContext(Struct, frozen=True):
    """The values that the providers of one response share.

    messages: of its request; most: bytes of what the model is told of a call.
    """

    sources: Sources
    ledger: Warnings
    messages: Sequence[Message]
    most: int

    def told(self, text: str, item: str) -> str:
        short, was_cut = truncate_fenced(text, self.most)
        if was_cut:
            self.ledger.note("truncated", item)
        return short


WebServices = tuple[SearchService, WebPageFetcher | None]


def make_web_services(settings: config.WebSearchSettings, pdfs: Pdfs) -> WebServices | None:
    """Return the services for search and pages; None if none is configured."""
    if not (who := make_search_service(settings)):
        return None
    wanted = settings.pages.fetch
    if wanted and not can_read_html():
        _log.warning("tools.web_search.pages needs the package 'html-to-markdown': pip install 'gateway[web]'")
    return who, WebPageFetcher(settings.pages, pdfs) if wanted and can_read_html() else None


class WebSearchProvider:
    """Opens only pages whose address it, or the model, was told: none that carries away what was said here."""

    def __init__(
        self, scope: web.SearchScope, search: SearchService, pages: WebPageFetcher | None, beside: ProviderContext
    ) -> None:
        self._scope, self._search, self._pages, self._beside = scope, search, pages, beside
        self._told: list[str] = []
        self._page: web.WebPage | None = None  # that was opened last

    async def offer(self) -> ToolOffer:
        return ToolOffer(web.web_search_tools(self._scope, pages=self._pages is not None))

    async def run(self, run: BuiltinToolRun) -> BuiltinToolResult:
        action = web.ACTIONS[run.ours.tool.name]
        arguments = _decode_arguments(run.arguments or "{}")
        if lacking := action.lacks(arguments):
            return BuiltinToolResult(run.id, f"There has to be a '{lacking}', which is a text.", run.ours.failed(""))
        try:
            told = await self._run(run.ours.tool.name, arguments)
        except ToolServerError as error:
            return BuiltinToolResult(run.id, str(error), {**run.ours.failed(""), "action": action.item(arguments)})
        self._told.append(told.text)
        text = self._beside.told(told.text, "web_search_call.results")
        return BuiltinToolResult(run.id, text, {"action": told.action, "results": told.results})

    async def close(self) -> None:
        """Do nothing: its resources belong to the gateway."""

    async def _run(self, name: str, said: dict[str, Any]) -> web.SearchActionResult:
        sources = self._beside.sources
        if name == "search":
            return web.search_result(await self._search.hits(self._scope.query(said["query"])), said, sources)
        page = await self._opened(said["url"])
        return (
            web.open_page_result(page, said, self._scope, sources)
            if name == "open_page"
            else web.find_in_page_result(page, said, sources)
        )

    async def _opened(self, url: str) -> web.WebPage:
        assert self._pages
        if self._page and self._page.url == url:
            return self._page
        if not self._scope.allows(url):
            raise ToolServerError("This page is not opened: only some domains may be asked, and this is none of them.")
        if not self._is_known(url):
            raise ToolServerError(_UNKNOWN)
        self._page = await self._pages.page(url, self._scope.allows)
        return self._page

    def _is_known(self, url: str) -> bool:
        return any(url.rstrip("/") in text for text in (*self._told, str(self._beside.messages)))
