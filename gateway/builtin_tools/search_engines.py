"""Build requests to search services, and read their responses: one row of data per service."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any
from urllib.parse import urlsplit

from msgspec import Struct

from gateway.builtin_tools.untrusted_text import sanitize

_MAX_TITLE = 300  # characters


class SearchQuery(Struct, frozen=True):
    """A web search.

    max_results: the upper bound for results.
    domains: the domains that results may belong to, subdomains included; () for all.
    country: an ISO 3166 code.
    blocked: the domains that no result may belong to.
    """

    text: str
    max_results: int
    domains: tuple[str, ...] = ()
    country: str | None = None
    blocked: tuple[str, ...] = ()

    def allows(self, url: str) -> bool:
        """Return True if a result with this URL may be shown."""
        return is_within(url, self.domains) and not (self.blocked and is_within(url, self.blocked))

    @property
    def narrowed(self) -> str:
        """The search text with `site:` operators for the domains."""
        sites = " OR ".join(f"site:{domain}" for domain in self.domains)
        return f"{self.text} ({sites})" if sites else self.text


class SearchHit(Struct, frozen=True):
    """One result of a web search."""

    url: str
    title: str
    text: str


class SearchRequest(Struct, frozen=True):
    """A request to a search service.  json: the body of a POST; None for a GET."""

    path: str
    params: Mapping[str, Any] = {}
    json: Mapping[str, Any] | None = None


class SearchEngine(Struct, frozen=True):
    """A search service.

    root: the base URL, unless the operator sets one.
    auth_header: the header for the API key, and the prefix of its value.
    ask: builds the request for a query.
    results_path: the path to the list of results in the response.
    text: the member of a result that has its text.
    """

    root: str
    auth_header: tuple[str, str]
    ask: Callable[[SearchQuery], SearchRequest]
    results_path: tuple[str, ...]
    text: str

    def read_hits(self, data: Any, query: SearchQuery) -> list[SearchHit]:  # noqa: ANN401 - decoded JSON
        """Return the hits within the query's domains, up to its limit.  Malformed results are skipped."""
        for name in self.results_path:
            data = data.get(name) if isinstance(data, dict) else None
        found = self._hits(data if isinstance(data, list) else ())
        return [hit for hit in found if query.allows(hit.url)][: query.max_results]

    def _hits(self, listed: Iterable[Any]) -> Iterator[SearchHit]:
        for one in listed:
            if isinstance(one, dict) and isinstance(url := one.get("url"), str) and is_page(url):
                yield make_hit(url, one.get("title"), one.get(self.text))


def make_hit(url: str, title: object, text: object) -> SearchHit:
    """Build a hit from members of a response; unsafe characters are removed, and the title is shortened."""
    message = sanitize(title) if isinstance(title, str) else ""
    return SearchHit(url, " ".join(message.split())[:_MAX_TITLE], sanitize(text) if isinstance(text, str) else "")


def is_page(url: str) -> bool:
    """Return True for an http or https URL without spaces and invisible characters."""
    return url.startswith(("http://", "https://")) and url.isprintable() and " " not in url and _host(url) != ""


def is_within(url: str, domains: Iterable[str]) -> bool:
    """Return True if the URL's host is one of the domains or below one; without domains, for every URL."""
    wanted = [domain.lower().strip(".") for domain in domains]
    host = _host(url)
    return not wanted or any(host == domain or host.endswith(f".{domain}") for domain in wanted)


def _host(url: str) -> str:
    try:
        return urlsplit(url).hostname or ""
    except ValueError:
        return ""


def _searxng(query: SearchQuery) -> SearchRequest:
    return SearchRequest("/search", {"q": query.narrowed, "format": "json"})


def _brave(query: SearchQuery) -> SearchRequest:
    where = {"country": query.country} if query.country else {}
    return SearchRequest(
        "/v1/web/search", {"q": query.narrowed, "count": query.max_results, "text_decorations": "false", **where}
    )


def _tavily(query: SearchQuery) -> SearchRequest:
    return SearchRequest(
        "/search", json={"query": query.text, "max_results": query.max_results, "include_domains": [*query.domains]}
    )


ENGINES: Mapping[str, SearchEngine] = {
    "searxng": SearchEngine("", ("authorization", "Bearer "), _searxng, ("results",), "content"),
    "brave": SearchEngine(
        "https://api.search.brave.com/res", ("x-subscription-token", ""), _brave, ("web", "results"), "description"
    ),
    "tavily": SearchEngine("https://api.tavily.com", ("authorization", "Bearer "), _tavily, ("results",), "content"),
}
