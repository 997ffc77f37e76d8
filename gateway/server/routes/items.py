"""Lists of items, whatever they belong to."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sqlalchemy.ext.asyncio import AsyncConnection


from gateway.server.routes.query import PageParams
from gateway.store import threads
from gateway.store.records import Item, ItemRange


async def item_page(
    db: "AsyncConnection", tenant: str, of: Sequence[ItemRange], page: PageParams, show: Callable[[Item], Item]
) -> dict[str, Any]:
    """One page of the items that stand there."""
    behind = None
    if page.after is not None:
        behind = await threads.find(db, tenant, of, page.after, newest_first=page.newest_first)
        if behind is None:
            raise page.not_found()
    found = await threads.page(db, of, page.limit + 1, newest_first=page.newest_first, behind=behind)
    return page.of([*map(show, found)])
