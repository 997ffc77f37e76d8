"""Fetch pages of the web from public addresses, and read them as text."""

import asyncio
import sys
from asyncio.subprocess import DEVNULL, PIPE
from importlib.util import find_spec
from pathlib import Path

from gateway import config
from gateway.builtin_tools import web_search
from gateway.builtin_tools.search_engines import is_page
from gateway.server import httpx
from gateway.server.child_process import run_child
from gateway.server.fetch.fetcher import FetchedContent, Fetcher, FetchKind, FetchTooLarge
from gateway.server.fetch.pdf_reader import Pdfs
from gateway.server.fetch.ssrf_guard import FetchFailed, SsrfGuard, UrlFilter, address_filter, any_url, fetch_errors
from gateway.server.tools.tool_server import ToolServerError
from gateway.transforms.attachments import is_pdf, text_of_file

PACKAGE = "html_to_markdown"
_PROGRAM = str(Path(__file__).with_name("html_reader.py"))
_SORT = FetchKind("page", "text/html, text/plain;q=0.9, application/pdf;q=0.8, */*;q=0.1", "")
_HTML = ("text/html", "application/xhtml+xml")
_GONE = "The page could not be fetched."


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
