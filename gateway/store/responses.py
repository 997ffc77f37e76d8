"""Stored responses, and the positions that they continue."""

from collections.abc import Collection, Sequence
from typing import Any

from sqlalchemy import Select, bindparam, delete, exists, func, insert, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from gateway.store import item_lists
from gateway.store.engines import listed
from gateway.store.records import (
    FinishedResponse,
    Item,
    ItemList,
    ItemRange,
    ListAddition,
    ListPosition,
    NewResponse,
    StoredConversation,
    StoredResponse,
)
from gateway.store.tables import conversations, decode, encode, events, jobs, responses
from gateway.store.tables import threads as all_threads

_ALL = select(
    responses.c.id, responses.c.thread, responses.c.first, responses.c.output, responses.c.end, responses.c.body
)
_IDS = listed(responses.c.id)
_FIND, _FIND_ALL = _ALL.where(responses.c.id == bindparam("this")), {name: _ALL.where(_IDS[name]) for name in _IDS}
_FIND_OF_TENANT = _FIND.where(responses.c.tenant == bindparam("tenant"))
_LOCK = (
    select(all_threads.c.id)
    .join(responses, responses.c.thread == all_threads.c.id)
    .order_by(all_threads.c.id)
    .with_for_update(of=all_threads)
)
_LOCK_ONE = _LOCK.where(responses.c.id == bindparam("this"))
_LOCK_ALL = {name: _LOCK.where(_IDS[name]) for name in _IDS}
_THREADS = {name: select(responses.c.id, responses.c.thread).where(_IDS[name]) for name in _IDS}


_WARNINGS = "gateway_warnings"  # a member of the stored object that clients do not see


def warned(body: dict[str, Any], warnings: str) -> dict[str, Any]:
    """Return a Response object to store together with the warnings of its response, a comma-separated list."""
    return {**body, _WARNINGS: warnings} if warnings else body


def warnings(kept: StoredResponse) -> str:
    """Return the warnings that were stored with a response; "" if there were none."""
    found: str = kept.body.get(_WARNINGS, "")
    return found


async def find(db: AsyncConnection, tenant: str, id: str) -> StoredResponse | None:
    """Return the response of a tenant, or None."""
    return await _find(db, _FIND_OF_TENANT, {"this": id, "tenant": tenant})


async def find_locked(db: AsyncConnection, id: str) -> StoredResponse | None:
    """Return a response that is not in progress, and lock its thread until the end of the transaction."""
    await db.execute(_LOCK_ONE, {"this": id})
    return await _find(db, _FIND, {"this": id})


async def lock_threads(db: AsyncConnection, ids: Collection[str]) -> dict[str, str]:
    """Lock the threads of responses in the order of all processes; return the thread of each by its id."""
    await db.execute(_LOCK_ALL[db.dialect.name], {"ids": ids})
    rows = await db.execute(_THREADS[db.dialect.name], {"ids": ids})
    return {row.id: row.thread for row in rows.all()}


async def _find(db: AsyncConnection, finding: Select[*tuple[Any, ...]], which: dict[str, str]) -> StoredResponse | None:
    row = (await db.execute(finding, which)).one_or_none()
    return _stored(row) if row else None


def _stored(row: Any) -> StoredResponse:  # noqa: ANN401 - a row
    return StoredResponse(row.id, row.thread, row.first, row.output, row.end, decode(row.body))


async def response_object(db: AsyncConnection, kept: StoredResponse) -> dict[str, Any]:
    """Return the Response object as its client received it."""
    output = await item_lists.read(db, [ItemRange(kept.thread, kept.output, kept.end)])
    return {name: value for name, value in kept.body.items() if name != _WARNINGS} | {"output": output}


async def effective_input(db: AsyncConnection, kept: StoredResponse) -> list[ItemRange]:
    """Return the whole input of the model: the chain before, and the response's own input.

    Raises ItemsMissing as `ranges` does.
    """
    return await item_lists.ranges(db, ListPosition(kept.thread, kept.output))


_SAVE = insert(responses)


async def begin(db: AsyncConnection, new: Sequence[NewResponse]) -> None:
    """Store responses in threads of their own."""
    rests = [_rest(one.body) for one in new]
    await item_lists.begin(db, *map(_thread, new, rests))
    await db.execute(_SAVE, [_new_row(one, rest) for one, rest in zip(new, rests, strict=True)])


def _thread(new: NewResponse, rest: bytes) -> ItemList:
    added = [*new.input, *new.body["output"]]
    return ItemList(new.body["id"], new.tenant, added, new.now, new.parent, len(rest))


def _new_row(new: NewResponse, rest: bytes) -> dict[str, Any]:
    input_count, id = len(new.input), new.body["id"]
    own = ItemRange(id, 0, input_count + len(new.body["output"]))
    return {"id": id, "tenant": new.tenant, **_row(own, input_count, rest)}


async def save(
    db: AsyncConnection,
    tenant: str,
    body: dict[str, Any],
    input: Sequence[Item],
    behind: ListPosition | StoredConversation | None,
    now: int,
) -> None:
    """Store a response and its input.  It continues a position, or is a part of a conversation."""
    rest = _rest(body)
    if own := await _grow(db, behind, [*input, *body["output"]], now, len(rest)):
        await db.execute(_SAVE, {"id": body["id"], "tenant": tenant, **_row(own, len(input), rest)})
    else:
        parent = behind.behind if isinstance(behind, StoredConversation) else behind
        await begin(db, [NewResponse(tenant, body, input, now, parent)])


_FINISH = update(responses).where(responses.c.id == bindparam("this"))
_REMOVE_THREAD = delete(all_threads).where(all_threads.c.id == bindparam("this"))


async def finish(
    db: AsyncConnection, tenant: str, body: dict[str, Any], conversation: StoredConversation | None, now: int
) -> bool:
    """Store a finished response where `save` would have stored it; return False if it was removed meanwhile.

    The caller has to hold its job in the same transaction, so that no other process removes the response now.
    """
    kept = await find(db, tenant, body["id"])
    if kept is None:
        return False
    output, rest = body["output"], _rest(body)
    input = await item_lists.read(db, [kept.input])
    behind = conversation or await item_lists.parent_position(db, kept.thread)
    if own := await _grow(db, behind, [*input, *output], now, len(rest)):
        await db.execute(_FINISH, {"this": kept.id, **_row(own, len(input), rest)})
        await db.execute(_REMOVE_THREAD, {"this": kept.thread})
    else:
        await _finish_in_place(db, [(kept, FinishedResponse(tenant, body, now))])
    return True


async def finish_alone(db: AsyncConnection, ended: Sequence[FinishedResponse]) -> None:
    """Store finished responses that continue no other; the caller has to hold their jobs."""
    if ended:
        ids = [one.body["id"] for one in ended]
        await lock_threads(db, ids)
        rows = (await db.execute(_FIND_ALL[db.dialect.name], {"ids": ids})).all()
        kept = {row.id: _stored(row) for row in rows}
        await _finish_in_place(db, [(kept[one.body["id"]], one) for one in ended])


async def _finish_in_place(db: AsyncConnection, ended: Sequence[tuple[StoredResponse, FinishedResponse]]) -> None:
    """Store finished responses in the threads that they have: nothing else extends these."""
    added, rows = [], []
    for kept, one in ended:
        rest, output = _rest(one.body), one.body["output"]
        added.append(ListAddition(kept.behind, one.tenant, output, one.now, len(rest) - len(encode(kept.body))))
        own = ItemRange(kept.thread, kept.first, kept.end + len(output))
        rows.append({"this": kept.id, **_row(own, kept.output - kept.first, rest)})
    await item_lists.extend_all(db, added)
    await db.execute(_FINISH, rows)


_FORGET = delete(all_threads).where(
    all_threads.c.id.in_(select(responses.c.thread).where(responses.c.id == bindparam("this")))
)


async def forget(db: AsyncConnection, id: str) -> None:
    """Delete a response that was opened but not announced to its client; the caller has to hold its job."""
    await db.execute(_FORGET, {"this": id})


def _rest(body: dict[str, Any]) -> bytes:
    return encode({**body, "output": []})


def _row(own: ItemRange, input_count: int, rest: bytes) -> dict[str, Any]:
    """Return the columns of a response.  input_count: the number of input items."""
    return {"thread": own.thread, "first": own.first, "output": own.first + input_count, "end": own.end, "body": rest}


async def _grow(
    db: AsyncConnection, behind: ListPosition | StoredConversation | None, added: Sequence[Item], now: int, beside: int
) -> ItemRange | None:
    """Append items to the thread of the position, if it can grow, and return their range."""
    if isinstance(behind, StoredConversation):
        return await item_lists.extend(db, behind.thread, added, now, beside)
    return await item_lists.append(db, behind, added, now, beside) if behind else None


_REMOVE_JOB = delete(jobs).where(jobs.c.id == bindparam("this"))
_REMOVE = delete(responses).where(responses.c.id == bindparam("this"))
_OWNED = select(exists().where(conversations.c.thread == bindparam("this")))
_LOG = select(func.coalesce(func.sum(func.length(events.c.data)), 0)).where(
    events.c.response == bindparam("this"), events.c.packed
)


async def remove(db: AsyncConnection, kept: StoredResponse) -> None:
    """Delete a response and its items, so that no chain can continue it.  Items of a conversation stay.

    A process that works on the response loses its job.
    """
    await db.execute(_REMOVE_JOB, {"this": kept.id})  # the job may have just finished the response
    if now := await find_locked(db, kept.id):
        owned = await db.scalar(_OWNED, {"this": now.thread})
        gone = ItemRange(now.thread, now.end, now.end) if owned else now.own
        await item_lists.erase(db, gone, len(encode(now.body)) + await _log(db, now.id))
        await db.execute(_REMOVE, {"this": now.id})


async def _log(db: AsyncConnection, id: str) -> int:
    """Return the bytes of the packed log."""
    return await db.scalar(_LOG, {"this": id}) or 0
