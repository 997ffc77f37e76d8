"""Test jobs among several gateway processes that follow and cancel them, that die, stop, or are suspended."""

import asyncio
import signal
import sqlite3
from contextlib import AsyncExitStack, asynccontextmanager, closing, contextmanager, suppress
from functools import partial

import httpx
import pytest
from sqlalchemy import select, update

from gateway.errors import StoreFailed
from gateway.server.jobs.job_manager import RemoteLog
from gateway.server.jobs.log_tail import LogTail, subscribe
from gateway.server.jobs.log_writer import JobContext, JobLost, Lease, LogWriter
from gateway.server.jobs.recovery import DIED, fail_job, recover_job
from gateway.store import event_logs
from gateway.store import jobs as all_jobs
from gateway.store import responses as all_responses
from gateway.store.records import LogRow, NewJob, NewResponse, StoredJob
from gateway.store.tables import conversations, events, jobs, responses
from support.app import problem
from support.gateway_process import process
from support.responses_events import checked, events_of
from support.upstream import DONE, END, HANG, Upstream, chunk, completion_body, head, whole
from support.wait import idle, until

OVER = b"data: [DONE]\n\n"
BEGUN = [head(), chunk("Hel")]
REST = [chunk("lo"), chunk(finish="stop"), DONE, END]
HELLO = [("completed", "Hello")]
HEL = [("incomplete", "Hel")]
ANSWER = whole(completion_body("Hello"))
NOTHING = {}
RESUMED = {"responses": {"resume_seconds": 60}}
LATE = {"stream": {"grace_seconds": 60}}  # a client gets nothing before the first content
QUICK = {"server": {"drain_seconds": 0.2}}
OFTEN = {"eager": {"looks": 0.1}}

on_sqlite = pytest.mark.parametrize("store_url", ["sqlite"], indirect=True)
on_postgresql = pytest.mark.parametrize("store_url", ["postgresql"], indirect=True)


@pytest.fixture(scope="module")
def postgres(own_postgres):
    """Return a PostgreSQL that the tests of this module stop."""
    return own_postgres


class Reader:
    """Read a stream in a task until it ends or breaks off."""

    def __init__(self, client, method, path, **options):
        self.data, self._more = b"", asyncio.Event()
        self.task = asyncio.create_task(self._read(client, method, path, options))

    async def _read(self, client, method, path, options):
        try:
            with suppress(httpx.RemoteProtocolError, httpx.ReadError):
                async with client.stream(method, path, **options) as answer:
                    assert answer.status_code == 200, await answer.aread()
                    async for piece in answer.aiter_bytes():
                        self.data += piece
                        self._tell()
        finally:
            self._tell()

    def _tell(self):
        self._more.set()
        self._more = asyncio.Event()

    async def until(self, text):
        while text not in self.data:
            assert not self.task.done() or self.task.result(), self.data
            await self._more.wait()

    async def end(self):
        await self.task
        return self.data


class Life:
    """A response that is requested at one gateway and read through any; own: the stream of its own client."""

    def __init__(self, readers, **fields):
        self._readers, self._fields = readers, fields

    async def begin(self, client, **fields):
        """Request it as a stream, and wait until its id is known."""
        self.own = self.ask(client, **fields)
        await self.own.until(b"response.in_progress")
        first = self.own.data.partition(b"\n\n")[0] + b"\n\n" + OVER
        self.path = f"/v1/responses/{events_of(first)[0]['response']['id']}"

    def ask(self, client, **fields):
        return self._reader(client, "POST", "/v1/responses", json=self._body(stream=True, **fields))

    async def submit(self, client, **fields):
        """Request it without a stream."""
        answer = await client.post("/v1/responses", json=self._body(**fields))
        assert answer.status_code == 200, answer.text
        self.path = f"/v1/responses/{answer.json()['id']}"

    def follow(self, client, **after):
        return self._reader(client, "GET", self.path, params={"stream": True, **after})

    async def get(self, client):
        return (await self.answer(client)).json()

    async def answer(self, client, **params):
        return await client.get(self.path, params=params)

    async def ended(self, client):
        """Wait for the end of the response, and return it."""
        responses = []

        async def runs():
            responses.append(await self.get(client))
            return responses[-1]["status"] in ("queued", "in_progress")

        await until(runs, False)
        return responses[-1]

    async def cancel(self, client):
        answer = await client.post(f"{self.path}/cancel")
        assert answer.status_code == 200, answer.text
        return answer.json()

    def _body(self, **fields):
        return {"model": "m", "input": "a", **self._fields, **fields}

    def _reader(self, *arguments, **more):
        self._readers.append(Reader(*arguments, **more))
        return self._readers[-1]


@pytest.fixture
async def readers():
    begun = []
    yield begun
    for reader in begun:
        reader.task.cancel()
    await asyncio.gather(*(reader.task for reader in begun), return_exceptions=True)


@pytest.fixture
def life(readers):
    """A response in the background."""
    return Life(readers, background=True)


@pytest.fixture
def lives(readers):
    """A response in the background, and one in the foreground."""
    return Life(readers, background=True), Life(readers)


@pytest.fixture
def gateways(store_url, tmp_path):
    """Return a function that starts one more gateway on the store: the process, and a client of it."""

    def start(upstream, **options):
        return process(upstream.url, store_url, tmp_path, **{"eager": {}, **options})

    return start


@pytest.fixture
def two(gateways):
    """Return a function that starts two gateways: the process of the first, and clients of both.

    one, other: options for one of them alone.  The other one is stopped at the end.
    """

    @asynccontextmanager
    async def start(upstream, *, one=NOTHING, other=NOTHING, **options):
        async with AsyncExitStack() as running:
            both = (running.enter_async_context(gateways(upstream, **{**options, **own})) for own in (one, other))
            (child, first), (another, second) = await asyncio.gather(*both)
            yield child, first, second
            another.terminate()
            await another.wait()

    return start


@pytest.fixture(autouse=True)
async def bounded():
    async with asyncio.timeout(90):
        yield


async def kill(child, store):
    """Kill a process, and end its leases as if their time had passed."""
    child.kill()
    await child.wait()
    await end_leases(store)


async def end_leases(store):
    async with store.writing() as db:
        await db.execute(update(jobs).values(held_until=0))


async def found(store, query):
    async with store.reading() as db:
        return await db.scalar(query)


async def until_all_is_put_away(store):
    """Wait until no job is left, and each log is packed or kept for a limited time."""
    loose = ~events.c.packed, events.c.valid_until.is_(None)
    for query in (select(jobs.c.id), select(events.c.response).where(*loose)):
        await until(partial(found, store, query), None)


async def conversation_of(client):
    return (await client.post("/v1/conversations", json={})).json()["id"]


async def continue_conversation(client, conversation):
    """Add a response to a conversation; return the texts of its items."""
    answer = await client.post("/v1/responses", json={"model": "m", "input": "b", "conversation": conversation})
    assert answer.status_code == 200, answer.text
    return await texts_of(client, conversation)


async def texts_of(client, conversation):
    listed = await client.get(f"/v1/conversations/{conversation}/items", params={"order": "asc"})
    return [item["content"][0]["text"] for item in listed.json()["data"]]


async def assert_locked(client, conversation):
    ask = {"model": "m", "input": "b", "conversation": conversation}
    assert problem(await client.post("/v1/responses", json=ask))[2] == "conversation_locked"


def texts(response):
    return [(item["status"], *(part["text"] for part in item["content"])) for item in response["output"]]


def assert_completed(response):
    assert (response["status"], texts(response)) == ("completed", HELLO)


def assert_cancelled(response, output=()):
    assert (response["status"], texts(response)) == ("cancelled", [*output])


def assert_failed(response, output=(), why="has stopped"):
    assert (response["status"], texts(response)) == ("failed", [*output])
    assert response["error"]["code"] == "server_error" and why in response["error"]["message"]


# Subscribers at another process


async def test_subscriber_at_another_process_gets_the_same_bytes(two, life):
    """With PostgreSQL a process does not poll; it is notified."""
    go = asyncio.Event()
    async with Upstream([[*BEGUN, go, *REST]], ()).serving() as upstream, two(upstream) as (_, one, other):
        await life.begin(one)
        followers = [life.follow(other), life.follow(other, starting_after=3), life.follow(one)]
        for follower in (life.own, *followers):
            await follower.until(b'"Hel"')
        go.set()
        data = await life.own.end()
        assert_completed(response := checked(data))
        every, behind, at_home = [await follower.end() for follower in followers]
        assert every == at_home == data and data.endswith(behind)
        assert events_of(behind)[0]["sequence_number"] == 4
        for client in (one, other):
            assert await life.get(client) == response
            assert await life.follow(client).end() == data
            assert await life.follow(client, starting_after=3).end() == behind
            assert await life.follow(client, starting_after=1000).end() == OVER


async def test_subscribers_at_another_process_cost_one_watch(two, life, tmp_path):
    """One watch reads the log for all subscribers, when it is notified or from time to time."""
    log, goes = tmp_path / "statements", [asyncio.Event() for _ in range(6)]
    pieces = [step for number, go in enumerate(goes) for step in (go, chunk(f"piece {number}"))]
    async with (
        Upstream([[*BEGUN, *pieces, *REST]], ()).serving() as upstream,
        two(upstream, other={"eager": {"statements": str(log)}}) as (_, one, other),
    ):
        await life.begin(one)
        followers = [life.follow(other) for _ in range(20)]
        await asyncio.gather(*(follower.until(b'"Hel"') for follower in followers))
        before = len(log.read_text().splitlines())
        for number, go in enumerate(goes):
            go.set()
            await asyncio.gather(*(follower.until(b'"piece %d"' % number) for follower in followers))
        done = log.read_text().splitlines()[before:]
        assert {await follower.end() for follower in followers} == {await life.own.end()}
    looks, reads, holds = (
        sum(statement.startswith(begin) for statement in done)
        for begin in ("SELECT jobs.holder", "SELECT events.first", "WITH locked AS")
    )
    assert looks <= len(followers) * len(goes) / 2 + holds and reads <= 2 * looks


async def test_subscriber_at_another_process_keeps_the_job_running(two, lives, store):
    """The job runs while a subscriber is connected, and for resume_seconds afterwards."""
    _, life = lives
    async with (
        Upstream([[*BEGUN, HANG]], ()).serving() as upstream,
        two(upstream, **RESUMED) as (_, one, other),
    ):
        await life.begin(one)
        follower = life.follow(other)
        await follower.until(b'"Hel"')
        life.own.task.cancel()
        for _ in range(5):
            wanted = await found(store, select(jobs.c.wanted_until))
            async with store.writing() as db:
                await db.execute(update(jobs).values(wanted_until=wanted - 30_000))
            later = select(jobs.c.id).where(jobs.c.wanted_until >= wanted)
            await until(partial(found, store, later), life.path.rpartition("/")[-1])
        assert not upstream.gone.is_set()
        follower.task.cancel()

        async def is_given_up():
            async with store.writing() as db:
                await db.execute(update(jobs).values(wanted_until=1))  # as if resume_seconds had passed
            return upstream.gone.is_set()

        await until(is_given_up)
        assert_cancelled(await life.ended(other), HEL)


# A process dies


async def test_job_with_output_fails_when_its_process_dies(two, lives, readers, store):
    """A job in the foreground without output fails too, if its client knows its id."""
    lives = (*lives, Life(readers))
    async with (
        Upstream([[*BEGUN, HANG], [*BEGUN, HANG], [HANG]], ()).serving() as upstream,
        two(upstream, **RESUMED) as (child, one, other),
    ):
        for life, output in zip(lives, (HEL, HEL, []), strict=True):
            await life.begin(one)
            life.followers = [life.follow(other), life.follow(other, starting_after=1)]
            for follower in (life.own, life.followers[0]):
                await follower.until(b'"Hel"' if output else b"response.in_progress")
        await kill(child, store)
        for life, output in zip(lives, (HEL, HEL, []), strict=True):
            data, behind = [await follower.end() for follower in life.followers]
            assert_failed(response := checked(data), output)
            assert data.startswith(life.own.data) and data.endswith(behind)
            await until_all_is_put_away(store)
            assert await life.get(other) == response
            assert await life.follow(other).end() == data
    assert len(upstream.posts) == 3


async def test_job_unknown_to_its_client_is_deleted_when_its_process_dies(two, readers, store):
    async with (
        Upstream([[HANG], ANSWER], ()).serving() as upstream,
        two(upstream, **LATE, **RESUMED) as (child, one, other),
    ):
        conversation, life = await conversation_of(one), Life(readers)
        own = life.ask(one, conversation=conversation)
        await upstream.arrived.wait()
        life.path = f"/v1/responses/{await found(store, select(jobs.c.id))}"
        await kill(child, store)
        assert await own.end() == b""
        await until_all_is_put_away(store)
        assert (await life.answer(other)).status_code == 404
        assert await continue_conversation(other, conversation) == ["b", "Hello"]


@pytest.mark.parametrize(
    ("store_url", "stream"), [("sqlite", True), ("postgresql", True), ("postgresql", False)], indirect=["store_url"]
)
async def test_job_without_output_is_restarted_when_its_process_dies(stream, two, life, store):
    answer = [*BEGUN, *REST] if stream else ANSWER
    async with Upstream([[HANG], answer], ()).serving() as upstream, two(upstream) as (child, one, other):
        await (life.begin if stream else life.submit)(one)
        followers = [life.follow(other) for _ in range(stream)]
        await upstream.arrived.wait()
        await kill(child, store)
        assert_completed(response := await life.ended(other))
        followers += [life.follow(other) for _ in range(stream)]
        for follower in followers:
            data = await follower.end()
            assert checked(data) == response and data.startswith(life.own.data)
        await until_all_is_put_away(store)
    first, second = upstream.posts
    assert first.json == second.json


@on_sqlite
async def test_job_fails_after_three_processes_have_died(gateways, life, store):
    async with Upstream([[HANG]], ()).serving() as upstream:
        for attempt in range(3):
            upstream.arrived.clear()
            async with gateways(upstream) as (child, client):
                if not attempt:
                    await life.submit(client)
                await upstream.arrived.wait()
                await kill(child, store)
        async with gateways(upstream) as (_, client):
            assert_failed(await life.ended(client))
            assert problem(await life.answer(client, stream=True))[::3] == (400, "stream")
    assert len(upstream.posts) == 3


async def test_job_of_a_dead_process_ends_after_the_gateway_restarts(gateways, life, readers, store):
    silent = Life(readers, background=True)
    async with Upstream([[*BEGUN, HANG], [HANG], [*BEGUN, *REST]], ()).serving() as upstream:
        async with gateways(upstream) as (child, client):
            await life.begin(client)
            await life.own.until(b'"Hel"')
            await silent.begin(client)
            await until(lambda: len(upstream.posts), 2)
            await kill(child, store)
        async with gateways(upstream) as (_, client):
            assert_failed(checked(await life.follow(client).end()), HEL)
            assert_completed(checked(await silent.follow(client).end()))
    assert len(upstream.posts) == 3


async def test_job_is_restarted_when_its_lease_expires(two, life):
    async with (
        Upstream([[HANG], [*BEGUN, *REST]], ()).serving() as upstream,
        two(upstream, eager={"lease": 3}) as (child, one, other),
    ):
        await life.begin(one)
        follower = life.follow(other)
        await upstream.arrived.wait()
        child.kill()
        assert_completed(checked(await follower.end()))
    assert len(upstream.posts) == 2


@pytest.mark.parametrize(
    ("store_url", "point", "status"),
    [
        ("sqlite", "INSERT INTO events", "completed"),  # the first ones
        ("sqlite", "UPDATE responses", "failed"),
        ("sqlite", "DELETE FROM jobs", "completed"),  # the response is stored, its end is not logged
        ("postgresql", "DELETE FROM jobs", "completed"),
        ("postgresql", "DELETE FROM events", "completed"),  # that are about to be packed
    ],
    indirect=["store_url"],
)
async def test_job_ends_at_whatever_statement_its_process_dies(point, status, two, life, store):
    """The backend sends the whole response at once."""
    at_once = [head(), b"".join((chunk("Hello"), *REST[1:3])), END]
    async with (
        Upstream([at_once], ()).serving() as upstream,
        two(upstream, one={"dies_at": point}) as (child, one, other),
    ):
        own = life.ask(one)
        await child.wait()
        seen = await own.end()
        life.path = f"/v1/responses/{await found(store, select(responses.c.id))}"
        await end_leases(store)
        response = await life.ended(other)
        assert response["status"] == status
        await until(partial(found, store, select(jobs.c.id)), None)
        data = await life.follow(other).end()
        assert checked(data) == response and data.startswith(seen.removesuffix(OVER))


@on_sqlite
async def test_job_without_a_stream_has_no_events_after_a_crash(two, life, store):
    async with (
        Upstream([ANSWER], ()).serving() as upstream,
        two(upstream, one={"dies_at": "DELETE FROM jobs"}) as (child, one, other),
    ):
        await life.submit(one)
        await child.wait()
        await end_leases(store)
        assert_completed(await life.ended(other))
        await until_all_is_put_away(store)
        assert problem(await life.answer(other, stream=True))[::3] == (400, "stream")


@pytest.mark.parametrize(
    ("store_url", "point"),
    [("sqlite", "UPDATE responses"), ("postgresql", "DELETE FROM jobs")],
    indirect=["store_url"],
)
async def test_job_ends_if_the_process_that_takes_it_over_dies(point, gateways, life, store):
    async with Upstream([[*BEGUN, HANG]], ()).serving() as upstream:
        async with gateways(upstream) as (child, client):
            await life.begin(client)
            await life.own.until(b'"Hel"')
            await kill(child, store)
        async with gateways(upstream, dies_at=point) as (child, _):
            await child.wait()
            await end_leases(store)
        async with gateways(upstream) as (_, client):
            data = await life.follow(client).end()
            assert_failed(response := checked(data), HEL)
            assert data.startswith(life.own.data) and await life.ended(client) == response


async def test_job_of_a_dead_process_unlocks_its_conversation(two, lives, store):
    async with (
        Upstream([[*BEGUN, HANG], [*BEGUN, HANG], ANSWER], ()).serving() as upstream,
        two(upstream, **RESUMED) as (child, one, other),
    ):
        for life in lives:
            life.conversation = await conversation_of(one)
            await life.begin(one, conversation=life.conversation)
            await life.own.until(b'"Hel"')
        child.kill()
        await child.wait()
        await assert_locked(other, life.conversation)
        await end_leases(store)
        for life in lives:
            assert_failed(await life.ended(other), HEL)
            assert await continue_conversation(other, life.conversation) == ["b", "Hello"]


async def test_job_restart_is_part_of_its_conversation(two, life, store):
    go = asyncio.Event()
    async with Upstream([[HANG], [go, *ANSWER]], ()).serving() as upstream, two(upstream) as (child, one, other):
        conversation = await conversation_of(one)
        await life.submit(one, conversation=conversation)
        await upstream.arrived.wait()
        upstream.arrived.clear()
        await kill(child, store)
        await upstream.arrived.wait()
        await assert_locked(other, conversation)
        go.set()
        assert_completed(await life.ended(other))
        assert await continue_conversation(other, conversation) == ["a", "Hello", "b", "Hello"]


@on_sqlite
async def test_job_that_cannot_be_restarted_reports_why(two, life, store):
    """Another job holds its conversation meanwhile."""
    async with Upstream([[HANG]], ()).serving() as upstream, two(upstream) as (child, one, other):
        await life.begin(one, conversation=await conversation_of(one))
        await upstream.arrived.wait()
        child.kill()
        await child.wait()
        async with store.writing() as db:
            await db.execute(update(conversations).values(holder="another"))
        await end_leases(store)
        response = checked(await life.follow(other).end())
        assert response["status"] == "failed" and "operating on this conversation" in response["error"]["message"]
        assert await life.get(other) == response
    assert len(upstream.posts) == 1


# Cancel and delete


async def test_job_is_cancelled_through_another_process(two, life):
    async with Upstream([[*BEGUN, HANG]], ()).serving() as upstream, two(upstream) as (_, one, other):
        await life.begin(one)
        follower = life.follow(other)
        for reader in (life.own, follower):
            await reader.until(b'"Hel"')
        assert_cancelled(response := await life.cancel(other), HEL)
        await upstream.gone.wait()
        for client in (one, other):
            assert await life.get(client) == await life.cancel(client) == response
        assert checked(await life.own.end()) == checked(await follower.end()) == response


async def test_job_without_output_is_cancelled_through_another_process(two, life):
    async with Upstream([[HANG]], ()).serving() as upstream, two(upstream, **LATE) as (_, one, other):
        await life.begin(one)
        follower = life.follow(other)
        await upstream.arrived.wait()
        assert_cancelled(response := await life.cancel(other))
        await upstream.gone.wait()
        assert checked(await life.own.end()) == checked(await follower.end()) == response
        assert await life.get(one) == response


async def test_job_cancelled_before_its_process_dies_is_not_restarted(two, readers, store):
    """The process dies before it is notified of the cancellation."""
    lives = [Life(readers, background=True) for _ in range(2)]
    async with Upstream([[*BEGUN, HANG], [HANG]], ()).serving() as upstream, two(upstream) as (child, one, other):
        for life in lives:
            await life.begin(one)
        await lives[0].own.until(b'"Hel"')
        await until(lambda: len(upstream.posts), 2)
        await suspend(child, store)
        cancelling = asyncio.gather(*(life.cancel(other) for life in lives))
        await until(partial(found, store, select(jobs.c.id).where(~jobs.c.cancelled)), None)
        await kill(child, store)
        for life, response, output in zip(lives, await cancelling, (HEL, []), strict=True):
            assert_cancelled(response, output)
            assert checked(await life.follow(other).end()) == response
    assert len(upstream.posts) == 2


@on_postgresql
async def test_job_of_a_dead_process_is_cancelled(two, life, store):
    """No process looks for jobs with expired leases meanwhile."""
    async with (
        Upstream([[HANG]], ()).serving() as upstream,
        two(upstream, other={"eager": None}) as (child, one, other),
    ):
        await life.submit(one)
        await upstream.arrived.wait()
        child.kill()
        cancelling = asyncio.create_task(life.cancel(other))
        await until(partial(found, store, select(jobs.c.cancelled)))
        await end_leases(store)
        assert_cancelled(await cancelling)
    assert len(upstream.posts) == 1


async def test_job_stops_when_its_response_is_deleted_at_another_process(two, lives):
    async with (
        Upstream([[*BEGUN, HANG]], ()).serving() as upstream,
        two(upstream, **OFTEN, **RESUMED) as (_, one, other),
    ):
        for life in lives:
            await life.begin(one)
            follower = life.follow(other)
            for reader in (life.own, follower):
                await reader.until(b'"Hel"')
            assert (await other.delete(life.path)).json()["deleted"] is True
            await upstream.gone.wait()
            upstream.gone.clear()
            assert_cancelled(checked(await life.own.end()), HEL)
            assert (await follower.end()).endswith(OVER)
            for client in (one, other):
                assert (await life.answer(client)).status_code == 404


# A process is suspended


async def suspend(child, store):
    """Suspend a process outside of a transaction, for which other processes would have to wait."""
    child.send_signal(signal.SIGSTOP)
    while await is_locked(store):
        child.send_signal(signal.SIGCONT)
        await idle(0.05)  # its transaction goes on
        child.send_signal(signal.SIGSTOP)


async def is_locked(store):
    """Return True if a transaction holds the jobs.  Do not wait for it: with SQLite that takes half a minute."""
    try:
        if store.notifies:
            async with store.writing() as db:
                await db.execute(select(jobs.c.id).with_for_update(nowait=True))
        else:
            with closing(sqlite3.connect(store.folder.with_suffix(""), timeout=0)) as db:
                db.execute("BEGIN IMMEDIATE")
    except (StoreFailed, sqlite3.OperationalError):
        return True
    return False


async def test_job_of_a_suspended_process_is_taken_over(two, lives, store):
    go = asyncio.Event()
    async with (
        Upstream([[*BEGUN, go, chunk("lo"), HANG]], ()).serving() as upstream,
        two(upstream, **RESUMED) as (child, one, other),
    ):
        for life in lives:
            await life.begin(one)
            life.follower = life.follow(other)
            for reader in (life.own, life.follower):
                await reader.until(b'"Hel"')
        await suspend(child, store)
        await end_leases(store)
        for life in lives:
            life.data = await life.follower.end()
            assert_failed(checked(life.data), HEL)
        go.set()
        child.send_signal(signal.SIGCONT)
        for life in lives:
            seen = await life.own.end()
            assert life.data.startswith(seen) and b"[DONE]" not in seen
            for client in (one, other):
                assert await life.get(client) == checked(life.data)
                assert await life.follow(client).end() == life.data
        await upstream.gone.wait()


async def test_job_of_a_suspended_process_continues_if_no_other_runs(gateways, lives, store):
    go = asyncio.Event()
    async with (
        Upstream([[*BEGUN, go, *REST]], ()).serving() as upstream,
        gateways(upstream, **RESUMED) as (child, client),
    ):
        for life in lives:
            await life.begin(client)
            await life.own.until(b'"Hel"')
        await suspend(child, store)
        await end_leases(store)
        go.set()
        child.send_signal(signal.SIGCONT)
        for life in lives:
            assert_completed(response := checked(await life.own.end()))
            assert await life.get(client) == response


async def test_job_of_a_suspended_process_is_ended_by_another(two, life, store):
    """Both processes get a response; only one of them is stored."""
    go = asyncio.Event()
    async with (
        Upstream([[go, *whole(completion_body("Mine"))], ANSWER], ()).serving() as upstream,
        two(upstream) as (child, one, other),
    ):
        await life.submit(one)
        await upstream.arrived.wait()
        await suspend(child, store)
        await end_leases(store)
        assert_completed(response := await life.ended(other))
        go.set()
        child.send_signal(signal.SIGCONT)
        await until_all_is_put_away(store)
        for client in (one, other):
            assert await life.get(client) == response


async def test_job_lost_by_a_suspended_process_keeps_its_conversation_locked(two, life, store):
    """Both processes work in the same conversation."""
    go = asyncio.Event()
    async with Upstream([[HANG], [go, *ANSWER]], ()).serving() as upstream, two(upstream) as (child, one, other):
        conversation = await conversation_of(one)
        await life.submit(one, conversation=conversation)
        await until(lambda: len(upstream.posts), 1)
        await suspend(child, store)
        await end_leases(store)
        await until(lambda: len(upstream.posts), 2)
        child.send_signal(signal.SIGCONT)
        await upstream.gone.wait()
        await one.get(f"/v1/conversations/{conversation}")  # by now it has released all of its jobs
        await assert_locked(other, conversation)
        go.set()
        assert_completed(await life.ended(other))
        assert await continue_conversation(other, conversation) == ["a", "Hello", "b", "Hello"]


# A process stops


@pytest.mark.parametrize(
    ("store_url", "stream"), [("sqlite", True), ("postgresql", True), ("sqlite", False)], indirect=["store_url"]
)
async def test_job_without_output_is_restarted_elsewhere_when_a_process_stops(stream, two, life):
    answer = [*BEGUN, *REST] if stream else ANSWER
    async with Upstream([[HANG], answer], ()).serving() as upstream, two(upstream, **QUICK) as (child, one, other):
        await (life.begin if stream else life.submit)(one)
        followers = [life.follow(other) for _ in range(stream)]
        await upstream.arrived.wait()
        child.terminate()
        assert_completed(response := await life.ended(other))
        for follower in followers:
            assert checked(await follower.end()) == response
            assert b"[DONE]" not in await life.own.end()
        await child.wait()
    assert len(upstream.posts) == 2


@on_postgresql
async def test_job_continues_after_any_number_of_gateway_restarts(gateways, life):
    async with Upstream([*[[HANG]] * 4, ANSWER], ()).serving() as upstream:
        for attempt in range(4):
            async with gateways(upstream, **QUICK) as (child, client):
                if not attempt:
                    await life.submit(client)
                await upstream.arrived.wait()
                upstream.arrived.clear()
                child.terminate()
                await child.wait()
        async with gateways(upstream) as (_, client):
            assert_completed(await life.ended(client))
    assert len(upstream.posts) == 5


async def test_job_with_output_has_the_drain_time_to_end(two, lives):
    go = asyncio.Event()
    async with (
        Upstream([[*BEGUN, go, *REST]], ()).serving() as upstream,
        two(upstream, **RESUMED) as (child, one, other),
    ):
        for life in lives:
            await life.begin(one)
            life.follower = life.follow(other)
            await life.follower.until(b'"Hel"')
        child.terminate()
        await until_refused(one)
        go.set()
        for life in lives:
            data = await life.follower.end()
            assert_completed(response := checked(data))
            assert await life.own.end() == data and await life.get(other) == response
        await child.wait()


async def until_refused(client):
    """Wait until a gateway takes no new connections."""
    with suppress(httpx.ConnectError, httpx.RemoteProtocolError, httpx.ReadError):
        while True:
            async with httpx.AsyncClient(base_url=client.base_url, verify=False) as another:
                await another.get("/health")


async def test_subscriber_of_a_remote_job_is_disconnected_when_a_process_stops(two, life):
    go = asyncio.Event()
    async with (
        Upstream([[*BEGUN, go, *REST]], ()).serving() as upstream,
        two(upstream, **QUICK) as (child, other, one),
    ):
        await life.begin(one)
        follower = life.follow(other)
        await follower.until(b'"Hel"')
        child.terminate()
        seen = await follower.end()
        await child.wait()
        go.set()
        data = await life.own.end()
        assert_completed(checked(data))
        assert data.startswith(seen) and b"[DONE]" not in seen


async def test_job_with_output_fails_after_the_drain_time(two, lives, store):
    async with (
        Upstream([[*BEGUN, HANG]], ()).serving() as upstream,
        two(upstream, **QUICK, **RESUMED) as (child, one, other),
    ):
        for life in lives:
            await life.begin(one)
            life.followers = [life.own, life.follow(one), life.follow(other)]
            for follower in life.followers:
                await follower.until(b'"Hel"')
        child.terminate()
        for life in lives:
            (data,) = {await follower.end() for follower in life.followers}
            assert_failed(response := checked(data), HEL, why="was stopped")
            await until_all_is_put_away(store)
            assert await life.get(other) == response and await life.follow(other).end() == data
        await child.wait()


# The database stops


@contextmanager
def outage(postgres):
    postgres.stop()
    try:
        yield
    finally:
        postgres.start()


@on_postgresql
async def test_job_output_during_a_database_outage_is_stored_afterwards(two, postgres, lives, store):
    """No process takes the job over, though its lease may have ended: no process could renew a lease.

    Notifications are lost without a connection, so the other process polls.
    """
    goes = [asyncio.Event() for _ in range(2)]
    async with (
        Upstream([[*BEGUN, goes[0], REST[0], goes[1], *REST[1:]]], ()).serving() as upstream,
        two(upstream, **OFTEN, **RESUMED) as (_, one, other),
    ):
        for life in lives:
            await life.begin(one)
            life.follower = life.follow(other)
            for reader in (life.own, life.follower):
                await reader.until(b'"Hel"')
        with outage(postgres):
            goes[0].set()
            for life in lives:
                await life.own.until(b'"lo"')
                assert (await life.answer(other)).status_code == 503
            await idle(0.5)  # either process looks at the database every 0.1 s
        await end_leases(store)
        for life in lives:
            await life.follower.until(b'"lo"')
        goes[1].set()
        for life in lives:
            data = await life.follower.end()
            assert_completed(response := checked(data))
            assert await life.own.end() == data == await life.follow(other).end()
            assert await life.get(other) == response


@on_postgresql
async def test_job_end_during_a_database_outage_is_stored_afterwards(two, postgres, lives, store):
    """The client gets `store: false`, as the gateway cannot know when it can store the response."""
    go = asyncio.Event()
    async with (
        Upstream([[*BEGUN, go, *REST]], ()).serving() as upstream,
        two(upstream, eager={"looks": 0.1, "lease": 3}, **RESUMED) as (_, one, other),
    ):
        for life in lives:
            await life.begin(one)
            life.follower = life.follow(other)
            for reader in (life.own, life.follower):
                await reader.until(b'"Hel"')
        with outage(postgres):
            go.set()
            for life in lives:
                await life.own.end()
        for life in lives:
            data = await life.follower.end()
            response = events_of(data)[-1]["response"]
            assert_completed(response)
            assert response["store"] is False and await life.ended(other) == {**response, "store": True}
            assert await life.own.end() == data == await life.follow(other).end()


@on_postgresql
async def test_job_that_was_not_stored_is_taken_up_by_its_own_process(gateways, postgres, life):
    go = asyncio.Event()
    async with (
        Upstream([[*BEGUN, go, *REST]], ()).serving() as upstream,
        gateways(upstream, eager={"lease": 1}) as (_, client),
    ):
        await life.begin(client)
        await life.own.until(b'"Hel"')
        with outage(postgres):
            go.set()
            data = await life.own.end()
        assert await life.ended(client) == {**events_of(data)[-1]["response"], "store": True}
        assert await life.follow(client).end() == data


# Within a process


@asynccontextmanager
async def desk_of(store, scribes="a"):
    """Start the desk of the process `a`; scribes: the holder that it writes logs as."""
    log_writer = LogWriter(store, Lease(scribes))
    writing = asyncio.create_task(log_writer.run())
    yield JobContext(store, Lease("a"), log_writer, 60, 1000)
    writing.cancel()


async def open_response(store, holder):
    """Store a response without output, whose client does not know its id."""
    body = {"id": "r", "status": "in_progress", "background": False, "conversation": None, "output": []}
    async with store.writing() as db:
        await all_responses.begin(db, [NewResponse("t", body, [], 0, None)])
        await all_jobs.begin(db, [NewJob("t", "r", b"{}", holder, 0, 1000)])
    return StoredJob("r", "t", b"{}", 1, False)


async def test_subscriber_behind_a_packed_log_gets_each_event_once(store):
    """The log is packed before the subscriber has all of its events."""
    frames = [b"event: e\ndata: %d\n\n" % number for number in range(5)]
    async with desk_of(store) as desk:
        await open_response(store, "a")
        await desk.log_writer.write("r", LogTail(), LogRow(0, 1, b"".join(frames[:2])))
        watch = RemoteLog(desk, "r", -1)
        await until(lambda: watch.tail.last, 1)
        await desk.log_writer.write("r", LogTail(), LogRow(2, 4, b"".join(frames[2:])), last=True)
        await event_logs.pack(store, "r")
        watch.check_now()
        await until(lambda: watch.tail.over)
        for after in range(-1, 5):
            data = [piece async for piece in subscribe(store, "r", watch.tail, after, 0)]
            assert b"".join(data) == b"".join(frames[after + 1 :]) + OVER


async def test_job_log_keeps_a_row_whose_writer_was_cancelled(store):
    async with desk_of(store) as desk:
        await open_response(store, "a")
        tail = LogTail()
        saying = asyncio.create_task(desk.log_writer.write("r", tail, LogRow(0, 1, b"said")))
        while not desk.log_writer._waiting:  # noqa: ASYNC110 - for one turn of the event loop only
            await asyncio.sleep(0)
        saying.cancel()
        await until(lambda: tail.last, 1)
        assert await found(store, select(events.c.data)) == b"said"


async def test_job_lost_during_a_takeover_raises_lost(store):
    """Another process takes the job while its log is read, or its response is deleted."""
    async with desk_of(store, scribes="b") as desk:
        job = await open_response(store, "b")
        with pytest.raises(JobLost):
            await recover_job(desk, job, LogTail())
        assert await found(store, select(jobs.c.id)) == "r"
        async with store.writing() as db:
            await all_responses.remove(db, await all_responses.find(db, "t", "r"))
        with pytest.raises(JobLost):
            await fail_job(desk, job, LogTail(), DIED)
