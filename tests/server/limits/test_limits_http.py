"""Test usage limits over HTTP and WebSocket: refusals, headers, and what is counted in the end."""

import asyncio
import json

import pytest
from sqlalchemy import func, select

from gateway.store.tables import uses
from support.app import HELLO_MESSAGES, bearer, gateway, listening, problem
from support.jobs import accepted, ended, slowly
from support.sse import payloads
from support.upstream import CLOSE, COUNTS, HANG, HELLO, RESET, chunk, completion_body, head, whole
from support.wait import until
from support.websocket import connected, error, response

NOON = 1_800_057_600 // 86_400 * 86_400 + 43_200
SECRET = "ann-secret-0123456789"
BOB_SECRET = "bob-secret-0123456789"
ANN, BOB = bearer(SECRET), bearer(BOB_SECRET)
LIMITED = (429, "rate_limit_error", "rate_limit_exceeded", None)
ANSWER = whole(completion_body("Hi"))  # 9 tokens
EMBEDDED = whole(
    {"object": "list", "data": [{"embedding": [1.0], "index": 0}], "usage": {"prompt_tokens": 4, "total_tokens": 4}}
)
RANKED = whole({"results": [{"index": 0, "relevance_score": 1}], "usage": {"prompt_tokens": 6, "total_tokens": 6}})
NOWHERE = {"url": "sqlite:////nowhere/at/all/gateway.db"}


def keys(**limits):
    ann = {"name": "ann", "key": SECRET, "limits": limits}
    return {"auth": {"keys": [ann, {"name": "bob", "key": BOB_SECRET}]}}


def limited(**limits):
    return {"model": {"limits": limits}}


def freeze_clock(site, at=NOON):
    """Stop the clock of the limits, so that no minute ends within a test."""
    site.app.state.limits._clock = lambda: at


async def used(site, rule="tokens_per_minute", of="model/m"):
    async with site.app.state.store.reading() as db:
        return await db.scalar(select(func.coalesce(func.sum(uses.c.amount), 0)).where(uses.c.key == f"{of}/{rule}"))


async def post(site, path, headers=None, **body):
    return await site.client.post(f"/v1/{path}", json={"model": "m", **body}, headers=headers)


def limit_headers(answer, unit="requests"):
    names = [f"x-ratelimit-{name}-{unit}" for name in ("limit", "remaining", "reset")]
    return tuple(answer.headers.get(name) for name in names)


async def test_limit_of_requests_per_minute_applies_to_a_key():
    async with gateway(ANSWER, **keys(requests_per_minute=2)) as site:
        freeze_clock(site)
        for left in ("1", "0"):
            answer = await site.chat(headers=ANN)
            assert answer.status_code == 200 and limit_headers(answer) == ("2", left, "120s")
        answer = await site.chat(headers=ANN)
        assert problem(answer) == LIMITED and answer.headers["retry-after"] == "90"
        assert limit_headers(answer) == ("2", "0", "120s") and len(site.upstream.posts) == 2
        assert "the key 'ann': 2 requests per minute, used 2" in answer.text and SECRET not in answer.text
        answer = await site.chat(headers=BOB)
        assert answer.status_code == 200 and limit_headers(answer) == (None, None, None)
        freeze_clock(site, NOON + 90)
        assert (await site.chat(headers=ANN)).status_code == 200


WAYS = {
    "chat/completions": ({"messages": HELLO_MESSAGES}, ANSWER, 9),
    "completions": ({"prompt": "Hello"}, ANSWER, 9),
    "responses": ({"input": "Hello"}, ANSWER, 9),
    "responses/compact": ({"input": "Hello"}, ANSWER, 9),
    "responses/input_tokens": ({"input": "Hello" * 100}, ANSWER, 0),
    "embeddings": ({"input": "Hello"}, EMBEDDED, 4),
    "rerank": ({"query": "a", "documents": ["b"]}, RANKED, 6),
}


@pytest.mark.parametrize("way", WAYS)
async def test_limit_applies_to_every_endpoint(way):
    body, script, tokens = WAYS[way]
    if way == "completions":
        script = whole({"choices": [{"index": 0, "text": "Hi", "finish_reason": "stop"}], "usage": COUNTS})
    limits = limited(requests_per_minute=1, tokens_per_minute=100)
    async with gateway(script, backend={"kind": "vllm"}, **limits) as site:
        freeze_clock(site)
        answer = await post(site, way, **body)
        assert answer.status_code == 200, answer.text
        assert limit_headers(answer) == ("1", "0", "120s") and await used(site) == tokens
        answer = await post(site, way, **body)
        assert problem(answer) == LIMITED and limit_headers(answer) == ("1", "0", "120s")
        assert await used(site, "requests_per_minute") == 1


def team(budget):
    """Return a configuration of two keys that share a budget of a month."""
    ann = {"name": "ann", "key": SECRET, "group": "team", "limits": {"tokens_per_day": 1000}}
    keys = [ann, {"name": "bob", "key": BOB_SECRET, "group": "team"}]
    return {"auth": {"groups": {"team": {"tokens_per_month": budget}}, "keys": keys}}


@pytest.mark.parametrize("way", [way for way, (_, _, tokens) in WAYS.items() if tokens] + ["messages"])
async def test_budget_is_reported_by_every_endpoint(way):
    body, script, _ = WAYS.get(way, ({"messages": HELLO_MESSAGES, "max_tokens": 5}, ANSWER, 9))
    if way == "completions":
        script = whole({"choices": [{"index": 0, "text": "Hi", "finish_reason": "stop"}], "usage": COUNTS})
    async with gateway(script, backend={"kind": "vllm"}, **team(500)) as site:
        freeze_clock(site)
        answer = await post(site, way, ANN, **body)
        assert answer.status_code == 200, answer.text
        day, month = answer.headers["x-gateway-budgets"].split(", ")
        assert day.startswith("day=") and day.endswith("/1000")
        assert month.startswith("group-month=") and month.endswith("/500")


async def test_budget_of_a_group_ends_for_all_its_keys():
    async with gateway(ANSWER, **team(40)) as site:
        freeze_clock(site)
        answer = await site.chat(headers=ANN, max_tokens=30)
        assert answer.headers["x-gateway-budgets"] == "day=967/1000, group-month=7/40"
        assert await used(site, "tokens_per_month", "group/team") == 9
        answer = await site.chat(headers=BOB, max_tokens=29)
        assert problem(answer) == LIMITED and "the group 'team': 40 tokens per month, used 9" in answer.text
        assert (
            answer.headers["x-gateway-budgets"] == "group-month=31/40" and int(answer.headers["retry-after"]) > 86_400
        )
        answer = await site.chat(headers=BOB, max_tokens=20, stream=True)
        assert answer.headers["x-gateway-budgets"] == "group-month=8/40"


async def test_limit_of_a_model_includes_its_aliases():
    async with gateway(ANSWER, model={"limits": {"requests_per_minute": 1}, "aliases": ["a"]}) as site:
        freeze_clock(site)
        await site.chat()
        assert problem(await site.chat(model="a")) == LIMITED


@pytest.mark.parametrize("way", ["chat/completions", "responses"])
async def test_limit_headers_of_a_stream_have_the_estimate_before_its_usage(way):
    async with gateway(HELLO, **limited(tokens_per_minute=1000, requests_per_minute=5)) as site:
        freeze_clock(site)
        limit = "max_output_tokens" if way == "responses" else "max_tokens"
        answer = await post(site, way, **WAYS[way][0], stream=True, **{limit: 500})
        assert limit_headers(answer)[1] == "4" and limit_headers(answer, "tokens") == ("1000", "497", "120s")
        assert await used(site) == 9


async def test_limit_counts_max_tokens_until_the_usage_is_known():
    go = asyncio.Event()
    async with gateway([go, *ANSWER], **limited(tokens_per_minute=1000)) as site:
        freeze_clock(site)
        first = asyncio.create_task(site.chat(max_tokens=600))
        await site.upstream.arrived.wait()
        answer = await site.chat(max_tokens=600)
        assert problem(answer) == LIMITED and "used 603, requested 603" in answer.text
        go.set()
        assert (await first).status_code == 200
        assert (await site.chat(max_tokens=600)).status_code == 200
        assert await used(site) == 18


async def test_limit_refuses_max_tokens_above_it_without_retry_after():
    async with gateway(ANSWER, **limited(tokens_per_minute=100)) as site:
        answer = await site.chat(max_tokens=101)
        assert problem(answer) == LIMITED and "retry-after" not in answer.headers
        assert "may use 104 tokens, but the limit of the model 'm' is 100 tokens per minute" in answer.text


FAILURES = {
    "refused": whole({"error": {"message": "no"}}, status=500),
    "lost": [RESET],
}


@pytest.mark.parametrize("failure", FAILURES)
async def test_limit_counts_a_failure_as_a_request_without_tokens(failure):
    async with gateway(FAILURES[failure], **limited(tokens_per_minute=1000, requests_per_minute=5)) as site:
        freeze_clock(site)
        answer = await site.chat(max_tokens=500)
        assert answer.status_code >= 500 and limit_headers(answer)[1] == "4"
        assert (await used(site), await used(site, "requests_per_minute")) == (0, 1)


@pytest.mark.parametrize("path", ["embeddings", "rerank"])
async def test_limit_counts_no_tokens_of_failed_embeddings_or_rerank(path):
    async with gateway(FAILURES["refused"], **limited(tokens_per_minute=1000)) as site:
        freeze_clock(site)
        answer = await post(site, path, **WAYS[path][0])
        assert answer.status_code >= 500 and limit_headers(answer, "tokens")[0] == "1000"
        assert await used(site) == 0


async def test_limit_ignores_an_invalid_request():
    async with gateway(ANSWER, **limited(requests_per_minute=5)) as site:
        assert (await site.chat(temperature="hot")).status_code == 400
        assert (await post(site, "embeddings")).status_code == 400
        assert not site.app.state.store.exists()


async def test_limit_counts_the_output_of_a_stream_that_breaks_off():
    async with gateway([head(), chunk("x" * 400), CLOSE], **limited(tokens_per_minute=1000)) as site:
        freeze_clock(site)
        answer = await site.chat(stream=True, max_tokens=500)
        assert "error" in payloads(answer.text)[-1]
        assert 100 < await used(site) < 120


async def test_limit_counts_choices_as_one_request_and_sums_their_tokens():
    async with gateway(HELLO, backend={"kind": "transformers"}, **limited(tokens_per_minute=1000)) as site:
        freeze_clock(site)
        answer = await site.chat(n=3, max_tokens=100)
        assert answer.status_code == 200 and limit_headers(answer, "tokens")[1] == "697"
        assert len(site.upstream.posts) == 3 and await used(site) == 7 + 3 * 2


async def disconnect_after(site, text, **fields):
    """Disconnect a client that has read `text`; without one, when its request has arrived at the upstream."""
    reader, writer = await asyncio.open_connection("127.0.0.1", site.client.base_url.port)
    body = json.dumps({"model": "m", "messages": HELLO_MESSAGES, "max_tokens": 500, **fields}).encode()
    writer.write(b"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-length: %d\r\n\r\n%b" % (len(body), body))
    await site.upstream.arrived.wait()
    if text:
        await reader.readuntil(text)
    writer.transport.abort()


@pytest.mark.parametrize("streamed", [True, False])
@pytest.mark.parametrize("n", [1, 2])
async def test_limit_counts_the_output_until_the_client_disconnects(streamed, n):
    script = [head(), chunk("x" * 400), HANG] if streamed else [HANG]
    limits = limited(tokens_per_minute=2000, concurrent=1)
    async with listening(script, backend={"kind": "transformers"}, **limits) as site:
        freeze_clock(site)
        await disconnect_after(site, b"x" * 400 if streamed else b"", stream=streamed, n=n)
        await until(lambda: dict(site.app.state.limits._places._taken), {})

        async def settled():
            return await used(site) < 500

        await until(settled)
        least = 100 if streamed else 0
        assert least < await used(site) < n * 120


async def test_limit_applies_to_a_websocket():
    async with (
        listening(HELLO, **limited(requests_per_minute=2, tokens_per_minute=1000)) as site,
        connected(site) as socket,
    ):
        freeze_clock(site)
        for _ in range(2):
            response(await socket.respond(max_output_tokens=100))
        assert error(await socket.respond()) == LIMITED

        async def spent():
            return await used(site)

        assert await until(spent, 18)


async def test_limit_slot_is_held_by_a_background_job_until_it_ends():
    script, gates = slowly(chunk("Hi"), chunk(finish="stop"))
    limits = limited(concurrent=1, tokens_per_minute=1000)
    async with gateway(script, **limits) as site:
        freeze_clock(site)
        id = await accepted(site, max_output_tokens=500)
        answer = await site.respond()
        assert problem(answer) == LIMITED and answer.headers["retry-after"] == "1"
        assert await used(site) > 500
        for gate in gates:
            gate.set()
        assert (await ended(site, id))["status"] == "completed"
        await until(lambda: dict(site.app.state.limits._places._taken), {})

        async def settled():
            return 0 < await used(site) < 60

        await until(settled)


async def test_limit_headers_are_sent_for_a_background_job():
    async with gateway(HELLO, **limited(requests_per_minute=5)) as site:
        freeze_clock(site)
        answer = await site.respond(background=True)
        assert limit_headers(answer) == ("5", "4", "120s")
        await ended(site, answer.json()["id"])
        answer = await site.respond(background=True, previous_response_id="resp_none")
        assert answer.status_code == 400 and limit_headers(answer) == (None, None, None)


async def test_limit_counts_no_tokens_of_a_response_that_fails_at_once():
    async with gateway(FAILURES["refused"], **limited(requests_per_minute=5, tokens_per_minute=1000)) as site:
        freeze_clock(site)
        answer = await site.respond(stream=True)
        assert answer.status_code >= 500 and limit_headers(answer)[1] == "4" and await used(site) == 0


async def test_limit_of_concurrent_requests_applies_to_a_key():
    go = asyncio.Event()
    async with gateway([go, *ANSWER], **keys(concurrent=2)) as site:
        running = [asyncio.create_task(site.chat(headers=ANN)) for _ in range(2)]
        await until(lambda: len(site.upstream.posts), 2)
        answer = await site.chat(headers=ANN)
        assert problem(answer) == LIMITED and answer.headers["retry-after"] == "1"
        assert "the key 'ann': 2 concurrent requests" in answer.text
        go.set()
        assert [answer.status_code for answer in await asyncio.gather(*running)] == [200, 200]
        assert (await site.chat(headers=ANN)).status_code == 200


@pytest.mark.parametrize("sections", [{"store": NOWHERE}, {"limits": {"url": "redis://127.0.0.1:1"}}])
async def test_limit_counter_failure_admits_requests(sections, caplog):
    async with gateway(ANSWER, **limited(requests_per_minute=1, tokens_per_minute=10), **sections) as site:
        for _ in range(3):
            answer = await site.chat()
            assert answer.status_code == 200 and limit_headers(answer) == (None, None, None)
    assert len([record for record in caplog.records if "rate limits are not enforced" in record.message]) == 1


async def test_limit_counts_an_idempotent_replay_once():
    async with gateway(ANSWER, **limited(requests_per_minute=1)) as site:
        freeze_clock(site)
        for _ in range(3):
            assert (await site.chat(headers={"idempotency-key": "k"})).status_code == 200
        assert problem(await site.chat()) == LIMITED


async def test_limit_headers_are_exposed_by_cors():
    async with gateway(ANSWER, server={"cors": ["*"]}, **limited(requests_per_minute=1)) as site:
        answer = await site.chat(headers={"origin": "https://a.example"})
        shown = answer.headers["access-control-expose-headers"]
    names = ("x-ratelimit-remaining-tokens", "x-gateway-budgets", "retry-after", "x-should-retry")
    assert {*names} <= {*shown.split(", ")}
