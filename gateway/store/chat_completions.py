"""Stored chat completions with their input messages, for clients that send `store: true`."""

from collections.abc import Sequence
from typing import Any

from msgspec.structs import replace
from sqlalchemy import ColumnElement, bindparam, delete, exists, insert, select, tuple_, update
from sqlalchemy.ext.asyncio import AsyncConnection

from gateway.store import item_lists
from gateway.store.records import CompletionFilter, Item, ItemList, StoredCompletion
from gateway.store.tables import completions, decode, encode, labels
from gateway.store.tables import threads as all_threads

_COLUMNS = (completions.c.id, completions.c.created_at, completions.c.body, all_threads.c.length)
_FOUND = select(*_COLUMNS).join(all_threads, all_threads.c.id == completions.c.id)
_FIND = _FOUND.where(completions.c.id == bindparam("this"), completions.c.tenant == bindparam("tenant"))
_SAVE, _LABEL = insert(completions), insert(labels)


async def save(db: AsyncConnection, tenant: str, body: dict[str, Any], messages: Sequence[Item], now: int) -> None:
    """Store a completion, with `metadata` in its body, and its input messages."""
    id, data = body["id"], encode(body)
    identified = [{**message, "id": f"{id}-{place}"} for place, message in enumerate(messages)]
    await item_lists.begin(db, ItemList(id, tenant, identified, now, extra_bytes=len(data)))
    values = {"created_at": body["created"], "model": body["model"], "body": data}
    await db.execute(_SAVE, {"id": id, "tenant": tenant, **values})
    await _label(db, id, body.get("metadata") or {})


async def find(db: AsyncConnection, tenant: str, id: str) -> StoredCompletion | None:
    """Return the completion of a tenant, or None."""
    row = (await db.execute(_FIND, {"this": id, "tenant": tenant})).one_or_none()
    return _completion(row) if row else None


async def page(
    db: AsyncConnection,
    tenant: str,
    wanted: CompletionFilter,
    limit: int,
    *,
    newest_first: bool = False,
    behind: StoredCompletion | None = None,
) -> list[StoredCompletion]:
    """Return a page of matching completions, ordered by creation time.

    wanted: the filter.
    limit: the maximum of completions.
    behind: the last completion of the page before.
    """
    age = (completions.c.created_at, completions.c.id)
    query = _FOUND.where(completions.c.tenant == tenant, *_conditions(wanted))
    if behind:
        here, last = tuple_(*age), tuple_(behind.created_at, behind.id)
        query = query.where(here < last if newest_first else here > last)
    order = [column.desc() for column in age] if newest_first else age
    return [*map(_completion, await db.execute(query.order_by(*order).limit(limit)))]


def _conditions(wanted: CompletionFilter) -> list[ColumnElement[bool]]:
    items: list[ColumnElement[bool]] = [
        exists().where(labels.c.completion == completions.c.id, labels.c.key == key, labels.c.value == value)
        for key, value in wanted.metadata.items()
    ]
    return items if wanted.model is None else [completions.c.model == wanted.model, *items]


_DESCRIBE = update(completions).where(completions.c.id == bindparam("this")).values(body=bindparam("changed_body"))
_UNLABEL = delete(labels).where(labels.c.completion == bindparam("this"))
_REMOVE = delete(all_threads).where(all_threads.c.id == bindparam("this"))


async def set_metadata(db: AsyncConnection, completion: StoredCompletion, metadata: dict[str, str]) -> StoredCompletion:
    """Replace the metadata, and return the changed completion."""
    changed = replace(completion, body={**completion.body, "metadata": metadata})
    await db.execute(_DESCRIBE, {"this": completion.id, "changed_body": encode(changed.body)})
    await db.execute(_UNLABEL, {"this": completion.id})
    await _label(db, completion.id, metadata)
    return changed


async def remove(db: AsyncConnection, id: str) -> None:
    """Delete a completion with its messages; no other list continues them."""
    await db.execute(_REMOVE, {"this": id})


async def _label(db: AsyncConnection, id: str, metadata: dict[str, str]) -> None:
    if metadata:
        rows = [{"completion": id, "key": key, "value": value} for key, value in metadata.items()]
        await db.execute(_LABEL, rows)


def _completion(row: Any) -> StoredCompletion:  # noqa: ANN401 - of `_FOUND`
    return StoredCompletion(row.id, row.created_at, decode(row.body), row.length)
