"""Web search in the terms of the Responses API: the tools for the model, and the output items for the client."""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import islice
from typing import Any

from msgspec import Struct

from gateway.builtin_tools.citations import CitedSource, Sources
from gateway.builtin_tools.search_engines import SearchHit, SearchQuery
from gateway.builtin_tools.tool_calls import BuiltinTool, OutputItemDict
from gateway.builtin_tools.untrusted_text import fenced, sanitize
from gateway.request import Message, Tool

NAMESPACE = "web_search"  # of the tools that replace the client's one search tool
_PREFIX = "ws_"
_CITE = "Cite what you use by its number in brackets, like [1]."
_NOTHING = "Nothing was found."
_SIZES = {"low": (3, 4_000), "medium": (6, 10_000), "high": (10, 24_000)}  # results; characters of one page part
_AROUND = 300  # characters on both sides of a match in a page
_MAX_PLACES = 10
_MAX_EXCERPT = 1_500  # characters


class WebPage(Struct, frozen=True):
    """A page of the web, or a part of one."""

    url: str
    title: str
    text: str


class SearchScope(Struct, frozen=True):
    """The client's search settings: the tool definition, or the `web_search_options` of a chat completion."""

    options: Mapping[str, Any]

    @property
    def domains(self) -> tuple[str, ...]:
        """The domains that results may belong to; () for all."""
        return tuple((self.options.get("filters") or {}).get("allowed_domains") or ())

    @property
    def blocked_domains(self) -> tuple[str, ...]:
        """The domains that no result may belong to."""
        return tuple((self.options.get("filters") or {}).get("blocked_domains") or ())

    @property
    def allows_fetching(self) -> bool:
        """True if the model may open pages."""
        return self.options.get("external_web_access") is not False

    @property
    def result_limits(self) -> tuple[int, int]:
        """The number of results, and the characters of one part of a page."""
        return _SIZES[self.options.get("search_context_size") or "medium"]

    def query(self, text: str) -> SearchQuery:
        """Return the search for this text, within the client's settings."""
        return SearchQuery(text, self.result_limits[0], self.domains, self._where.get("country"), self.blocked_domains)

    def allows(self, url: str) -> bool:
        """Return True if the URL belongs to the allowed domains, and to no blocked one."""
        return self.query("").allows(url)

    def prompt_note(self) -> str:
        """Return a note for the model about the user's location and the allowed domains; "" if there are none."""
        place = ", ".join(filter(None, (self._where.get(name) for name in ("city", "region", "country", "timezone"))))
        sites = ", ".join(self.domains)
        return "".join(
            [f" The user is in {place}." if place else "", f" Only pages of {sites} can be had." if sites else ""]
        )

    @property
    def _where(self) -> Mapping[str, str]:
        """The user's location: nested in a chat completion, flat in a response."""
        data = self.options.get("user_location") or {}
        where: Mapping[str, str] = data.get("approximate") or data
        return where


def named_text(messages: Iterable[Message], cited: Sequence[Any]) -> str:
    """Return the text of a request that may name pages: all that the model has not written, and its citations.

    A page could make the model write an address that carries the conversation, and open it in a later request.

    cited: the annotations of earlier answers beside those in the messages.
    """
    others = [one if one["role"] != "assistant" else one.get("annotations") for one in messages]
    return str([*others, *cited])


# Tools of the model


class SearchAction(Struct, frozen=True):
    """A tool of the web search.

    required: the arguments that a call needs.
    item: the arguments → the action of the output item.
    """

    description: str
    parameters: Mapping[str, Any]
    required: tuple[str, ...]
    item: Callable[[Mapping[str, Any]], OutputItemDict]

    def missing_argument(self, arguments: Mapping[str, Any]) -> str | None:
        """Return the name of a required argument that is missing or empty; None if all are there."""
        return next(
            (name for name in self.required if not (isinstance(arguments.get(name), str) and arguments[name])), None
        )


def _text(description: str) -> dict[str, Any]:
    return {"type": "string", "description": description}


_URL = _text("The address of the page.")
_PART = {"type": "integer", "minimum": 1, "description": "Which part of a long page; the first, unless it is said."}
ACTIONS: Mapping[str, SearchAction] = {
    "search": SearchAction(
        "Searches the web: gives addresses of pages and what they say, each with a number.",
        {"query": _text("What to search for.")},
        ("query",),
        lambda data: {"type": "search", "query": data.get("query", ""), "queries": [data.get("query", "")]},
    ),
    "open_page": SearchAction(
        "Opens a page of the web and gives its text.",
        {"url": _URL, "part": _PART},
        ("url",),
        lambda data: {"type": "open_page", "url": data.get("url")},
    ),
    "find_in_page": SearchAction(
        "Finds words in a page of the web: gives the places with what stands around them.",
        {"url": _URL, "pattern": _text("The words, as they stand in the page.")},
        ("url", "pattern"),
        lambda data: {"type": "find_in_page", "url": data.get("url", ""), "pattern": data.get("pattern", "")},
    ),
}


def web_search_tools(scope: SearchScope, *, pages: bool) -> list[BuiltinTool]:
    """Return the search tools for a request.  pages: the gateway can open pages."""
    return [_ours(name, scope) for name in ACTIONS if name == "search" or (pages and scope.allows_fetching)]


def _ours(name: str, scope: SearchScope) -> BuiltinTool:
    action = ACTIONS[name]
    schema = {"type": "object", "properties": action.parameters, "required": [*action.required]}
    definition = {"name": name, "description": action.description + scope.prompt_note(), "parameters": schema}
    item = {"type": "web_search_call", "status": "in_progress", "action": action.item({}), "results": None}
    return BuiltinTool(Tool(name, definition, namespace=NAMESPACE, hosted=True), item, _PREFIX, failed_search_item)


def failed_search_item(_: str) -> OutputItemDict:
    """Return the members of a failed output item; the API has no member for the error text."""
    return {"status": "failed"}


# Results


class SearchActionResult(Struct, frozen=True):
    """The result of a search tool.  text: for the model; action, results: members of the output item."""

    text: str
    action: OutputItemDict
    results: list[OutputItemDict]


def search_result(hits: Sequence[SearchHit], data: Mapping[str, Any], sources: Sources) -> SearchActionResult:
    """Return the result of a web search."""
    action = ACTIONS["search"].item(data) | {"sources": [{"type": "url", "url": hit.url} for hit in hits]}
    parts = [WebPage(hit.url, hit.title, hit.text[:_MAX_EXCERPT]) for hit in hits]
    return SearchActionResult(_numbered(parts, sources), action, _results(parts))


def open_page_result(
    page: WebPage, data: Mapping[str, Any], scope: SearchScope, sources: Sources
) -> SearchActionResult:
    """Return one part of a page; a part number beyond the end gives the last part."""
    size = scope.result_limits[1]
    last = max(-(-len(page.text) // size), 1)
    wanted = data.get("part")
    part = min(wanted if type(wanted) is int and wanted > 0 else 1, last)
    title = f"{page.title} (part {part} of {last})" if last > 1 else page.title
    shown = WebPage(page.url, title, page.text[(part - 1) * size : part * size])
    sources.number_of(CitedSource(page.title or page.url, page.url))
    return SearchActionResult(_numbered([shown], sources), ACTIONS["open_page"].item(data), _results([shown]))


def find_in_page_result(page: WebPage, data: Mapping[str, Any], sources: Sources) -> SearchActionResult:
    """Return the excerpts of a page around each match; letter case does not matter."""
    around = re.compile(f"(?s).{{0,{_AROUND}}}{re.escape(data['pattern'])}.{{0,{_AROUND}}}", re.IGNORECASE)
    places = [place[0].strip() for place in islice(around.finditer(page.text), _MAX_PLACES)]
    parts = [WebPage(page.url, page.title, "\n…\n".join(places))] if places else []
    return SearchActionResult(_numbered(parts, sources), ACTIONS["find_in_page"].item(data), _results(parts))


def _numbered(parts: Iterable[WebPage], sources: Sources) -> str:
    texts = []
    for part in parts:
        number = sources.number_of(CitedSource(part.title or part.url, part.url))
        texts.append(f"[{number}] {part.title}\n{part.url}\n{part.text}".strip())
    return numbered_text(texts)


def numbered_text(parts: Iterable[str]) -> str:
    """Return the text for a model that may cite it; each part begins with its number."""
    text = "\n\n".join(parts)
    return f"{fenced(text)}\n{_CITE}" if text else _NOTHING


def _results(parts: Iterable[WebPage]) -> list[OutputItemDict]:
    return [{"url": part.url, "title": part.title, "text": part.text} for part in parts]


def make_page(url: str, title: str, text: str) -> WebPage:
    """Build a page; unsafe characters are removed."""
    return WebPage(url, " ".join(sanitize(title).split()), sanitize(text).strip())
