"""Test the work of a process on a batch: retries, interruptions, lost leases, and faults of the store."""

import asyncio
from contextlib import asynccontextmanager

import pytest
from msgspec.structs import replace
from sqlalchemy import update

from gateway.api.batches import Batch
from gateway.config.stored_keys import StoredApiKey
from gateway.routing import FairQueue
from gateway.server.batches.batch_run import BatchRun, LineResponse
from gateway.store import batches as stored_batches
from gateway.store import tables
from gateway.store.file_store import CHUNK
from support.app import gateway
from support.batches import begin, cancel, chat_line, ended, post, retrieve, upload
from support.faults import fail_once
from support.stored import ANN, TENANTS
from support.upstream import HELLO, whole
from support.wait import until

LINES = (chat_line("a"),)
BUSY = {"error": {"message": "busy"}}


@pytest.mark.parametrize(
    ("status", "headers", "tries", "expected"),
    [
        (200, {}, 1, None),
        (400, {}, 1, None),
        (429, {b"retry-after": b"7"}, 9, 7),
        (429, {b"retry-after": b"600"}, 1, 60),
        (429, {b"x-should-retry": b"false"}, 1, None),
        (503, {}, 3, 4),
        (503, {}, 99, 60),
        (502, {}, 4, 8),
        (502, {}, 5, None),
    ],
)
def test_line_is_sent_again_for_errors_that_pass(status, headers, tries, expected):
    assert LineResponse(status, headers, b"{}").pause(tries) == expected


def test_spare_entry_leaves_the_queue():
    queue = FairQueue(1, 0)
    held = queue.acquire("a", 1, list)
    spare = queue.acquire("a", 1, list, spare=True)
    queue.release(spare)
    queue.release(spare)
    queue.release(held)
    assert (queue.active, spare.has_slot) == (0, False)


def test_batch_that_is_cancelled_twice_keeps_its_time():
    batch = Batch("batch_1", 0, "in_progress", {}).cancelled(1)
    assert batch.cancelled(2) is batch
    assert batch.moved("in_progress", 3) is batch
    assert batch.moved("completed", 4).status == "cancelled"


def test_stored_key_is_valid_until_its_end():
    key = StoredApiKey.model_validate({"name": "a", "key": ["0" * 64], "created_at": 0, "expires_at": 5})
    assert (key.is_valid(4), key.is_valid(5)) == (True, False)


async def test_line_waits_for_a_backend_that_is_overloaded():
    async with gateway(whole(BUSY, 503, retry_after="0"), HELLO, model={"retries": 0}) as site:
        batch = await ended(site.client, await begin(site.client, [chat_line("a")]))
        assert batch["request_counts"]["completed"] == 1
        assert len(site.upstream.posts) == 2


async def test_cancelled_batch_waits_no_longer_for_a_backend():
    async with gateway(whole(BUSY, 503, retry_after="60"), model={"retries": 0}) as site:
        made = await begin(site.client, [chat_line("a")])
        await until(lambda: bool(site.upstream.posts))
        await cancel(site.client, made)
        batch = await ended(site.client, made)
        assert (batch["status"], batch["output_file_id"]) == ("cancelled", None)


async def test_batch_runs_after_a_programming_error(monkeypatch, caplog):
    monkeypatch.setattr("gateway.server.batches.batch_manager._HELD", 0.01)
    fail_once(monkeypatch, "gateway.store.batches.has_due")
    async with gateway(HELLO) as site:
        batch = await ended(site.client, await begin(site.client, [chat_line("a")]))
        assert batch["request_counts"]["completed"] == 1
    assert "the renewal of batches failed, the gateway tries again" in caplog.text


@asynccontextmanager
async def prepared(*scripts, lines=LINES, headers=None, **sections):
    """Yield a gateway, and a batch that no process has claimed yet."""
    async with gateway(*scripts, **sections) as site:
        site.app.state.batches.wake = lambda: None
        file = await upload(site.client, lines, headers)
        made = (await post(site.client, file, headers)).json()
        del site.app.state.batches.wake
        yield site, made


async def change(site, made, **fields):
    """Change a batch in the store, and wake the gateway."""
    async with site.app.state.store.writing() as db:
        batch = await stored_batches.find(db, "", made["id"], lock=True)
        await stored_batches.save(db, replace(batch, **fields), 0)
    site.app.state.batches.wake()


async def test_batch_in_progress_whose_input_is_deleted_fails():
    async with prepared() as (site, made):
        await site.client.delete(f"/v1/files/{made['input_file_id']}")
        await change(site, made, status="in_progress", total=1)
        batch = await ended(site.client, made)
        assert (batch["status"], batch["errors"]["data"][0]["code"]) == ("failed", "file_not_found")
        assert batch["failed_at"]


@pytest.mark.parametrize("status", ["validating", "in_progress"])
async def test_batch_is_interrupted_if_its_input_cannot_be_read(status, caplog):
    async with prepared() as (site, made):
        for path in site.app.state.store.folder.iterdir():
            path.unlink()
        await change(site, made, status=status, total=1)
        await until(lambda: "is interrupted, and continues later" in caplog.text)
        assert (await retrieve(site.client, made))["status"] == status


async def test_batch_is_interrupted_by_a_fault_of_the_gateway(caplog):
    async with prepared(lines=(b"{",)) as (site, made):
        await change(site, made, status="in_progress", total=1)
        await until(lambda: "the line was checked" in caplog.text)
        assert (await retrieve(site.client, made))["status"] == "in_progress"


@pytest.mark.parametrize("noticed", ["at the next renewal", "with the next result"])
async def test_batch_that_another_process_has_taken_stores_nothing(noticed):
    gate = asyncio.Event()
    async with gateway([gate, *HELLO]) as site:
        manager, made = site.app.state.batches, await begin(site.client, [chat_line("a")])
        await until(lambda: bool(site.upstream.posts))
        async with site.app.state.store.writing() as db:
            await db.execute(update(tables.batches).values(holder="other"))
        if noticed == "at the next renewal":
            manager.wake()
        else:
            gate.set()
        await until(lambda: not manager._runs)
        gate.set()
        assert (await retrieve(site.client, made))["request_counts"]["completed"] == 0


async def test_stopped_gateway_releases_its_batches():
    gate, store = asyncio.Event(), {}
    async with gateway([gate, *HELLO], server={"drain_seconds": 0}) as site:
        made = await begin(site.client, [chat_line(str(number)) for number in range(40)])
        await until(lambda: bool(site.upstream.posts))
        store["url"] = site.app.state.store._url
        site.app.state.stopping.set()
        await until(lambda: not site.app.state.batches._runs)
        gate.set()
    async with gateway(HELLO, store=store) as site:
        batch = await ended(site.client, made)
        assert batch["request_counts"] == {"total": 40, "completed": 40, "failed": 0}


async def test_line_of_a_removed_key_gets_a_401():
    async with prepared(headers=ANN, auth=TENANTS) as (site, made):
        async with site.app.state.store.writing() as db:
            for table in (tables.batches, tables.files):
                await db.execute(update(table).values(tenant="gone"))
            assert await stored_batches.claim(db, stored_batches.BatchLease("x", -1, 1), 1) == []
        site.app.state.batches.wake()
        found = []

        async def runs():
            async with site.app.state.store.reading() as db:
                found.append(await stored_batches.find(db, "gone", made["id"]))
            return found[-1].status

        await until(runs, "completed")
        assert (found[-1].failed, site.upstream.posts) == (1, [])


async def test_paused_check_leaves_the_batch_to_another_process():
    async with prepared() as (site, made):
        async with site.app.state.store.reading() as db:
            batch = await stored_batches.find(db, "", made["id"])
        run = BatchRun(site.app.state.batches._context, "", batch)
        run.pause()
        await run.run()
        assert run.is_interrupted and (await retrieve(site.client, made))["status"] == "validating"


async def test_batch_that_is_cancelled_during_its_check_has_no_errors():
    lines = chat_line("a"), chat_line("b" * CHUNK)  # the first chunk of the file ends amid the second line
    async with prepared(lines=lines) as (site, made):
        context = site.app.state.batches._context
        async with site.app.state.store.writing() as db:
            ((_, batch),) = await stored_batches.claim(db, context.batch_lease(), 1)
        run = BatchRun(context, "", batch)
        assert (await cancel(site.client, made)).json()["status"] == "cancelling"
        check = asyncio.create_task(run.run())
        await asyncio.sleep(0)  # the run has begun, and waits for the store
        run.update(replace(batch, status="cancelling"))
        await check
        shown = await retrieve(site.client, made)
        assert (shown["status"], shown["errors"]) == ("cancelled", None)


async def test_batch_that_expires_before_its_check_names_all_lines():
    async with prepared(lines=(chat_line("a"), chat_line("b"))) as (site, made):
        await change(site, made, created_at=made["created_at"] - 86_400)
        batch = await ended(site.client, made)
        assert (batch["status"], batch["request_counts"]) == ("expired", {"total": 2, "completed": 0, "failed": 2})
