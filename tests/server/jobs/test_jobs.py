"""Test jobs within a process: what subscribers get, how logs are written, and jobs of dead processes."""

import asyncio
import itertools
import logging
import re
from contextlib import asynccontextmanager
from functools import partial

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sqlalchemy import event, select, text, update

from gateway.api.responses import event_stream
from gateway.errors import StoreFailed
from gateway.server.jobs.log_tail import LogTail, subscribe
from gateway.server.jobs.log_writer import JobLost, Lease, LogWriter
from gateway.store import Database, event_logs, responses
from gateway.store.records import LogRow, NewResponse
from gateway.store.tables import jobs
from support.app import bearer, gateway, listening, problem
from support.faults import fail_once
from support.jobs import (
    BAD,
    CHUNKS,
    RESUMED,
    accepted,
    asking,
    cancelled,
    ended,
    following,
    get,
    left_alone,
    per_event,
    rows,
    slowly,
    stopping,
    where,
)
from support.metrics import scrape
from support.responses_events import checked
from support.sampling import examples
from support.sse import events
from support.upstream import DONE, END, HANG, HELLO, chunk, head, stream
from support.wait import DEADLINE, until

LISTS = {"backend": {"kind": "llamacpp"}, "model": {"format": "auto"}}  # the backend is asked for its template first


# Subscribers

_IDS = itertools.count()


def row_of(first, sizes):
    """Return a row of events of these sizes; an even one has a comment before it."""
    data = b""
    for number, size in enumerate(sizes, first):
        comment = b": gateway-warnings x\n\n" if size % 2 == 0 else b""
        data += comment + b'event: e\ndata: {"sequence_number":%d,"x":"%b"}\n\n' % (number, b"~" * size)
    return LogRow(first, first + len(sizes) - 1, data)


def rows_of(sizes_of_rows):
    log_rows, first = [], 0
    for sizes in sizes_of_rows:
        log_rows.append(row_of(first, sizes))
        first = log_rows[-1].last + 1
    return log_rows


def bytes_after(log_rows, after):
    """Return the bytes that a subscriber gets whose last event is `after`."""
    return b"".join(per_event(b"".join(row.data for row in log_rows))[after + 1 :])


class Log:
    """The log of a response in a store, and its tail; `add` extends both."""

    def __init__(self, store, known=()):
        self.store, self.id, self._known = store, f"resp_{next(_IDS)}", known
        self.tail = LogTail(known[-1].last if known else -1)

    async def begin(self):
        body = {"id": self.id, "status": "in_progress", "output": []}
        async with self.store.writing() as db:
            await responses.begin(db, [NewResponse("", body, [{"id": "a"}], 0, None)])
            await event_logs.append(db, [(self.id, row) for row in self._known])

    async def add(self, row):
        async with self.store.writing() as db:
            await event_logs.append(db, [(self.id, row)])
        self.tail.add(row)

    async def follow(self, after):
        """Return all that a subscriber gets."""
        return await Reader().read(self, after)


class Reader:
    """A subscriber that waits for so many steps of the event loop before each piece."""

    def __init__(self, steps=()):
        self.got, self._steps = b"", iter(steps)

    async def read(self, one, after):
        async for piece in subscribe(one.store, one.id, one.tail, after, 0):
            self.got += piece
            for _ in range(next(self._steps, 0)):
                await asyncio.sleep(0)
        return self.got


SIZES = st.lists(st.lists(st.integers(0, 40), min_size=1, max_size=4), max_size=8)
FOLLOWERS = st.lists(
    st.tuples(st.integers(0, 8), st.integers(-1, 40), st.lists(st.integers(0, 60), max_size=6)), max_size=6
)


@given(SIZES, SIZES, FOLLOWERS, st.integers(0, 400), st.booleans())
@settings(max_examples=examples(60), deadline=None)
def test_subscriber_gets_each_later_event_once(tmp_path_factory, known, sizes, followers, most, whole):
    """Check any log.

    known: rows from before; followers: when each starts, its last event, its pauses; most: the bytes of a tail.
    """
    path = tmp_path_factory.getbasetemp() / "followers.db"

    async def run():
        store = Database(f"sqlite:///{path}")
        log_rows = rows_of(known + sizes)
        one = Log(store, log_rows[: len(known)])
        await one.begin()
        coming, tasks = sorted(followers, key=lambda follower: follower[0]), []
        for number, row in enumerate([*log_rows[len(known) :], None]):
            while coming and (coming[0][0] <= number or row is None):
                _, after, steps = coming.pop(0)
                reader = Reader(steps)
                tasks.append((after, reader, asyncio.create_task(reader.read(one, after))))
            if row:
                await one.add(row)
        for after, reader, _ in tasks:
            await until(lambda after=after, reader=reader: reader.got, bytes_after(log_rows, after))
        one.tail.end(whole=whole)
        for after, _, task in tasks:
            assert await task == bytes_after(log_rows, after) + (event_stream.DONE if whole else b"")
        assert one.tail.followers == 0
        await store.close()

    with pytest.MonkeyPatch.context() as patch, asyncio.Runner() as runner:
        patch.setattr("gateway.server.jobs.log_tail._MAX", most)
        runner.run(run())


async def test_subscriber_before_the_trimmed_part_of_a_log_gets_no_end(store):
    log_rows = rows_of([[9], [9], [9]])
    one = Log(store, log_rows)
    await one.begin()
    async with store.writing() as db:
        await event_logs.trim(db, one.id, len(log_rows[2].data))
    one.tail.end(whole=True)
    assert await one.follow(1) == bytes_after(log_rows, 1) + event_stream.DONE
    assert await one.follow(0) == b""


async def test_subscriber_waits_for_a_failed_store_only_while_the_job_runs(tmp_path, caplog):
    store = Database(f"sqlite:///{tmp_path}/a.db")
    log_rows = rows_of([[9], [9]])
    one = Log(store, log_rows[:1])
    await one.begin()
    async with store.writing() as db:
        await db.execute(text("ALTER TABLE events RENAME TO gone"))
    waiting = asyncio.create_task(one.follow(-1))
    await until(lambda: "cannot be read" in caplog.text)
    async with store.writing() as db:
        await db.execute(text("ALTER TABLE gone RENAME TO events"))
    assert not waiting.done()
    await one.add(log_rows[1])
    await until(lambda: one.tail.followers, 1)
    one.tail.end(whole=True)
    assert await waiting == bytes_after(log_rows, -1) + event_stream.DONE
    async with store.writing() as db:
        await db.execute(text("ALTER TABLE events RENAME TO gone"))
    assert await one.follow(-1) == b"" and await one.follow(0) == bytes_after(log_rows, 0) + event_stream.DONE
    await store.close()


def test_job_tail_keeps_the_newest_rows(monkeypatch):
    monkeypatch.setattr("gateway.server.jobs.log_tail._MAX", 1000)
    asyncio.run(_check_tail())


async def _check_tail():
    tail, log_rows = LogTail(), rows_of([[n % 300] for n in range(200)] + [[5000], [9]])
    for row in log_rows[:-2]:
        tail.add(row)
        held = [one for one in log_rows if one.last <= row.last and (tail.behind(one.first - 1) is not None)]
        assert sum(len(one.data) for one in held) <= 1000 and held[-1] == row
    tail.add(log_rows[-2])  # larger than the maximum
    assert [*tail.behind(log_rows[-3].last)] == [log_rows[-2]] and tail.behind(log_rows[-4].last) is None
    tail.add(log_rows[-1])
    assert [*tail.behind(log_rows[-2].last)] == [log_rows[-1]] and tail.behind(log_rows[-3].last) is None
    tail.end(whole=True)
    tail.end(whole=False)
    assert tail.over and tail.whole


# Logs that cannot be written


async def test_job_log_loses_events_if_the_store_fails_for_long(tmp_path, monkeypatch, caplog):
    """A subscriber from before gets all events; a later one gets those behind the gap."""
    monkeypatch.setattr("gateway.server.jobs.log_writer._MAX_LATE", 1000)
    monkeypatch.setattr("gateway.server.jobs.log_writer._AGAIN", 0.05)
    script, gates = slowly(*CHUNKS)
    url = f"sqlite:///{tmp_path}/a.db"
    store = Database(url)
    async with listening(script, **where(url)) as site, asking(site, background=True) as first:
        await first.reach(4, gates, 0.5)
        before = len(per_event(first.data))
        await _rename_table(store, "events", "gone")
        await first.reach(16, gates, 0.5)
        await until(lambda: "responses are lost" in caplog.text)
        await _rename_table(store, "gone", "events")
        for gate in gates:
            gate.set()
        data = await first.all()
        assert (await ended(site, first.id)) == checked(data)
        await until(lambda: site.app.state.handler.jobs._others, set())  # until the log is put away
        cut = (await get(site, f"{first.id}?stream=true")).content
        assert data.startswith(cut) and before <= len(per_event(cut)) < 17 and not cut.endswith(DONE)
        await _assert_resumes_behind_a_gap(site, first.id, data, len(per_event(cut)) - 1)
    await store.close()


async def test_job_log_reports_late_events_that_a_programming_error_loses(monkeypatch, caplog):
    monkeypatch.setattr("gateway.server.jobs.log_writer._AGAIN", 0.0)
    failures = [StoreFailed("The store is down."), RuntimeError("a fault")]

    class BrokenStore:
        async def run_writing(self, _):
            raise failures.pop(0)

    writer = LogWriter(BrokenStore(), Lease("me"))
    task = asyncio.create_task(writer.run())
    await writer.write("resp_1", LogTail(), row_of(0, [1]))
    await until(lambda: failures, [])
    await until(lambda: "events of 1 responses are lost" in caplog.text)
    assert not task.done()
    task.cancel()


async def _assert_resumes_behind_a_gap(site, id, data, after):
    answer = await get(site, f"{id}?stream=true&starting_after={after}")
    assert problem(answer) == (400, BAD, "events_expired", "starting_after")
    oldest = int(re.search(r"up to (\d+)", answer.json()["error"]["message"])[1])
    rest = (await get(site, f"{id}?stream=true&starting_after={oldest}")).content
    assert oldest > after and rest == b"".join(per_event(data)[oldest + 1 :])


async def _rename_table(store, table, name):
    async with store.writing() as db:
        await db.execute(text(f"ALTER TABLE {table} RENAME TO {name}"))


async def test_job_stream_ends_and_logs_a_programming_error(postgres, caplog):
    """PostgreSQL distinguishes a missing table from a failure of the store."""
    url = postgres.create("mistaken")
    script, gates = slowly(chunk("Hi"), chunk(finish="stop"))
    store = Database(url)
    async with listening(script, **where(url)) as site, asking(site, background=True) as first:
        await first.reach(5, gates, 0.5)
        await _rename_table(store, "responses", "gone")
        for gate in gates:
            gate.set()
        assert not (await first.all()).endswith(DONE)
        await _rename_table(store, "gone", "responses")
        assert (await get(site, first.id)).json()["status"] == "in_progress"
    await store.close()
    (record,) = [record for record in caplog.records if record.getMessage() == "a response failed"]
    assert "responses" in str(record.exc_info[1])


async def test_job_log_is_written_after_a_programming_error(store_url, monkeypatch, caplog):
    fail_once(monkeypatch, "gateway.store.event_logs.append")
    async with gateway(HELLO, HELLO, **where(store_url)) as site:
        for broken in (True, False):
            response = await site.respond(background=True, stream=True)
            assert response.content.endswith(DONE) is not broken
        checked(response.content)
    assert [record.getMessage() for record in caplog.records if record.exc_info] == ["a response failed"]


@pytest.mark.parametrize("fields", [{"background": True}, {"background": True, "stream": True}, {"stream": True}])
async def test_job_programming_error_before_the_stream_answers_500(fields, monkeypatch, caplog):
    def broken(*_):
        raise RuntimeError("a secret of ours")

    monkeypatch.setattr("gateway.server.relay.attempts.strict_route", broken)
    async with gateway(HELLO, **RESUMED) as site:
        answer = await site.respond(**fields)
    assert problem(answer)[0] == 500 and "secret" not in answer.text
    assert [record.levelname for record in caplog.records if "failed" in record.getMessage()] == ["ERROR"]


# A gateway that stops


async def test_job_is_not_started_while_the_gateway_stops(store_url, store):
    async with gateway(HELLO, **RESUMED, **where(store_url)) as site:
        site.app.state.handler.jobs._stopping.set()
        assert problem(await site.respond(background=True))[0] == 503
        answer = await site.respond(stream=True)
        assert checked(answer.content)["store"] is True
        assert problem(await get(site, f"{checked(answer.content)['id']}?stream=true"))[3] == "stream"
    assert await rows(store) == {"threads": 1, "items": 2, "responses": 1}


@asynccontextmanager
async def remote_subscriber(store_url):
    """Yield the gateway of a running job, another one, the stream of the client, and a later one at the other gateway."""
    async with (
        listening(stopping(4), server={"drain_seconds": 0.1}, **where(store_url)) as site,
        listening(HELLO, **where(store_url)) as elsewhere,
        asking(site, background=True) as first,
        following(elsewhere, await _id_of(first)) as second,
    ):
        await second.until(b'"delta":"Hel"')
        yield site, elsewhere, first, second


async def test_subscriber_of_a_remote_job_is_disconnected_by_a_programming_error(store_url, monkeypatch, caplog):
    async with remote_subscriber(store_url) as (_, elsewhere, _, second):
        fail_once(monkeypatch, "gateway.store.event_logs.newest_event")
        for watch in elsewhere.app.state.handler.jobs._watches.values():
            watch.check_now()
        assert not (await second.all()).endswith(DONE)
    assert "the event log of a response cannot be read" in caplog.messages


async def test_subscriber_of_a_remote_job_is_disconnected_when_the_gateway_stops(store_url):
    async with remote_subscriber(store_url) as (site, elsewhere, first, second):
        elsewhere.app.state.handler.jobs._stopping.set()
        seen = await second.all()
        assert not seen.endswith(DONE) and first.data.startswith(seen)
        assert site.app.state.handler.jobs._running


async def test_subscriber_of_a_remote_job_gets_an_error_when_the_response_is_deleted(store_url, store):
    """The other process reads the log only after it is gone."""
    async with remote_subscriber(store_url) as (_, elsewhere, first, second):
        async with store.writing() as db:
            await responses.forget(db, first.id)
        for watch in elsewhere.app.state.handler.jobs._watches.values():
            watch.check_now()
        seen = events((await second.all()).decode())
        assert (seen[-1]["type"], seen[-1]["sequence_number"]) == ("error", len(seen) - 1)
        assert "was deleted" in seen[-1]["message"] and second.data.endswith(DONE)


async def _id_of(follower):
    await follower.until(b'"delta":"Hel"')
    return follower.id


# Expired leases


async def _expire_lease(store, id, **values):
    """End the lease of a job, as if its process did not react."""
    async with store.writing() as db:
        await db.execute(update(jobs).where(jobs.c.id == id).values(held_until=0, **values))


@pytest.mark.parametrize("end", ["completed", "cancelled"])
async def test_job_of_this_process_with_an_expired_lease_is_not_taken_over(end, store_url, store):
    script, gates = slowly(*CHUNKS)
    async with listening(script, **where(store_url)) as site, asking(site, background=True) as first:
        await first.reach(4, gates, 0.5)
        await _expire_lease(store, first.id)
        if end == "completed":
            await site.app.state.handler.jobs._adopt([first.id])
        else:
            await cancelled(site, first.id)
        for gate in gates:
            gate.set()
        data = await first.all()
        response = checked(data)
        assert response["status"] == end and (await get(site, first.id)).json() == response
        assert (await get(site, f"{first.id}?stream=true")).content == data


async def test_job_taken_by_another_process_stores_nothing_here(store_url, store, caplog, soon):
    """The job ends here at once; its subscribers reconnect."""
    async with listening(stopping(4), **where(store_url)) as site, asking(site, background=True) as first:
        await first.until(b'"delta":"Hel"')
        before = await rows(store)
        async with store.writing() as db:
            await db.execute(update(jobs).values(holder="another"))
        await until(site.upstream.gone.is_set)
        assert not (await first.all()).endswith(DONE)
        assert await rows(store) == before
        assert (await get(site, first.id)).json()["status"] == "in_progress"
        await _expire_lease(store, first.id)
        failed = await ended(site, first.id)
        again = (await get(site, f"{first.id}?stream=true")).content
        assert checked(again) == failed and again.startswith(first.data) and failed["status"] == "failed"
    assert [record for record in caplog.records if record.levelno >= logging.WARNING] == []


@pytest.mark.parametrize("streamed", [False, True])
async def test_job_taken_by_another_process_ends_at_its_next_write(streamed, store_url, store, monkeypatch):
    """The write is an event, or the end of the response."""
    monkeypatch.setattr("gateway.server.jobs.job_manager._HELD", 60.0)
    script, gates = slowly(chunk("Hi"), chunk(finish="stop"))
    async with gateway(script, **where(store_url)) as site:
        id = await (left_alone(site) if streamed else accepted(site))
        running = site.app.state.handler.jobs._running
        before = await rows(store)
        await _expire_lease(store, id, holder="another")
        for gate in gates:
            gate.set()
        await until(lambda: running, {})
        assert (await rows(store), (await get(site, id)).json()["status"]) == (before, "in_progress")


async def test_job_taken_by_another_process_is_not_marked_as_ended(tmp_path):
    """The backend fails while the store is busy."""
    path = f"sqlite:///{tmp_path}/a.db"
    store, gate = Database(path), asyncio.Event()
    async with gateway([head(), chunk("Hi"), gate, END], **where(path)) as site:
        id = await left_alone(site)
        at_work = site.app.state.handler.jobs
        job, task = at_work._running[id], at_work._tasks[id]
        await until(lambda: any(b"Hi" in row.data for row in job.tail.behind(-1)))
        before, events_before = await rows(store), job._events_sent
        async with store.writing() as db:
            await db.execute(update(jobs).values(holder="another"))
            gate.set()
            await until(lambda: job._events_sent > events_before)
            at_work._lose(job)
            await asyncio.wait((task,))
        assert (await rows(store), (await get(site, id)).json()["status"]) == (before, "in_progress")
    await store.close()


async def test_job_taken_by_another_process_is_not_taken_back(store_url, store, monkeypatch):
    """The client disconnects meanwhile."""
    monkeypatch.setattr("gateway.server.jobs.job_manager._HELD", 60.0)
    async with listening([HANG], **LISTS, **where(store_url)) as site:
        site.upstream.shown["/props"] = [HANG]
        request = {"model": "m", "input": "a", "background": True}
        leaving = asyncio.create_task(site.client.post("/v1/responses", json=request))
        await until(lambda: bool(site.upstream.aside))
        (id,) = site.app.state.handler.jobs._running
        before = await rows(store)
        await _expire_lease(store, id, holder="another")
        leaving.cancel()
        await until(lambda: site.app.state.handler.jobs._tasks, {})
        assert await rows(store) == before and before["jobs"] == 1


async def test_job_that_ends_during_a_lease_renewal_leaves_no_rows(tmp_path, monkeypatch):
    """The renewal waits for the store until the job has ended."""
    monkeypatch.setattr("gateway.server.jobs.job_manager._HELD", 60.0)
    path = f"sqlite:///{tmp_path}/a.db"
    store = Database(path)
    async with listening([HANG], **LISTS, **where(path)) as site:
        site.upstream.shown["/props"] = [HANG]
        at_work, transactions = site.app.state.handler.jobs, []
        request = {"model": "m", "input": "a", "background": True}
        leaving = asyncio.create_task(site.client.post("/v1/responses", json=request))
        await until(lambda: bool(site.upstream.aside))
        writing = at_work.store.writing
        monkeypatch.setattr(at_work.store, "writing", lambda: transactions.append(True) or writing())
        async with store.writing() as db:
            await db.execute(update(jobs).values(attempts=1))  # locks the store
            holding = asyncio.create_task(at_work._hold())
            await until(lambda: len(transactions), 1)
            leaving.cancel()
            await until(lambda: len(transactions), 2)
        await holding
        assert await rows(store) == {}
    await store.close()


# Takeover


async def abandon(site, store, id, **values):
    """Stop a job without a trace, as if its process had died."""
    at_work = site.app.state.handler.jobs
    job = at_work._running[id]
    task = at_work._tasks[id]
    at_work._lose(job)
    await asyncio.wait((task,))
    await _expire_lease(store, id, holder="dead", **values)


@pytest.fixture
def soon(monkeypatch):
    """Let gateways look for jobs without a process more often."""
    monkeypatch.setattr("gateway.server.jobs.job_manager._HELD", 0.05)


async def orphan(site, store, *, streamed=False, input="Hello", **values):
    """Start a job at this gateway, stop it as if the process had died, and return its id."""
    id = await (left_alone(site) if streamed else accepted(site, input=input))
    await site.upstream.arrived.wait()
    await abandon(site, store, id, **values)
    return id


@pytest.mark.parametrize("streamed", [False, True])
async def test_job_without_output_is_restarted_after_a_crash(streamed, store_url, store, soon):
    async with gateway([HANG], **where(store_url)) as site:
        id = await orphan(site, store, streamed=streamed)
    async with gateway(HELLO, **where(store_url)) as site:
        response = await ended(site, id)
        assert (response["status"], response["id"], len(site.upstream.posts)) == ("completed", id, 1)
        if streamed:
            assert checked((await get(site, f"{id}?stream=true")).content) == response
    left = {"events": 1} if streamed else {}
    assert await rows(store) == {"threads": 1, "items": 2, "responses": 1, **left}


async def test_job_that_is_restarted_keeps_its_warnings_in_the_stream(store_url, store, soon):
    """Its client has the headers of the first process."""
    async with gateway([HANG], **where(store_url)) as site:
        id = await orphan(site, store, streamed=True)
    async with gateway(stream(chunk("Hi"), chunk(finish="stop")), **where(store_url)) as site:
        await ended(site, id)
        log = (await get(site, f"{id}?stream=true")).content
    assert b": gateway-warnings estimated:usage\n\nevent: response.completed" in log


async def test_job_is_restarted_after_a_programming_error_in_the_renewal(store_url, store, soon, monkeypatch, caplog):
    async with gateway([HANG], **where(store_url)) as site:
        id = await orphan(site, store)
    fail_once(monkeypatch, "gateway.store.jobs.has_due")
    async with gateway(HELLO, **where(store_url)) as site:
        assert (await ended(site, id))["status"] == "completed"
    assert [record.getMessage() for record in caplog.records if record.exc_info] == [
        "the renewal of leases failed, the gateway tries again"
    ]


async def test_job_is_restarted_although_the_store_is_full(store_url, store, soon, monkeypatch):
    """It was accepted before: a refusal would count as an attempt."""
    async with gateway([HANG], **where(store_url)) as site:
        id = await orphan(site, store)
    monkeypatch.setattr("gateway.store.write_queue._MAX_LENGTH", 0)
    async with gateway(HELLO, **where(store_url)) as site:
        assert (await site.respond()).status_code == 503
        assert ((await ended(site, id))["status"], len(site.upstream.posts)) == ("completed", 1)


@pytest.mark.parametrize("deleted", [False, True])
async def test_job_that_is_restarted_reads_its_stored_file_again(deleted, store_url, store, soon):
    async with gateway([HANG], **where(store_url)) as site:
        form = {"files": {"file": ("a.txt", b"Hello")}, "data": {"purpose": "user_data"}}
        file = (await site.client.post("/v1/files", **form)).json()["id"]
        parts = [{"type": "input_file", "file_id": file}]
        id = await orphan(site, store, input=[{"role": "user", "content": parts}])
        if deleted:
            await site.client.delete(f"/v1/files/{file}")
    async with gateway(HELLO, **where(store_url)) as site:
        response = await ended(site, id)
        if deleted:
            assert response["status"] == "failed" and file in response["error"]["message"]
        else:
            assert response["status"] == "completed"
            assert site.upstream_body["messages"] == [{"role": "user", "content": '<file name="a.txt">Hello</file>'}]
        assert site.app.state.buffers.taken == 0


@pytest.mark.parametrize(("attempts", "status"), [(2, "completed"), (3, "failed")])
async def test_job_is_started_three_times_at_most(attempts, status, store_url, store, soon):
    async with gateway([HANG], **where(store_url)) as site:
        id = await orphan(site, store, attempts=attempts)
    async with gateway(HELLO, **where(store_url)) as site:
        response = await ended(site, id)
        assert (response["status"], len(site.upstream.posts)) == (status, status == "completed")
        assert status == "completed" or response["error"]["code"] == "server_error"


@pytest.mark.parametrize("streamed", [False, True])
async def test_job_that_cannot_be_restarted_fails(streamed, store_url, store, soon):
    """The second gateway does not have the model."""
    async with gateway([HANG], **where(store_url)) as site:
        id = await orphan(site, store, streamed=streamed)
    async with gateway(HELLO, model=False, **where(store_url)) as site:
        response = await ended(site, id)
        assert (response["status"], response["error"]["code"]) == ("failed", "invalid_prompt")
        assert "'m'" in response["error"]["message"]
        if streamed:
            assert checked((await get(site, f"{id}?stream=true")).content) == response


CI = {"name": "ci", "key": "ci-key", "models": ["m"]}
# The auth of the second gateway, and what becomes of the response.
LATER = {
    "the same key": ({"keys": [CI]}, "completed", None),
    "no key is needed": (None, "completed", None),
    "the key is gone": ({"keys": [{"name": "ops", "key": "ops-key"}]}, "failed", "'ci' of the response is no longer valid"),
    "the model is gone": ({"keys": [{**CI, "models": ["other"]}]}, "failed", "not allowed to use the model 'm'"),
}  # fmt: skip


@pytest.mark.parametrize("case", LATER)
async def test_job_is_restarted_only_with_a_key_that_allows_it(case, store_url, store, soon):
    auth, status, message = LATER[case]
    async with gateway([HANG], auth={"keys": [CI]}, **where(store_url)) as site:
        id = await accepted(site, headers=bearer("ci-key"))
        await site.upstream.arrived.wait()
        await abandon(site, store, id)

    async def found():
        async with store.reading() as db:
            return (await responses.find(db, "ci", id)).body

    async def count_jobs():
        return (await rows(store)).get("jobs", 0)

    async with gateway(HELLO, **({"auth": auth} if auth else {}), **where(store_url)) as site:
        await until(count_jobs, 0)
        assert (len(site.upstream.posts), (response := await found())["status"]) == (status == "completed", status)
    assert message in response["error"]["message"] if message else response["error"] is None


@pytest.mark.parametrize("streamed", [False, True])
async def test_job_can_be_cancelled_before_its_restart_is_accepted(streamed, store_url, store, soon):
    """The restart waits for the chat template of the backend."""
    async with gateway([HANG], **where(store_url)) as site:
        id = await orphan(site, store, streamed=streamed)
    async with gateway([HANG], **LISTS, **where(store_url)) as site:
        site.upstream.shown["/props"] = [HANG]
        await until(lambda: bool(site.upstream.aside))
        response = await cancelled(site, id)
        assert (response["status"], response["output"], site.upstream.posts) == ("cancelled", [], [])
        if streamed:
            assert checked((await get(site, f"{id}?stream=true")).content) == response


async def test_job_that_was_cancelled_is_not_restarted(store_url, store, soon):
    async with gateway([HANG], **where(store_url)) as site:
        id = await orphan(site, store, streamed=True, cancelled=True)
    async with gateway(HELLO, **where(store_url)) as site:
        response = await ended(site, id)
        assert (response["status"], site.upstream.posts) == ("cancelled", [])
        assert checked((await get(site, f"{id}?stream=true")).content) == response


async def test_job_of_a_crashed_process_is_cancelled_at_once(store_url, store):
    async with gateway([HANG], **where(store_url)) as site:
        id = await orphan(site, store)
        response = await cancelled(site, id)
        assert (response["status"], response["output"]) == ("cancelled", [])


async def test_job_restart_continues_its_conversation(store_url, store, soon):
    async with gateway([HANG], **where(store_url)) as site:
        conversation = (await site.client.post("/v1/conversations", json={})).json()["id"]
        id = await accepted(site, conversation=conversation)
        await site.upstream.arrived.wait()
        await abandon(site, store, id)
    async with gateway(HELLO, **where(store_url)) as site:
        assert (await ended(site, id))["status"] == "completed"
        listed = (await site.client.get(f"/v1/conversations/{conversation}/items")).json()["data"]
        assert [item["content"][0]["text"] for item in listed] == ["Hi", "Hello"]
        assert (await site.respond(conversation=conversation, stream=True)).status_code == 200


async def test_job_failure_unlocks_its_conversation(store_url, store, soon):
    async with listening(stopping(4), HELLO, **where(store_url)) as site:
        conversation = (await site.client.post("/v1/conversations", json={})).json()["id"]
        async with asking(site, background=True, conversation=conversation) as first:
            await first.until(b'"delta":"Hel"')
            await abandon(site, store, first.id)
            assert (await ended(site, first.id))["status"] == "failed"
        assert (await site.respond(conversation=conversation)).status_code == 200


@pytest.mark.parametrize("streamed", [False, True])
async def test_job_with_a_stored_response_gets_its_missing_end(streamed, store_url, store, soon, monkeypatch):
    """The process dies as soon as the response is stored."""
    async with gateway(HELLO, **where(store_url)) as site:
        write = LogWriter.write

        async def dying(*arguments, last=False):
            if last:
                raise JobLost
            await write(*arguments)

        monkeypatch.setattr(LogWriter, "write", dying)
        id = await (left_alone(site) if streamed else accepted(site))
        await until(lambda: site.app.state.handler.jobs._running, {})
        monkeypatch.setattr(LogWriter, "write", write)
        assert (await rows(store))["jobs"] == 1
        stored = await ended(site, id)
        await _expire_lease(store, id, holder="dead")
    async with gateway(HELLO, **where(store_url)) as site:
        left = {"events": 1} if streamed else {}
        await until(lambda: rows(store), {"threads": 1, "items": 2, "responses": 1, **left})
        assert site.upstream.posts == [] and await ended(site, id) == stored and stored["status"] == "completed"
        if streamed:
            assert checked((await get(site, f"{id}?stream=true")).content) == stored


async def test_job_in_the_foreground_without_output_is_deleted_after_a_crash(store_url, store, soon):
    async with gateway([HANG], **RESUMED, **where(store_url)) as site:
        task = asyncio.create_task(site.respond(stream=True))
        await site.upstream.arrived.wait()
        (id,) = site.app.state.handler.jobs._running
        await abandon(site, store, id)
        assert problem(await task)[0] == 503
    async with gateway(HELLO, **RESUMED, **where(store_url)):
        await until(lambda: rows(store), {})


async def test_job_restart_waits_for_a_failed_store(tmp_path, soon):
    """The earlier items of its conversation cannot be read for a while."""
    url = f"sqlite:///{tmp_path}/a.db"
    store = Database(url)
    async with gateway(HELLO, [HANG], **where(url)) as site:
        first = events((await site.respond(stream=True, input="a")).text)[-1]["response"]["id"]
        site.upstream.arrived.clear()
        id = await accepted(site, previous_response_id=first)
        await site.upstream.arrived.wait()
        await abandon(site, store, id)
    await _rename_table(store, "items", "gone")
    async with gateway(HELLO, **where(url)) as site:
        await until(lambda: _attempts(store), 2)
        await until(lambda: _has_failed(site))
        assert site.upstream.posts == []
        await _rename_table(store, "gone", "items")
        await _expire_lease(store, id, holder="dead")
        assert (await ended(site, id))["status"] == "completed"
        assert [message["content"] for message in site.upstream_body["messages"]] == ["a", "Hi", "Hello"]
    await store.close()


async def _has_failed(site):
    """Return whether the store has failed at this gateway."""
    return (await scrape(site)).of("gateway_store_errors_total") > 0


async def _attempts(store):
    async with store.reading() as db:
        return await db.scalar(select(jobs.c.attempts))


async def test_job_in_the_foreground_with_output_fails_after_a_crash(store_url, store, soon):
    async with listening(stopping(4), **RESUMED, **where(store_url)) as site, asking(site) as first:
        await first.until(b'"delta":"Hel"')
        await abandon(site, store, first.id)
        assert not (await first.all()).endswith(DONE)
        failed = await ended(site, first.id)
        assert (failed["status"], failed["error"]["code"]) == ("failed", "server_error")
        async with following(site, first.id) as again:
            data = await again.all()
        assert checked(data) == failed and data.startswith(first.data)


# Subscribers at another gateway


async def test_subscribers_at_another_gateway_share_one_watch(store_url):
    script, gates = slowly(*CHUNKS)
    async with (
        listening(script, **where(store_url)) as site,
        listening(HELLO, **where(store_url)) as elsewhere,
        asking(site, background=True) as first,
    ):
        await first.reach(4, gates)
        watches = elsewhere.app.state.handler.jobs._watches
        async with following(elsewhere, first.id) as second:
            async with following(elsewhere, first.id, 1) as third:
                await third.until(b'"sequence_number":4,')
                await second.until(b'"sequence_number":4,')
                assert len(watches) == 1
            await until(lambda: [watch.users for watch in watches.values()], [1])
            async with following(elsewhere, first.id) as fourth:  # it stays to the end, as the second does
                await until(lambda: [watch.users for watch in watches.values()], [2])
                for gate in gates:
                    gate.set()
                assert await second.all() == await fourth.all() == await first.all()
        await until(lambda: watches, {})
        assert (await get(elsewhere, f"{first.id}?stream=true")).content == first.data


async def test_job_watch_waits_for_a_failed_store(tmp_path, monkeypatch, caplog):
    monkeypatch.setattr("gateway.server.jobs.log_writer._AGAIN", 0.05)
    script, gates = slowly(*CHUNKS)
    url = f"sqlite:///{tmp_path}/a.db"
    store = Database(url)
    async with (
        listening(script, **where(url)) as site,
        listening(HELLO, **where(url)) as elsewhere,
        asking(site, background=True) as first,
    ):
        await first.reach(4, gates)
        async with following(elsewhere, first.id) as second:
            await second.until(b'"sequence_number":4,')
            await _rename_table(store, "events", "gone")
            await until(lambda: "the event log of a response cannot be read" in caplog.text)
            await first.reach(9, gates)
            await _rename_table(store, "gone", "events")
            for gate in gates:
                gate.set()
            assert await second.all() == await first.all()
    await store.close()


async def test_job_is_cancelled_through_another_gateway(store_url, monkeypatch):
    """PostgreSQL notifies the process of the job; with SQLite that process polls."""
    polls = store_url.startswith("sqlite")
    monkeypatch.setattr("gateway.server.jobs.job_manager._HELD", 0.1 if polls else 3600.0)
    monkeypatch.setattr("gateway.server.jobs.job_manager.Lease", partial(Lease, seconds=3600))
    async with gateway([HANG], **where(store_url)) as site, gateway(HELLO, **where(store_url)) as elsewhere:
        id = await accepted(site)
        await site.upstream.arrived.wait()
        async with asyncio.timeout(DEADLINE):
            response = await cancelled(elsewhere, id)
        assert response["status"] == "cancelled" and site.upstream.gone.is_set()


async def test_job_log_writes_do_not_wake_their_own_process(postgres, monkeypatch):
    """A process whose job adds to its log does not look for requests of others."""
    monkeypatch.setattr("gateway.server.jobs.job_manager._HELD", 60.0)
    url = postgres.create("unheard")
    script, gates = slowly(*CHUNKS)
    async with listening(script, **where(url)) as site, asking(site, background=True) as first:
        await first.reach(2, gates)
        looks = []
        engine = site.app.state.store._engines.writes.sync_engine
        event.listen(engine, "before_cursor_execute", lambda *sent: looks.append("wanted_until <" in sent[2]))
        await first.reach(20, gates)
        await cancelled(site, first.id)
        await until(lambda: looks.count(True), 1)
        assert len(looks) > 20
        for gate in gates:
            gate.set()
