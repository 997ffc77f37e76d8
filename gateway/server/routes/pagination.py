"""Parse the URL parameters of lists, and build pages of lists and of items."""

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from fastapi import Request
from msgspec import Struct

from gateway.api.responses.params import INCLUDE
from gateway.api.validation import boolean, integer_between, object_of, one_of, string
from gateway.errors import BadRequest
from gateway.store import item_lists
from gateway.store.records import Item, ItemRange

if TYPE_CHECKING:
    from sqlalchemy.ext.asyncio import AsyncConnection


_BOOLEANS = {"true": True, "false": False}
_check = object_of(
    {},
    {
        "limit": integer_between(1),
        "order": one_of("asc", "desc"),
        "after": string,
        "include": INCLUDE,
        "stream": boolean,
        "starting_after": integer_between(0),
        "include_obfuscation": boolean,
    },
)


def _integer(text: str) -> int | str:
    with suppress(ValueError):
        return int(text)
    return text


def _boolean(text: str) -> bool | str:
    return _BOOLEANS.get(text, text)


_READ: dict[str, Callable[[str], Any]] = {
    "limit": _integer,
    "order": str,
    "after": str,
    "stream": _boolean,
    "starting_after": _integer,
    "include_obfuscation": _boolean,
}


class PageParams(Struct, frozen=True):
    """A part of a list: at most `limit` members after the one with the id `after`."""

    limit: int
    newest_first: bool
    after: str | None

    def of(self, found: Sequence[dict[str, Any]]) -> dict[str, Any]:
        """Return the page as a list object; `found` has its members, and one more if there are more."""
        return list_object(found[: self.limit], more=len(found) > self.limit)

    def not_found(self) -> BadRequest:
        """Return the error for an unknown `after`."""
        message = f"Invalid 'after': this list has no entry with id '{self.after}'."
        return BadRequest(message, code="invalid_value", param="after")


def list_object(data: Sequence[dict[str, Any]], *, more: bool = False) -> dict[str, Any]:
    """Return a list object of the API."""
    first, last = (data[0]["id"], data[-1]["id"]) if data else (None, None)
    return {"object": "list", "data": data, "first_id": first, "last_id": last, "has_more": more}


def page_params(request: Request, order: str = "desc", *, limit: int = 20, most: int = 100) -> PageParams:
    """Return the page parameters of a query.  order, limit: if the query has none.  Raises BadRequest."""
    data = parameters(request)
    limit = data.get("limit", limit)
    integer_between(1, most)(limit, "limit")
    return PageParams(limit, data.get("order", order) == "desc", data.get("after"))


def include_params(request: Request) -> frozenset[str]:
    """Return the values of `include` in a query.  Raises BadRequest."""
    return frozenset(parameters(request).get("include", ()))


def parameters(request: Request) -> dict[str, Any]:
    """Return the parameters of the query that the API knows; raise BadRequest for an invalid one."""
    query = request.query_params
    fields = {name: read(query[name]) for name, read in _READ.items() if name in query}
    if included := query.getlist("include[]") + query.getlist("include"):
        fields["include"] = included
    _check(fields, "")
    return fields


async def item_page(
    db: "AsyncConnection", tenant: str, of: Sequence[ItemRange], page: PageParams, show: Callable[[Item], Item]
) -> dict[str, Any]:
    """Return a page of the items in these ranges; raise BadRequest for an unknown `after`."""
    behind = None
    if page.after is not None:
        behind = await item_lists.find(db, tenant, of, page.after, newest_first=page.newest_first)
        if behind is None:
            raise page.not_found()
    found = await item_lists.page(db, of, page.limit + 1, newest_first=page.newest_first, behind=behind)
    return page.of([*map(show, found)])
