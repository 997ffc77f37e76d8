"""Models that search the web, and the results that they receive."""

from support.upstream import COUNTS, chunk, frame, stream

SEARCH = {"type": "web_search"}

ASK = ("web_search__search", {"query": "capitals"})


def saying(*pieces):
    """Return the script of a model that responds with these pieces."""
    return stream(*map(chunk, pieces), chunk(finish="stop"), frame(choices=[], usage=COUNTS))


CITED = saying("Oslo", " [1] is one, ", "[Ro", "me](https://it.example.com/rome) another, `x[2]` none.")


def tool_results(site):
    """Return the tool results that the model received."""
    return [message["content"] for message in site.upstream_body["messages"] if message["role"] == "tool"]


def opening(web, path="/page", **arguments):
    """Return a call that opens a page."""
    return ("web_search__open_page", {"url": f"{web.url}{path}", **arguments})


def asking(web, path="/page"):
    """Return a question about a page."""
    return f"What is at {web.url}{path}?"
