"""Test streams that are resumed: by subscribers from any event on, and by clients that lost their connection."""

import asyncio
import hashlib
import re
import time
import tracemalloc
from contextlib import asynccontextmanager

import pytest
from sqlalchemy import func, select, true, update

from gateway.store import Database
from gateway.store.expiry import expire
from gateway.store.tables import events as all_events
from gateway.store.tables import jobs
from support.app import gateway, listening, problem
from support.jobs import (
    BAD,
    CHUNKS,
    EVERYTHING,
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
from support.responses_events import checked, events_of
from support.sqlite_file import locked, run_statement
from support.sse import comments, events
from support.upstream import CLOSE, DONE, END, HANG, HELLO, call, chunk, head, whole
from support.wait import now, until

EARLY = {"stream": {"grace_seconds": 0.02}}  # the head is sent before the content, which the tests hold back
KINDS = {"background": ({"background": True}, {}), "foreground": ({}, {**RESUMED, **EARLY})}
IDS = re.compile(rb"(resp|msg|rs|fc)_\w{24}")
BRIEF = {"server": {"drain_seconds": 0.1}}  # jobs that still run are not waited for
FOR_AN_HOUR = {"responses": {"resume_seconds": 3600}}  # a test that waits for the end of that time fails
SILENT = {0, 10, 11}  # those of CHUNKS that bring no events
TIMES = re.compile(rb'"(created_at|completed_at)":\d+')


def without_ids(data):
    """Remove ids and times from a stream."""
    return TIMES.sub(rb'"\1":0', IDS.sub(rb"\1_", data))


async def update_rows(store, table, id=None, **values):
    """Change all rows of a table, or the one with this id."""
    which = true() if id is None else table.c.id == id
    async with store.writing() as db:
        await db.execute(update(table).where(which).values(**values))


async def value(store, column, *which):
    async with store.reading() as db:
        return await db.scalar(select(column).where(*which))


# Subscribers


@pytest.mark.parametrize("kind", KINDS)
async def test_subscriber_can_start_after_any_event(kind, store_url):
    """Start many while the job runs and after its end: each gets the bytes that the first client got."""
    fields, settings = KINDS[kind]
    script, gates = slowly(*CHUNKS)
    async with listening(script, **settings, **where(store_url)) as site, asking(site, **fields) as first:
        await first.reach(8, gates, 0.5)
        seen = len(per_event(first.data))
        running, tail = {}, site.app.state.handler.jobs._running[first.id].tail
        async with asyncio.TaskGroup() as group:
            for after in (None, *range(seen + 3)):
                running[after] = group.create_task(_rest(site, first.id, after))
            await until(lambda: tail.followers, len(running) + 1)
            for gate in gates:
                gate.set()
        data = await first.all()
        checked(data)
        pieces = per_event(data)
        assert data.count(b"[DONE]") == 1 and len(pieces) > seen
        for after in (None, *range(len(pieces) + 1)):
            rest = b"".join(pieces[0 if after is None else after + 1 :]) or pieces[-1]
            assert await _rest(site, first.id, after) == rest
            assert after not in running or running[after].result() == rest
        assert len(site.upstream.posts) == 1


async def _rest(site, id, after):
    async with following(site, id, after) as follower:
        return await follower.all()


async def test_subscriber_query_parameters_are_checked():
    async with gateway(HELLO) as site:
        data = (await site.respond(background=True, stream=True)).content
        id = events(data.decode())[0]["response"]["id"]
        padded = await get(site, f"{id}?stream=true&include_obfuscation=true")
        assert padded.content == data and padded.headers["cache-control"] == "no-cache"
        assert padded.headers["content-type"].startswith("text/event-stream")
        for query, param in (("starting_after=-1", "starting_after"), ("starting_after=x", "starting_after")):
            assert problem(await get(site, f"{id}?stream=true&{query}"))[3] == param
        assert (await get(site, f"{id}?stream=false&starting_after=3")).json()["id"] == id
        polled = await accepted(site)
        await ended(site, polled)
        for other in (polled, (await site.respond(stream=False, input="a", model="m")).json().get("id")):
            if other:
                assert problem(await get(site, f"{other}?stream=true"))[::3] == (400, "stream")


@pytest.mark.parametrize("number", [1 << 31, 1 << 63, 10**30])
async def test_subscriber_far_behind_the_last_event_gets_the_end_only(number, store_url):
    async with gateway(HELLO, **where(store_url)) as site:
        data = (await site.respond(background=True, stream=True)).content
        id = events(data.decode())[0]["response"]["id"]
        answer = await get(site, f"{id}?stream=true&starting_after={number}")
        assert (answer.status_code, answer.content) == (200, b"data: [DONE]\n\n")


async def test_subscriber_disconnect_does_not_affect_others(store_url):
    script, gates = slowly(*CHUNKS)
    async with listening(script, **where(store_url)) as site, asking(site, background=True) as first:
        await first.until(b"response.in_progress")
        async with following(site, first.id) as second:
            async with following(site, first.id, 1) as third:
                await third.until(b"response.in_progress")
                await second.until(b"response.in_progress")
                tail = site.app.state.handler.jobs._running[first.id].tail
                assert tail.followers == 3
            await until(lambda: tail.followers, 2)
            for gate in gates:
                gate.set()
            assert await second.all() == await first.all()
        checked(first.data)


async def test_subscriber_gets_keep_alive_comments_while_the_backend_is_silent():
    async with listening([HANG], stream={"keepalive_seconds": 0.05}) as site, asking(site, background=True) as first:
        await first.until(b": keep-alive\n\n: keep-alive\n\n")
        async with following(site, first.id, 2) as second:
            await second.until(b": keep-alive\n\n")
        response = await cancelled(site, first.id)
        data = await first.all()
    without = data.replace(b": keep-alive\n\n", b"")
    assert checked(without) == response and len(events_of(without)) == 4


async def test_subscriber_gets_no_keep_alive_comments_if_disabled():
    async with listening([HANG], stream={"keepalive_seconds": 0}) as site, asking(site, background=True) as first:
        await first.until(b"response.in_progress")
        await cancelled(site, first.id)
        assert not comments((await first.all()).decode())


# Lost connections


async def test_resume_after_each_event_gives_the_rest_of_the_stream(store_url, store):
    """Cut the connection of a client once behind each event."""
    async with gateway(EVERYTHING) as site:
        answer = await site.respond(stream=True, tools=[{"type": "function", "name": "f"}])
        plain = per_event(answer.content)
    runs = [slowly(*CHUNKS) for _ in plain]
    async with listening(*(script for script, _ in runs), **RESUMED, **EARLY, **where(store_url)) as site:
        for number, (_, gates) in enumerate(runs):
            async with asking(site) as first:
                await first.reach(number, gates, 0.1)
            had = per_event(first.data)[: number + 1]
            async with following(site, first.id, number) as again:
                for gate in gates:
                    gate.set()
                data = b"".join(had) + await again.all()
            if had[-1].startswith(b"data: "):
                data = b"".join(had)
            assert without_ids(data) == without_ids(b"".join(plain))
            response = checked(data)
            assert (await get(site, first.id)).json() == response
            assert (await get(site, f"{first.id}?stream=true")).content == data
            assert len(site.upstream.posts) == number + 1
    assert not {"jobs", "requests"} & (await rows(store)).keys()


async def test_resume_setting_does_not_change_an_uninterrupted_stream():
    async with gateway(EVERYTHING) as site, gateway(EVERYTHING, **RESUMED) as other:
        fields = {"stream": True, "top_k": 1, "tools": [{"type": "function", "name": "f"}]}
        one, two = await site.respond(**fields), await other.respond(**fields)
    ours = {"x-request-id", "request-id", "openai-processing-ms"}
    assert without_ids(one.content) == without_ids(two.content)
    first, second = ({**answer.headers} for answer in (one, two))
    assert {name: first[name] for name in first.keys() - ours} == {name: second[name] for name in second.keys() - ours}


async def test_resume_stream_repeats_in_progress_while_the_backend_is_silent():
    script, gates = slowly(*CHUNKS[:4], chunk(finish="stop"))
    async with listening(script, **RESUMED, stream={"keepalive_seconds": 0.1, "grace_seconds": 0.02}) as site:
        for gate in gates[:4]:
            gate.set()
        async with asking(site) as first:
            await first.until(b'"delta":"Hel"')
            begun = first.data.count(b"event: response.in_progress")
            await until(lambda: first.data.count(b"event: response.in_progress") > begun + 1)
        for gate in gates:
            gate.set()
        async with following(site, first.id) as again:
            whole = (await again.all()).replace(b": keep-alive\n\n", b"")
        checked(whole)
        assert whole.startswith(b"".join(per_event(first.data.replace(b": keep-alive\n\n", b""))))


async def test_resume_timeout_cancels_the_response(store_url, store, monkeypatch):
    monkeypatch.setattr("gateway.server.jobs.job_manager._HELD", 0.05)
    async with listening(stopping(4), **RESUMED, **where(store_url)) as site:
        begun = int(now() * 1000)
        async with asking(site) as first:
            await first.until(b'"delta":"Hel"')
        assert begun + 60_000 <= await value(store, jobs.c.wanted_until) <= now() * 1000 + 60_000

        async def is_cancelled():
            await update_rows(store, jobs, wanted_until=1)  # as if the time had passed
            return site.upstream.gone.is_set()

        await until(is_cancelled)
        response = await ended(site, first.id)
        assert (response["status"], response["output"][-1]["status"]) == ("cancelled", "incomplete")
        assert response["output"][-1]["content"][0]["text"] == "Hel"
        data = (await get(site, f"{first.id}?stream=true")).content
        assert checked(data) == response and data.startswith(first.data)
        assert problem(await site.client.post(f"/v1/responses/{first.id}/cancel"))[0] == 400


async def test_resume_timeout_is_configurable(monkeypatch):
    monkeypatch.setattr("gateway.server.jobs.job_manager._HELD", 0.05)
    async with listening(stopping(4), responses={"resume_seconds": 1}) as site:
        begun = time.monotonic()
        async with asking(site) as first:
            await first.until(b'"delta":"Hel"')
        await until(site.upstream.gone.is_set)
        assert time.monotonic() - begun > 0.9
        assert (await ended(site, first.id))["status"] == "cancelled"


async def test_resume_timeout_is_extended_while_a_client_is_connected(store_url, store, monkeypatch):
    """The client waits before the first content, then follows, then another one resumes."""
    monkeypatch.setattr("gateway.server.jobs.job_manager._HELD", 0.05)

    async def wanted_again():
        await until(lambda: _is_wanted(store))
        # A time in the past could cancel the job before the gateway extends it.
        await update_rows(store, jobs, wanted_until=int(now() * 1000) + 20_000)
        await until(lambda: _is_wanted(store))

    go, on, end = asyncio.Event(), asyncio.Event(), asyncio.Event()
    script = [head(), go, chunk("Hel"), on, chunk("lo"), end, chunk(finish="stop"), DONE, END]
    async with listening(script, **RESUMED, **where(store_url)) as site:
        answering = asyncio.create_task(_whole_stream(site))
        await site.upstream.arrived.wait()
        await wanted_again()
        go.set()
        id = await until_one(lambda: [*site.app.state.handler.jobs._running])
        await wanted_again()
        answering.cancel()
        async with following(site, id, 1) as again:
            await wanted_again()
            on.set()
            await again.until(b'"delta":"lo"')
            end.set()
            data = await again.all()
        assert data.endswith(b"[DONE]\n\n") and (await ended(site, id))["status"] == "completed"
        assert len(site.upstream.posts) == 1


async def _whole_stream(site):
    async with asking(site) as follower:
        return await follower.all()


async def _is_wanted(store):
    return (await value(store, jobs.c.wanted_until) or 0) > now() * 1000 + 30_000


async def until_one(found):
    """Wait until there is exactly one, and return it."""
    await until(lambda: len(found()), 1)
    return found()[0]


@pytest.mark.parametrize(
    ("script", "status"),
    [(whole({"error": "busy"}, status=503), 503), (whole({"error": "?"}, status=400), 400), ([CLOSE], 502)],
)
async def test_resume_failure_before_the_first_event_keeps_its_status(script, status, store_url, store):
    async with gateway(script, **RESUMED, **where(store_url)) as site:
        answer = await site.respond(stream=True)
        assert problem(answer)[0] == answer.status_code == status
        conversation = (await site.client.post("/v1/conversations", json={})).json()["id"]
        before = await rows(store)
        for _ in range(2):  # it is free again at once
            assert (await site.respond(stream=True, conversation=conversation)).status_code == status
        assert await rows(store) == before == {"conversations": 1, "threads": 1}


async def test_resume_disconnect_before_the_first_event_leaves_no_rows(store_url, store):
    async with listening([head(), HANG], **FOR_AN_HOUR, **where(store_url)) as site:
        leaving = asyncio.create_task(_whole_stream(site))
        await site.upstream.arrived.wait()
        leaving.cancel()
        await until(site.upstream.gone.is_set)
        await until(lambda: rows(store), {})


async def test_resume_after_a_failure_gives_the_failed_event(store_url):
    async with listening(stopping(7, CLOSE), **RESUMED, **where(store_url)) as site, asking(site) as first:
        failed = checked(await first.all())
        assert failed["status"] == "failed" and len(failed["output"]) == 3
        async with following(site, first.id, 10) as again:
            assert first.data.endswith(await again.all())


async def test_resume_setting_works_within_a_conversation(store_url):
    async with gateway(HELLO, HELLO, **RESUMED, **where(store_url)) as site:
        conversation = (await site.client.post("/v1/conversations", json={})).json()["id"]
        for text in ("a", "b"):  # the second one as soon as the first one has sent its end
            answer = await site.respond(stream=True, input=text, conversation=conversation)
            assert checked(answer.content)["status"] == "completed"
        listed = (await site.client.get(f"/v1/conversations/{conversation}/items?order=asc")).json()["data"]
        assert [item["content"][0]["text"] for item in listed] == ["a", "Hi", "b", "Hi"]


async def test_resume_events_are_kept_for_resume_seconds(store_url, store):
    async with gateway(HELLO, **RESUMED, **where(store_url)) as site:
        begun = int(now())
        answer = await site.respond(stream=True)
        id = checked(answer.content)["id"]
        await until(lambda: _is_kept(store))
        assert begun + 60 <= await value(store, func.min(all_events.c.valid_until)) <= now() + 61
        assert (await get(site, f"{id}?stream=true")).content == answer.content
        await update_rows(store, all_events, valid_until=int(now()) - 1)
        assert problem(await get(site, f"{id}?stream=true&starting_after=2")) == (400, BAD, None, "stream")
        assert (await get(site, id)).json() == checked(answer.content)
        await expire(store, int(now()), 0, 0)
    assert await rows(store) == {"threads": 1, "items": 2, "responses": 1}


async def _is_kept(store):
    """Return whether the events have been put away for a limited time."""
    return await value(store, func.min(all_events.c.valid_until)) is not None


async def test_job_events_are_kept_as_long_as_the_response(store_url, store):
    async with gateway(HELLO, **RESUMED, **where(store_url)) as site:
        answer = await site.respond(background=True, stream=True)
        await until(lambda: value(store, all_events.c.packed))
        assert await rows(store) == {"threads": 1, "items": 2, "responses": 1, "events": 1}
        assert await value(store, all_events.c.valid_until) is None
        id = checked(answer.content)["id"]
        assert (await get(site, f"{id}?stream=true")).content == answer.content
        await site.client.delete(f"/v1/responses/{id}")
    assert "events" not in await rows(store)


@pytest.mark.parametrize("fields", [{"stream": True, "store": False}, {"stream": False}])
async def test_resume_is_off_without_store_or_stream(fields, store_url, store):
    script = stopping(4) if fields["stream"] else [HANG]
    async with listening(script, **FOR_AN_HOUR, **where(store_url)) as site:
        leaving = asyncio.create_task(site.client.post("/v1/responses", json={"model": "m", "input": "a", **fields}))
        await site.upstream.arrived.wait()
        assert "jobs" not in await rows(store)
        leaving.cancel()
        await until(site.upstream.gone.is_set)


async def test_resume_works_with_an_idempotency_key():
    """A repeated request gets the kept response; after a disconnect the client may repeat or resume."""
    async with listening(EVERYTHING, stopping(4), EVERYTHING, **RESUMED, **BRIEF) as site:
        async with asking(site, headers={"idempotency-key": "a"}) as first:
            await first.all()
        async with asking(site, headers={"idempotency-key": "a"}) as again:
            assert await again.all() == first.data and again.answer.headers["idempotent-replayed"] == "true"
        assert len(site.upstream.posts) == 1
        async with asking(site, headers={"idempotency-key": "b"}) as cut:
            await cut.until(b'"delta":"Hel"')

        async def repeated_status():
            try:
                async with asking(site, headers={"idempotency-key": "b"}) as anew:
                    return checked(await anew.all())["status"]
            except AssertionError:  # the key is not free yet
                return None

        await until(repeated_status, "completed")
        assert len(site.upstream.posts) == 3
        async with following(site, cut.id) as back:
            await back.until(b'"delta":"Hel"')


@pytest.mark.parametrize("kind", KINDS)
async def test_idempotency_key_does_not_keep_a_failed_job(kind):
    fields, settings = KINDS[kind]
    async with gateway(stopping(4, CLOSE), EVERYTHING, **settings) as site:
        fields |= {"stream": True, "headers": {"idempotency-key": "a"}}
        tools = [{"type": "function", "name": "f"}]
        answers = [await site.respond(tools=tools, **fields) for _ in range(3)]
        assert [checked(answer.content)["status"] for answer in answers] == ["failed", "completed", "completed"]
        assert len(site.upstream.posts) == 2 and answers[1].content == answers[2].content


async def test_idempotency_key_replays_a_background_job():
    key = {"idempotency-key": "a"}
    async with gateway([HANG]) as site:
        first = await site.respond(background=True, headers=key)
        again = await site.respond(background=True, headers=key)
        assert first.content == again.content and again.headers["idempotent-replayed"] == "true"
        assert len(site.upstream.posts) <= 1
        await cancelled(site, first.json()["id"])


# A store that fails


@asynccontextmanager
async def without(path, table):
    """Rename a table of the database in this block, so that statements fail."""
    await run_statement(path, f"ALTER TABLE {table} RENAME TO gone")
    yield
    await run_statement(path, f"ALTER TABLE gone RENAME TO {table}")


async def test_resume_without_a_store_answers_with_a_warning():
    async with gateway(HELLO, **RESUMED, store={"url": "sqlite:////nowhere/at/all/gateway.db"}) as site:
        answer = await site.respond(stream=True)
    assert checked_stored(answer.content) is False and comments(answer.text) == [": gateway-warnings dropped:store"]


def checked_stored(data):
    """Return whether the last event says that the response is stored."""
    found = events(data.decode())
    assert [event["sequence_number"] for event in found] == [*range(len(found))]
    return found[-1]["response"]["store"]


@pytest.mark.parametrize("kind", KINDS)
async def test_job_events_are_stored_after_a_store_failure(kind, tmp_path, monkeypatch, caplog):
    """A subscriber gets all events meanwhile."""
    monkeypatch.setattr("gateway.server.jobs.log_writer._AGAIN", 0.05)
    fields, settings = KINDS[kind]
    script, gates = slowly(*CHUNKS)
    async with listening(script, **settings, **where(f"sqlite:///{tmp_path}/a.db")) as site:
        async with asking(site, **fields) as first, following_soon(site, first, gates) as second:
            async with without(tmp_path / "a.db", "events"):
                await first.reach(14, gates)
                await until(lambda: len(per_event(second.data)) > 14)
                assert problem(await get(site, f"{first.id}?stream=true"))[2] == "store_unavailable"
            for gate in gates:
                gate.set()
            data = await first.all()
            assert await second.all() == data
            checked(data)
        assert (await get(site, f"{first.id}?stream=true")).content == data
        assert (await get(site, first.id)).json() == checked(data)
    assert "events of responses cannot be stored, the gateway tries again" in caplog.text


@asynccontextmanager
async def following_soon(site, first, gates):
    """Connect a second client as soon as the first one knows the id."""
    await first.reach(3, gates)
    async with following(site, first.id) as second:
        await until(lambda: len(per_event(second.data)) > 3)
        yield second


async def test_subscriber_ahead_of_the_store_gets_no_event_twice(tmp_path, monkeypatch):
    """The store is locked: a client that reconnects has more events than the store."""
    monkeypatch.setattr("gateway.store.engines._LOCKED", 0.1)
    script, gates = slowly(*CHUNKS)
    async with listening(script, **where(f"sqlite:///{tmp_path}/a.db")) as site:
        async with asking(site, background=True) as first:
            await first.reach(4, gates)
            async with locked(tmp_path / "a.db"):
                await first.reach(14, gates, 1.0)
                answer = await site.client.post(f"/v1/responses/{first.id}/cancel")
                assert problem(answer)[2] == "store_unavailable"
                again = asyncio.create_task(_rest(site, first.id, 12))
                await first.reach(16, gates, 1.0)
            for gate in gates:
                gate.set()
            data = await first.all()
            assert await again == b"".join(per_event(data)[13:])
        checked(data)
        assert (await get(site, f"{first.id}?stream=true")).content == data


@pytest.mark.parametrize("kind", [*KINDS, "polled"])
async def test_job_end_that_was_not_stored_is_stored_after_a_takeover(kind, tmp_path, monkeypatch):
    """The lease of the job ends although its process runs; a job without events is restarted."""
    monkeypatch.setattr("gateway.server.jobs.job_manager._HELD", 0.05)
    fields, settings = KINDS.get(kind, ({"background": True, "stream": False}, {}))
    script, gates = slowly(*CHUNKS)
    path = tmp_path / "a.db"
    store = Database(f"sqlite:///{path}")
    async with listening(script, stopping(1), EVERYTHING, **settings, **where(f"sqlite:///{path}")) as site:
        answering = asyncio.create_task(_stream_of(site, **fields))
        await until(lambda: len(site.upstream.posts), 1)
        other = await accepted(site)
        (id,) = {*site.app.state.handler.jobs._running} - {other}
        async with without(path, "responses"):
            for gate in gates:
                gate.set()
            await until(lambda: {*site.app.state.handler.jobs._running}, {other})
        await _assert_lease_is_not_renewed(store, id, other)
        await update_rows(store, jobs, held_until=0, id=id)
        response, answer = await ended(site, id), await answering
        assert (response["status"], response["store"], len(response["output"])) == ("completed", True, 4)
        if kind == "polled":
            assert len(site.upstream.posts) == 3
        else:
            assert checked_stored(answer) is False and len(site.upstream.posts) == 2
            assert (await get(site, f"{id}?stream=true")).content == answer
        await cancelled(site, other)
    await store.close()


async def _assert_lease_is_not_renewed(store, id, other):
    """Wait until the process renews the lease of the other job; assert that it does not renew this one."""
    held, others = await _lease_end(store, id), await _lease_end(store, other)
    await until(lambda: _lease_end(store, other, others))
    assert await _lease_end(store, id) == held


async def _lease_end(store, id, since=None):
    """Return the end of a lease, or whether it is later than `since`."""
    until = await value(store, jobs.c.held_until, jobs.c.id == id)
    return until if since is None else until > since


async def _stream_of(site, **fields):
    answer = await site.client.post("/v1/responses", json={"model": "m", "input": "a", "stream": True, **fields})
    return answer.content


# Bounds


async def read_slowly(site, path, take):
    """GET without a socket; the next piece is sent when `take` has returned from the one before."""
    path, _, query = path.partition("?")
    scope = {"type": "http", "method": "GET", "path": path, "raw_path": path.encode(), "query_string": query.encode(),
             "headers": [], "http_version": "1.1", "scheme": "http", "server": ("x", 80), "client": ("y", 1)}  # fmt: skip

    async def send(message):
        if message["type"] == "http.response.body" and message["body"]:
            await take(message["body"])

    await site.app(scope, asyncio.Event().wait, send)


async def test_job_log_has_one_row_per_upstream_read_until_it_is_packed(store_url, store):
    script, gates = slowly(*CHUNKS)
    async with listening(script, **where(store_url)) as site, asking(site, background=True) as first:
        await first.until(b"response.in_progress")
        assert (await rows(store))["events"] == 1
        seen = {1}
        for number, gate in enumerate(gates[:-1]):
            size = len(first.data)
            gate.set()
            if number not in SILENT:
                await until(lambda size=size: len(first.data) > size)
            await until(lambda: _all_is_sent(store, first))
            seen.add((await rows(store))["events"])
        assert len(seen) > 8 and max(seen) <= len(gates)
        gates[-1].set()
        data = await first.all()
        await until(lambda: value(store, all_events.c.packed))
        assert (await rows(store))["events"] == 1
        assert await value(store, func.length(all_events.c.data)) < len(data) / 3
        assert (await get(site, f"{first.id}?stream=true")).content == data


async def _all_is_sent(store, first):
    """Return whether the client has all events in the store."""
    return await value(store, func.max(all_events.c.last)) == len(per_event(first.data)) - 1


def tool_call_chunks(times):
    """Return the chunks of so many tool calls, one in each."""
    calls = [chunk(tool_calls=call("f", '{"a": 1}', id=f"call_{n:04}", place=n)) for n in range(times)]
    return [*calls, chunk(finish="tool_calls")]


@pytest.mark.parametrize("kind", KINDS)
async def test_job_log_is_bounded_by_log_bytes(kind, store_url, store):
    fields, settings = KINDS[kind]
    responses = {**settings.get("responses", {}), "log_bytes": 80_000}
    script = [head(), *tool_call_chunks(100), DONE, END]
    async with listening(script, **{**settings, "responses": responses}, **where(store_url)) as site:
        async with asking(site, **fields) as first:
            data = await first.all()
        assert len(data) > 100_000 and (await get(site, first.id)).json() == checked(data)
        for after in ("", "&starting_after=0", "&starting_after=5"):
            answer = await get(site, f"{first.id}?stream=true{after}")
            assert problem(answer) == (400, BAD, "events_expired", "starting_after")
        oldest = int(re.search(r"up to (\d+)", answer.json()["error"]["message"])[1])
        pieces = per_event(data)
        assert 5 < oldest < len(pieces)
        assert await value(store, func.sum(func.length(all_events.c.data))) <= 80_000
        rest = (await get(site, f"{first.id}?stream=true&starting_after={oldest}")).content
        assert rest == b"".join(pieces[oldest + 1 :])


async def test_job_log_of_one_byte_keeps_no_events(store_url, store):
    async with gateway(EVERYTHING, responses={"log_bytes": 1}, **where(store_url)) as site:
        data = (await site.respond(background=True, stream=True, tools=[{"type": "function", "name": "f"}])).content
        id = checked(data)["id"]
        assert problem(await get(site, f"{id}?stream=true"))[::3] == (400, "stream")
        assert (await get(site, id)).json() == checked(data)
    assert "events" not in await rows(store)


async def test_subscriber_that_reads_too_slowly_is_disconnected(store_url, monkeypatch):
    """The next event is not kept any more: the stream has no end, and the client may resume."""
    monkeypatch.setattr("gateway.server.jobs.log_tail._MAX", 2_000)
    script, gates = slowly(*tool_call_chunks(100))
    async with gateway(script, responses={"log_bytes": 80_000}, **where(store_url)) as site:
        id = await left_alone(site)
        slow, quick = Reader(), Reader()
        quick.goes_on.set()
        async with asyncio.TaskGroup() as group:
            for reader in (slow, quick):
                group.create_task(read_slowly(site, f"/v1/responses/{id}?stream=true", reader.take))
            await until(lambda: bool(slow.data and quick.data))
            for gate in gates:
                gate.set()
            await until(lambda: quick.data.endswith(DONE))
            slow.goes_on.set()
        checked(quick.data)
        assert quick.data.startswith(slow.data) and len(slow.data) < len(quick.data) / 2
        last = len(per_event(slow.data)) - 1
        assert problem(await get(site, f"{id}?stream=true&starting_after={last}"))[2] == "events_expired"


class Reader:
    """Take no further piece before `goes_on` is set."""

    def __init__(self):
        self.data, self.goes_on = b"", asyncio.Event()

    async def take(self, piece):
        self.data += piece
        await self.goes_on.wait()


async def test_subscribers_share_one_log_in_memory():
    """Send one response to 50 subscribers."""
    pieces = [chunk("~" * 10_000) for _ in range(100)]
    script, gates = slowly(*pieces, chunk(finish="stop"))
    async with gateway(script) as site:
        id = await left_alone(site)
        tail = site.app.state.handler.jobs._running[id].tail
        digests, sizes = [hashlib.sha256() for _ in range(50)], [0] * 50

        def reader(number):
            async def take(piece):
                digests[number].update(piece)
                sizes[number] += len(piece)

            return read_slowly(site, f"/v1/responses/{id}?stream=true", take)

        async with asyncio.TaskGroup() as group:
            for number in range(50):
                group.create_task(reader(number))
            await until(lambda: tail.followers, 50)
            tracemalloc.start()
            for gate in gates:
                gate.set()
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert len({digest.digest() for digest in digests}) == 1 and min(sizes) > 2_000_000
        assert hashlib.sha256((await get(site, f"{id}?stream=true")).content).digest() == digests[0].digest()
        assert tail.followers == 0 and len(site.upstream.posts) == 1
        assert peak < 25_000_000, "much less than 50 times two megabytes"
