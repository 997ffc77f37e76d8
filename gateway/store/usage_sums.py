"""Usage of keys and models: sums by day for operators, and counts by time windows for limits.

All processes that share the store add to the same rows.
"""

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any, get_args

from msgspec.structs import asdict
from sqlalchemy import Select, bindparam, func, select
from sqlalchemy.ext.asyncio import AsyncConnection

from gateway.store.engines import upserts
from gateway.store.records import UsageColumn, UsagePlace, UsageSlot, UsageSums
from gateway.store.tables import as_stored, daily_usage, uses

_PLACE: tuple[UsageColumn, ...] = get_args(UsageColumn)
_SUMS = UsageSums.__struct_fields__


def _adding(insert: Any) -> Any:  # noqa: ANN401 - of a dialect
    sums = {name: daily_usage.c[name] + insert.excluded[name] for name in _SUMS}
    return insert.on_conflict_do_update(index_elements=_PLACE, set_=sums)


_ADD = upserts(daily_usage, _adding)


async def add(db: AsyncConnection, usage: Mapping[UsagePlace, UsageSums]) -> None:
    """Add sums to the rows of their places."""
    places = sorted(usage)  # the same order in all processes, against deadlocks
    rows = [{**dict(zip(_PLACE, place, strict=True)), **asdict(usage[place])} for place in places]
    await db.execute(_ADD[db.dialect.name], rows)


async def read(
    db: AsyncConnection, first: int, last: int, by: Sequence[UsageColumn]
) -> list[tuple[tuple[Any, ...], UsageSums]]:
    """Return the sums of these days, the last one included, for each combination of values of the columns `by`."""
    rows = await db.execute(_grouped(tuple(by)), {"first": first, "last": last})
    found = [(tuple(row[: len(by)]), UsageSums(*map(int, row[len(by) :]))) for row in rows]
    return sorted(found, key=lambda one: one[0])


@cache
def _grouped(by: tuple[UsageColumn, ...]) -> Select[Any]:
    columns = [daily_usage.c[name] for name in by]
    return (
        select(*columns, *(func.sum(daily_usage.c[name]) for name in _SUMS))
        .where(daily_usage.c.day.between(bindparam("first"), bindparam("last")))
        .group_by(*columns)
    )


def _adding_counts(insert: Any) -> Any:  # noqa: ANN401 - of a dialect
    sums = {"amount": uses.c.amount + insert.excluded.amount}
    added = insert.on_conflict_do_update(index_elements=("key", "start"), set_=sums)
    return added.returning(uses.c.key, uses.c.start, uses.c.amount)


_ADD_COUNTS = upserts(uses, _adding_counts)


async def add_counts(db: AsyncConnection, amounts: Mapping[UsageSlot, int]) -> dict[UsageSlot, int]:
    """Add to the counts and return the new counts; no other process changes them before the transaction ends."""
    slots = sorted(amounts)  # the same order in all processes, against deadlocks
    rows = [
        {"key": slot.key, "start": slot.start, "amount": amounts[slot], "valid_until": slot.until} for slot in slots
    ]
    found = await db.execute(_ADD_COUNTS[db.dialect.name], rows)
    counts = {(key, start): amount for key, start, amount in found}
    return {slot: counts[as_stored(slot.key), slot.start] for slot in slots}
