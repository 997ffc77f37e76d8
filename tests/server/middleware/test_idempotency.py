"""Test the Idempotency-Key header: a repeated request gets the stored response."""

import asyncio
import json
from contextlib import asynccontextmanager

import pytest
from sqlalchemy import select

from gateway.server.middleware.idempotency import IdempotencyKey
from gateway.store import Database, idempotency_keys
from gateway.store.records import IdempotencyState
from gateway.store.tables import keys as all_keys
from support.app import HELLO_MESSAGES, bearer, gateway, listening, overheard, problem
from support.serve_process import first as read_until
from support.sqlite_file import run_statement
from support.sse import text_of
from support.upstream import CLOSE, DONE, END, HANG, HELLO, chunk, completion_body, head, whole
from support.wait import now, until

KEY = {"idempotency-key": "6f1c8a52-2f0e-4c7e-9a53-1b6f3c1f5b7e"}
BAD = "invalid_request_error"
NOWHERE = {"url": "postgresql://postgres@/gateway?host=/nowhere"}
HI, HO = whole(completion_body("Hi")), whole(completion_body("Ho"))


def assert_replayed(first, again):
    assert (again.status_code, again.content) == (first.status_code, first.content)
    assert again.headers["content-type"] == first.headers["content-type"]
    assert again.headers["idempotent-replayed"] == "true" and "idempotent-replayed" not in first.headers
    assert again.headers["x-request-id"] != first.headers["x-request-id"]


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("api", ["chat", "respond"])
async def test_idempotency_key_replays_the_first_response(api, stream):
    async with gateway(HELLO if stream else HI, HO) as site:
        ask = getattr(site, api)
        first = await ask(headers=KEY, stream=stream)
        assert_replayed(first, await ask(headers=KEY, stream=stream))
        assert first.status_code == 200 and len(site.upstream.posts) == 1
        other = await ask(headers={"idempotency-key": "another"})
        assert "Ho" in other.text and "idempotent-replayed" not in other.headers


async def test_idempotency_key_absent_or_empty_sends_each_request_upstream():
    async with gateway(HI, HO, store=NOWHERE) as site:
        for headers in ({}, {"idempotency-key": ""}):
            assert "x-gateway-warnings" not in (await site.chat(headers=headers)).headers
        assert len(site.upstream.posts) == 2


@pytest.mark.parametrize("api", ["chat", "respond"])
async def test_idempotency_key_is_refused_for_a_different_request(api):
    async with gateway(HI) as site:
        await site.chat(headers=KEY, temperature=0)
        other = await getattr(site, api)(headers=KEY)
        assert problem(other) == (400, BAD, "idempotency_key_reused", None)
        assert KEY["idempotency-key"] in other.json()["error"]["message"]
        assert len(site.upstream.posts) == 1


async def test_idempotency_key_is_refused_for_the_same_body_at_another_api():
    body = json.dumps({"model": "m", "messages": [{"role": "user", "content": "a"}], "input": "a"}).encode()
    async with gateway(HI) as site:
        assert (await site.chat(body, headers=KEY)).status_code == 200
        assert problem(await site.respond(body, headers=KEY))[2] == "idempotency_key_reused"


@pytest.mark.parametrize("stream", [False, True])
async def test_idempotency_key_replays_as_soon_as_the_last_byte_is_sent(stream):
    """Repeat the request while the last message of the response is being sent."""
    async with gateway(HELLO if stream else HI) as site:
        ends, again = [], []

        async def take(message):
            if message["type"] == "http.response.body" and not message.get("more_body"):
                ends.append(message)
                again.append(await site.chat(body, headers=KEY))

        body = json.dumps({"model": "m", "messages": HELLO_MESSAGES, "stream": stream}).encode()
        first = await overheard(site, take, body, KEY)
        assert len(ends) == 1
        assert_replayed(first, again[0])


async def test_idempotency_key_over_255_characters_is_refused():
    async with gateway(HI) as site:
        assert (await site.chat(headers={"idempotency-key": "k" * 255})).status_code == 200
        long = await site.chat(headers={"idempotency-key": "k" * 256})
        assert problem(long) == (400, BAD, "string_above_max_length", None)


async def test_idempotency_key_is_separate_for_each_tenant():
    ann, bob = ({**bearer(f"{name}-{'k' * 20}"), **KEY} for name in ("ann", "bob"))
    keys = {"keys": [{"name": name, "key": f"{name}-{'k' * 20}"} for name in ("ann", "bob")]}
    async with gateway(HI, HO, auth=keys) as site:
        assert "Hi" in (await site.chat(headers=ann)).text
        assert "Ho" in (await site.chat(headers=bob)).text
        assert "Hi" in (await site.chat(headers=ann)).text


@pytest.mark.parametrize("stream", [False, True])
async def test_idempotency_key_in_use_answers_409_with_retry_after(stream):
    go_on = asyncio.Event()
    begun = (
        [head(), chunk("Hi")]
        if stream
        else [head(type="application/json"), json.dumps(completion_body("Hi")).encode()[:20]]
    )
    rest = [chunk(finish="stop"), DONE, END] if stream else [json.dumps(completion_body("Hi")).encode()[20:], END]
    async with gateway([*begun, go_on, *rest]) as site:
        first = asyncio.create_task(site.chat(headers=KEY, stream=stream))
        await site.upstream.arrived.wait()
        again = await site.chat(headers=KEY, stream=stream)
        assert problem(again) == (409, BAD, "idempotency_key_in_use", None)
        assert again.headers["retry-after"] == "1"
        go_on.set()
        assert_replayed(await first, await site.chat(headers=KEY, stream=stream))
        assert len(site.upstream.posts) == 1


async def test_idempotency_key_sends_one_of_many_simultaneous_requests(store_url):
    """Send the requests to two gateways on one store."""
    where = {"url": store_url}
    async with gateway(HI, store=where) as one, gateway(HI, store=where) as other:
        answers = await asyncio.gather(*(site.chat(headers=KEY) for site in (one, other) * 5))
        assert {answer.status_code for answer in answers} <= {200, 409}
        bodies = {answer.content for answer in answers if answer.status_code == 200}
        again = await other.chat(headers=KEY)
        assert bodies == {again.content} and again.headers["idempotent-replayed"] == "true"
        assert len(one.upstream.posts) + len(other.upstream.posts) == 1


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("failing", "status"),
    [
        (whole({"error": "busy"}, status=503), 503),
        (whole({"error": "too many"}, status=429), 429),
        (whole({"error": "what?"}, status=400), 400),
        ([CLOSE], 502),
    ],
)
async def test_idempotency_key_is_free_after_an_upstream_failure(failing, status, stream):
    async with gateway(failing, HELLO if stream else HI) as site:
        assert (await site.chat(headers=KEY, stream=stream)).status_code == status
        first = await site.chat(headers=KEY, stream=stream)
        assert first.status_code == 200
        assert_replayed(first, await site.chat(headers=KEY, stream=stream))
        assert len(site.upstream.posts) == 2


@pytest.mark.parametrize("api", ["chat", "respond"])
async def test_idempotency_key_is_free_after_a_stream_that_breaks_off(api):
    async with gateway([head(), chunk("Hel"), CLOSE], HELLO) as site:
        ask = getattr(site, api)
        assert "upstream_lost" in (await ask(headers=KEY, stream=True)).text
        first = await ask(headers=KEY, stream=True)
        assert "upstream_lost" not in first.text
        assert_replayed(first, await ask(headers=KEY, stream=True))


async def test_idempotency_key_does_not_keep_an_invalid_request_error():
    async with gateway(HI) as site:
        for _ in range(2):
            answer = await site.chat(headers=KEY, temperature="hot")
            assert answer.status_code == 400 and "idempotent-replayed" not in answer.headers
        assert (await site.chat(headers=KEY)).status_code == 200


async def test_idempotency_key_is_free_after_the_client_disconnects():
    async with listening([head(), chunk("Hel"), HANG], HELLO) as site:
        body = json.dumps({"model": "m", "messages": HELLO_MESSAGES, "stream": True}).encode()
        async with site.client.stream("POST", "/v1/chat/completions", content=body, headers=KEY) as answer:
            await read_until(answer, "Hel")
        await site.upstream.gone.wait()
        answers = []

        async def is_free():
            answers.append(await site.chat(body, headers=KEY))
            return answers[-1].status_code != 409

        await until(is_free)
        assert text_of(answers[-1].text) == "Hi" and "idempotent-replayed" not in answers[-1].headers


@pytest.mark.parametrize("stream", [False, True])
async def test_idempotency_key_does_not_keep_a_response_over_8_mib(stream):
    text = "a" * (1 << 20)
    large = (
        [head(), *[chunk(text)] * 9, chunk(finish="stop"), DONE, END] if stream else whole(completion_body(text * 8))
    )
    limits = {"frame_bytes": 16 << 20}
    async with gateway(large, HELLO if stream else HO, limits=limits) as site:
        first = await site.chat(headers=KEY, stream=stream)
        assert len(first.content) > 8 << 20
        again = await site.chat(headers=KEY, stream=stream)
        assert len(again.content) < 1000 and "idempotent-replayed" not in again.headers


async def test_idempotency_key_without_a_store_adds_only_a_warning(caplog):
    async with gateway(HI, HELLO, HI, store=NOWHERE) as site:
        answer = await site.chat(headers=KEY)
        assert "Hi" in answer.text and answer.headers["x-gateway-warnings"] == "dropped:idempotency_key"
        answer = await site.chat(headers=KEY, stream=True, top_k=1)
        assert text_of(answer.text) == "Hi"
        assert answer.headers["x-gateway-warnings"] == "forwarded:top_k, dropped:idempotency_key"
        assert len(site.upstream.posts) == 2
    logged = [record.getMessage().partition(":")[0] for record in caplog.records if record.name == "gateway"]
    assert logged == ["an idempotency key could not be looked up"] * 2


async def test_idempotency_key_store_failure_does_not_end_the_response(tmp_path, caplog):
    go_on, path = asyncio.Event(), tmp_path / "gateway.db"
    async with gateway(
        [head(), chunk("Hi"), go_on, chunk(finish="stop"), DONE, END], store={"url": f"sqlite:///{path}"}
    ) as site:
        first = asyncio.create_task(site.chat(headers=KEY, stream=True))
        await site.upstream.arrived.wait()
        await run_statement(path, "DROP TABLE keys")
        go_on.set()
        assert (await first).text.endswith("data: [DONE]\n\n")
    assert "a response could not be stored for its idempotency key" in caplog.text


async def test_idempotency_key_is_free_after_the_server_cancels_the_request():
    async with gateway([HANG], HI) as site:
        first = asyncio.create_task(site.chat(headers=KEY))
        await site.upstream.arrived.wait()
        first.cancel()
        assert (await first).status_code == 503
        assert (await site.chat(headers=KEY)).status_code == 200


@asynccontextmanager
async def holding(key):
    """Renew the lease of a key every 0.01 s in this block."""
    task = asyncio.create_task(key.renew_forever(0.01))
    try:
        yield
    finally:
        task.cancel()
        await asyncio.wait((task,))


async def lease_end(store):
    """Return the second at which the lease of the only key ends."""
    async with store.reading() as db:
        return await db.scalar(select(all_keys.c.held_until))


async def begin_old(store):
    """Store a key whose lease ends in a second; return that time."""
    async with store.writing() as db:
        assert await idempotency_keys.begin(db, "", "k", "digest", "one", int(now()) - 59) is IdempotencyState.NEW
    return await lease_end(store)


async def assert_renewed(store, before):
    """Assert that another holder cannot begin just before the end of the renewed lease."""
    after = await lease_end(store)
    assert after > before
    async with store.writing() as db:
        assert await idempotency_keys.begin(db, "", "k", "digest", "two", after - 1) is IdempotencyState.RUNNING


async def test_idempotency_key_lease_is_renewed_until_the_response_ends(store):
    first, second = (IdempotencyKey(store, "", "k", "digest", holder) for holder in ("one", "two"))
    before = await begin_old(store)
    async with holding(first):
        await until(lambda: renewed(store, before))
    await assert_renewed(store, before)
    await first.end(None)
    assert await second.begin() is IdempotencyState.NEW


async def renewed(store, before):
    return await lease_end(store) > before


async def test_idempotency_key_lease_renewal_is_retried_after_a_store_failure(tmp_path):
    failures = []
    store = Database(f"sqlite:///{tmp_path}/later/gateway.db", lambda: failures.append(True))
    async with holding(IdempotencyKey(store, "", "k", "digest", "one")):
        await until(lambda: bool(failures))
        (tmp_path / "later").mkdir()
        before = await begin_old(store)
        await until(lambda: renewed(store, before))
    await assert_renewed(store, before)
    await store.close()
