"""Count the usage of keys and models by time windows, for all processes that share the store."""

from collections.abc import Mapping
from typing import Any

from sqlalchemy.ext.asyncio import AsyncConnection

from gateway.store.engines import upserts
from gateway.store.records import UsageSlot
from gateway.store.tables import as_stored, uses


def _adding(insert: Any) -> Any:  # noqa: ANN401 - of a dialect
    sums = {"amount": uses.c.amount + insert.excluded.amount}
    added = insert.on_conflict_do_update(index_elements=("key", "start"), set_=sums)
    return added.returning(uses.c.key, uses.c.start, uses.c.amount)


_ADD = upserts(uses, _adding)


async def add_counts(db: AsyncConnection, amounts: Mapping[UsageSlot, int]) -> dict[UsageSlot, int]:
    """Add to the counts and return the new counts; no other process changes them before the transaction ends."""
    slots = sorted(amounts)  # the same order in all processes, against deadlocks
    rows = [
        {"key": slot.key, "start": slot.start, "amount": amounts[slot], "valid_until": slot.until} for slot in slots
    ]
    found = await db.execute(_ADD[db.dialect.name], rows)
    counts = {(key, start): amount for key, start, amount in found}
    return {slot: counts[as_stored(slot.key), slot.start] for slot in slots}
