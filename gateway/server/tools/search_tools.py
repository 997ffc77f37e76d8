"""Provide web search and file search to one response, by the configured service."""

import asyncio
import logging
import sys
from asyncio.subprocess import DEVNULL, PIPE
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Protocol

from msgspec import DecodeError, Struct, json

from gateway import config
from gateway.builtin_tools import BuiltinToolResult, BuiltinToolRun, Sources, file_search, web_search
from gateway.builtin_tools.search_engines import ENGINES, SearchEngine, SearchHit, SearchQuery, is_page, make_hit
from gateway.builtin_tools.untrusted_text import truncate_fenced
from gateway.installation import install_command
from gateway.request import Message
from gateway.server import httpx
from gateway.server.child_process import run_child
from gateway.server.fetch.fetcher import FetchedContent, Fetcher, FetchKind, FetchTooLarge
from gateway.server.fetch.pdf_reader import Pdfs
from gateway.server.fetch.ssrf_guard import FetchFailed, SsrfGuard, UrlFilter, address_filter, any_url, fetch_errors
from gateway.server.tools.tool_server import ToolServerClient, ToolServerError
from gateway.server.tools.toolset import ToolOffer
from gateway.transforms.attachments import is_pdf, text_of_file
from gateway.warnings import Warnings

PACKAGE = "html_to_markdown"
_PROGRAM = str(Path(__file__).with_name("html_reader.py"))
_SORT = FetchKind("page", "text/html, text/plain;q=0.9, application/pdf;q=0.8, */*;q=0.1", "")
_HTML = ("text/html", "application/xhtml+xml")
_GONE = "The page could not be fetched."
_log = logging.getLogger("gateway")
_decode_arguments = json.Decoder(dict[str, Any]).decode
_FORBIDDEN = "This page was not opened: its domain is not among the allowed domains."
_UNKNOWN = "This page was not opened: its address is neither in the user's messages nor in the search results."


class WebPageFetcher:
    """Fetch web pages, within the configured limits."""

    def __init__(self, settings: config.FetchSettings, pdfs: Pdfs) -> None:
        self._settings, self._pdfs = settings, pdfs
        self._guard = SsrfGuard(address_filter(settings.networks, settings.ports))

    async def fetch_page(self, url: str, within: UrlFilter = any_url) -> web_search.WebPage:
        """Return a page as text; raise ToolServerError.  within: the URLs that a redirect may lead to."""
        if not is_page(url):
            raise ToolServerError("This is not the address of a page: it must start with http:// or https://.")
        try:
            async with asyncio.timeout(self._settings.seconds):
                return await self._page(url, within)
        except (FetchFailed, TimeoutError):
            raise ToolServerError(_GONE) from None
        except FetchTooLarge:
            raise ToolServerError(f"The page is larger than {self._settings.max_bytes} bytes.") from None

    async def _page(self, url: str, within: UrlFilter) -> web_search.WebPage:
        with fetch_errors():
            request = httpx.Request("GET", url, headers={"accept": _SORT.accept})
            fetched = await Fetcher(self._settings, _SORT, self._guard).get(request, within)
        text = await self._text(fetched)
        title = ""
        if fetched.type.partition(";")[0].strip().lower() in _HTML:
            title, _, text = (await _read(text, url)).partition("\n")
        if not text.strip():
            raise ToolServerError("The page contains no readable text.")
        return web_search.make_page(url, title, text)

    async def _text(self, fetched: FetchedContent) -> str:
        """Return the text; "" for compressed content, whose full size is unknown."""
        if fetched.packed:
            return ""
        if is_pdf(fetched.data):
            return (await self._pdfs.text(fetched.data, "", self._settings.seconds))[0]
        return await asyncio.to_thread(text_of_file, fetched.type, fetched.data)


def can_read_html() -> bool:
    """Return True if the package that reads HTML is installed."""
    return find_spec(PACKAGE) is not None


async def _read(html: str, url: str) -> str:
    """Return the title and the Markdown of a page, read by a process without secrets."""
    command = (sys.executable, "-I", _PROGRAM, url)
    async with run_child(*command, stdin=PIPE, stdout=PIPE, stderr=DEVNULL, env={}) as process:
        data, _ = await process.communicate(html.encode(errors="replace"))
    return data.decode()


class SearchService(Protocol):
    """The interface of a web search service."""

    async def search(self, query: SearchQuery) -> list[SearchHit]:
        """Return the hits of a query; raise ToolServerError."""

    async def close(self) -> None:
        """Close the connections."""


class EngineSearch:
    """Search by the API of a search engine."""

    def __init__(self, engine: SearchEngine, settings: config.WebSearchSettings) -> None:
        name, before = engine.auth_header
        key = settings.api_key
        headers = {name: f"{before}{key.get_secret_value()}"} if key else {}
        self._engine = engine
        self._service = ToolServerClient("search service", settings.url or engine.root, headers)

    async def search(self, query: SearchQuery) -> list[SearchHit]:
        """Return the hits of a query; raise ToolServerError."""
        return self._engine.read_hits(await self._service.ask(self._engine.ask(query)), query)

    async def close(self) -> None:
        """Close the connections."""
        await self._service.close()


class StaticSearch:
    """Search in configured pages: a hit has at least one word of the query."""

    def __init__(self, found: Sequence[config.StaticSearchResult]) -> None:
        self._hits = [make_hit(one.url, one.title, one.text) for one in found]

    async def search(self, query: SearchQuery) -> list[SearchHit]:
        """Return the hits of a query, in the order of the configuration."""
        words = query.text.lower().split()
        found = [hit for hit in self._hits if any(word in f"{hit.title} {hit.text}".lower() for word in words)]
        return [hit for hit in found if query.allows(hit.url)][: query.max_results]

    async def close(self) -> None:
        """Do nothing: it has no connections."""


def make_search_service(settings: config.WebSearchSettings) -> SearchService | None:
    """Return the configured search service; None if none is configured."""
    if settings.service is None:
        return None
    if settings.service == "static":
        return StaticSearch(settings.found)
    return EngineSearch(ENGINES[settings.service], settings)


class ProviderContext(Struct, frozen=True):
    """The values that the providers of one response share.

    messages: of its request; cited: annotations of earlier answers beside those in the messages.
    max_result_bytes: of a tool result for the model.
    """

    sources: Sources
    ledger: Warnings
    messages: Sequence[Message]
    max_result_bytes: int
    cited: Sequence[Any] = ()

    def fit_result(self, text: str, item: str) -> str:
        """Return the text cut to `max_result_bytes`, and note the warning `truncated:item` if it was longer."""
        short, was_cut = truncate_fenced(text, self.max_result_bytes)
        if was_cut:
            self.ledger.add("truncated", item)
        return short


WebServices = tuple[SearchService, WebPageFetcher | None]


def make_web_services(settings: config.WebSearchSettings, pdfs: Pdfs) -> WebServices | None:
    """Return the services for search and pages; None if none is configured."""
    if not (who := make_search_service(settings)):
        return None
    wanted = settings.pages.fetch
    if wanted and not can_read_html():
        _log.warning(
            "tools.web_search.pages needs the package 'html-to-markdown', which is not installed; run: %s",
            install_command("gateway[web]"),
        )
    return who, WebPageFetcher(settings.pages, pdfs) if wanted and can_read_html() else None


class WebSearchProvider:
    """Provide web search to one response.

    It opens only pages whose URL others have named: another URL could carry the conversation to a server.
    """

    def __init__(
        self,
        scope: web_search.SearchScope,
        search: SearchService,
        pages: WebPageFetcher | None,
        beside: ProviderContext,
    ) -> None:
        self._scope, self._search, self._pages, self._beside = scope, search, pages, beside
        self._results: list[str] = []
        self._page: web_search.WebPage | None = None  # the page opened last

    async def list_tools(self) -> ToolOffer:
        """Return the tools for search, and for pages if they can be fetched."""
        return ToolOffer(web_search.web_search_tools(self._scope, pages=self._pages is not None))

    async def run(self, run: BuiltinToolRun) -> BuiltinToolResult:
        """Run a tool call; a failure is part of the result."""
        action = web_search.ACTIONS[run.ours.tool.name]
        arguments = _decode_arguments(run.arguments or "{}")
        if lacking := action.missing_argument(arguments):
            why = f"The argument '{lacking}' must be a string."
            return BuiltinToolResult(run.id, why, run.ours.failed(""), "invalid_tool_input")
        try:
            result = await self._run(run.ours.tool.name, arguments)
        except ToolServerError as error:
            item = {**run.ours.failed(""), "action": action.item(arguments)}
            return BuiltinToolResult(run.id, str(error), item, error.reason)
        self._results.append(result.text)
        text = self._beside.fit_result(result.text, "web_search_call.results")
        return BuiltinToolResult(run.id, text, {"action": result.action, "results": result.results})

    async def close(self) -> None:
        """Do nothing: its resources belong to the gateway."""

    async def _run(self, name: str, data: dict[str, Any]) -> web_search.SearchActionResult:
        sources = self._beside.sources
        if name == "search":
            return web_search.search_result(await self._search.search(self._scope.query(data["query"])), data, sources)
        page = await self._opened(data["url"])
        return (
            web_search.open_page_result(page, data, self._scope, sources)
            if name == "open_page"
            else web_search.find_in_page_result(page, data, sources)
        )

    async def _opened(self, url: str) -> web_search.WebPage:
        assert self._pages
        if self._page and self._page.url == url:
            return self._page
        if not self._scope.allows(url):
            raise ToolServerError(_FORBIDDEN, reason="url_not_allowed")
        if not self._is_known(url):
            raise ToolServerError(_UNKNOWN, reason="url_not_allowed")
        self._page = await self._pages.fetch_page(url, self._scope.allows)
        return self._page

    def _is_known(self, url: str) -> bool:
        named = web_search.named_text(self._beside.messages, self._beside.cited)
        return any(url.rstrip("/") in text for text in (*self._results, named))


class _FileSearchArguments(Struct):
    query: str


_decode_file_query = json.Decoder(_FileSearchArguments).decode


def file_search_client(settings: config.FileSearchSettings) -> ToolServerClient | None:
    """Return the client of the configured file search; None if none is configured."""
    key = settings.api_key
    headers = {"authorization": f"Bearer {key.get_secret_value()}"} if key else {}
    return ToolServerClient("file search", settings.url, headers) if settings.url else None


class FileSearchProvider:
    """Provide file search to one response.  definition: of the tool, as the client wrote it."""

    def __init__(self, definition: dict[str, Any], service: ToolServerClient, beside: ProviderContext) -> None:
        self._definition, self._service, self._beside = definition, service, beside

    async def list_tools(self) -> ToolOffer:
        """Return the file search tool."""
        return ToolOffer([file_search.file_search_tool()])

    async def run(self, run: BuiltinToolRun) -> BuiltinToolResult:
        """Search all stores of the definition; a failure is part of the result."""
        try:
            query = _decode_file_query(run.arguments).query
        except (DecodeError, RecursionError):
            return BuiltinToolResult(run.id, "The argument 'query' must be a string.", run.ours.failed(""))
        try:
            items = await asyncio.gather(*map(self._service.ask, file_search.store_queries(self._definition, query)))
        except ToolServerError as error:
            return BuiltinToolResult(run.id, str(error), {**run.ours.failed(""), "queries": [query]})
        found = [passage for one in items for passage in file_search.read_passages(one)]
        text, results = file_search.passages_result(
            found, file_search.max_results(self._definition), self._beside.sources
        )
        text = self._beside.fit_result(text, "file_search_call.results")
        return BuiltinToolResult(run.id, text, {"queries": [query], "results": results})

    async def close(self) -> None:
        """Do nothing: its resources belong to the gateway."""
