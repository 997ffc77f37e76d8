"""Test leases that expire, also with a wrong clock."""

import pytest

from gateway.store import conversations, idempotency_keys, jobs, responses
from gateway.store.records import IdempotencyState, NewJob, NewResponse

NOW, DAY, LEASE = 1_700_000_000, 86_400, 15_000


@pytest.mark.parametrize(("later", "free"), [(0, False), (14, False), (61, True), (-DAY, True), (DAY, True)])
async def test_lease_lasts_for_its_time_and_never_for_a_day(store, later, free):
    """later: the seconds that the clock shows after the lease was written."""
    now_ms, then_ms = NOW * 1000, (NOW + later) * 1000
    async with store.writing() as db:
        await conversations.create(db, "", "conv_a", {}, [], NOW)
        assert await conversations.acquire(db, "conv_a", "dead", now_ms, LEASE)
        await responses.begin(db, [NewResponse("", {"id": "resp_a", "status": "queued", "output": []}, [], NOW, None)])
        await jobs.begin(db, [NewJob("", "resp_a", b"{}", "dead", now_ms, LEASE)])
        assert await idempotency_keys.begin(db, "", "key", "digest", "dead", NOW) is IdempotencyState.NEW
    async with store.writing() as db:
        assert await conversations.acquire(db, "conv_a", "next", then_ms, LEASE) == free
        assert await jobs.has_due(db, then_ms) == free
        assert bool(await jobs.claim(db, "next", then_ms, LEASE, 9)) == free
        assert await idempotency_keys.begin(db, "", "key", "digest", "next", NOW + later) is (
            IdempotencyState.NEW if free else IdempotencyState.RUNNING
        )
