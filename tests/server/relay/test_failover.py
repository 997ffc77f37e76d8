"""Test retries at other backends and fallback models for failures before the first content."""

import asyncio
import json

import pytest

from gateway.pipeline.pipeline import Pipeline
from gateway.server.relay.attempts import Attempts
from gateway.server.relay.model_request import ModelRequest
from gateway.server.relay.relay import Relay
from gateway.server.relay.responder import Responder
from gateway.server.relay.retry_policy import RetryPolicy
from support.app import HELLO_MESSAGES, bearer, problem
from support.backends import extend_pauses, fleet
from support.memory import until_freed, watched
from support.sse import comments, events, payloads, text_of
from support.upstream import CLOSE, END, HANG, HELLO, RESET, chunk, completion_body, frame, head, stream, whole
from support.wait import until

OF_A_REQUEST = Responder, Attempts, Relay, ModelRequest, Pipeline, RetryPolicy
OVERLONG = whole({"error": {"message": "maximum context length is 8 tokens", "code": "context_length_exceeded"}}, 400)
IMPATIENT = {"timeouts": {"first_byte": 0.1}}  # only for a backend that is silent
FAILURES = {
    "closes": [CLOSE],
    "resets": [RESET],
    "500": whole({"error": "no"}, 500),
    "502": whole(b"<html>", 502, type="text/html"),
    "503": whole({"error": "loading model"}, 503),
    "429": whole({"error": "too many"}, 429),
    "402": whole({"error": "no credit"}, 402),
    "refuses the key": whole({"error": "who?"}, 401),
    "has no such model": whole({"error": "model 'm' not found"}, 404),
    "is silent": [HANG],
    "is no HTTP": [b"SSH-2.0\r\n"],
    "breaks off before a word": [head(), chunk(role="assistant"), CLOSE],
    "says nothing": [head(), END],
    "an error in the stream": stream(frame(error={"message": "out of memory", "code": 500})),
    "a page": whole(b"<html>no</html>", type="text/html"),
    "no choices": whole({"object": "chat.completion", "choices": []}),
}
GRANTED = {"grace_seconds": 0.05, "keepalive_seconds": 0.05}


@pytest.mark.parametrize("path", ["chat", "respond"])
@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize("failure", FAILURES)
async def test_failover_uses_another_backend_after_each_failure(failure, streamed, path):
    first = IMPATIENT if failure == "is silent" else {}
    async with fleet(
        [FAILURES[failure]], [HELLO if streamed else whole(completion_body())], backends=[first, {}]
    ) as site:
        answer = await getattr(site, path)(stream=streamed, headers={"x-gateway-debug": "1"})
        assert (answer.status_code, site.posts()) == (200, [1, 1])
        assert "Hi" in answer.text and "error" not in answer.text.replace('"error":null', "")
        assert answer.headers["x-gateway-backend"] == "b1"
        assert "x-gateway-warnings" not in answer.headers


@pytest.mark.parametrize("streamed", [False, True])
async def test_failover_forgets_the_members_of_the_failed_backend(streamed):
    """Its tier and fingerprint are not those of the response, nor are its unknown members."""
    named = frame(choices=[], service_tier="flex", system_fingerprint="fp_1", odd=1)
    async with fleet([[head(), named, CLOSE]] * 2, [HELLO] * 2) as site:
        answer = await site.chat(stream=streamed)
        assert (answer.status_code, site.posts()) == (200, [1, 1])
        assert "x-gateway-warnings" not in answer.headers
        for member in ("flex", "fp_1", "odd"):
            assert member not in answer.text
        response = await site.respond(stream=streamed)
        assert response.status_code == 200 and "flex" not in response.text


async def test_failover_of_a_message_forgets_the_usage_of_the_failed_backend():
    usage = {"input_tokens": 5, "output_tokens": 0, "service_tier": "priority"}
    start = {"type": "message_start", "message": {"id": "msg_1", "role": "assistant", "content": [], "usage": usage}}
    begun = f"event: message_start\ndata: {json.dumps(start)}\n\n".encode()
    async with fleet([[head(), begun, CLOSE]], [HELLO], backends=[{"kind": "anthropic"}, {}]) as site:
        body = {"model": "m", "max_tokens": 9, "messages": HELLO_MESSAGES, "stream": True}
        answer = await site.client.post("/v1/messages", json=body)
        assert (answer.status_code, site.posts()) == (200, [1, 1])
    assert "Hi" in answer.text and "priority" not in answer.text


async def test_failover_that_fails_as_well_shows_the_members_of_the_last_backend():
    named = frame(choices=[], service_tier="flex")
    async with fleet([[head(), named, CLOSE]], [[head(), named, chunk("H"), CLOSE]]) as site:
        answer = await site.chat(stream=True)
    assert [one.get("service_tier") for one in payloads(answer.text)][:2] == ["flex", "flex"]


async def test_failover_skips_a_backend_that_refuses_connections():
    async with fleet([HELLO], [HELLO], backends=[{"url": "http://127.0.0.1:1"}]) as site:
        assert text_of((await site.chat(stream=True)).text) == "Hi"
        assert site.posts() == [0, 1]


@pytest.mark.parametrize("status", [400, 422, 413, 501])
async def test_failover_does_not_retry_a_client_error(status):
    async with fleet([whole({"error": {"message": "'x' is wrong"}}, status)], [HELLO]) as site:
        answer = await site.chat(stream=True)
        assert 400 <= answer.status_code < 500 and site.posts() == [1, 0]


async def test_failover_does_not_retry_after_the_first_content():
    async with fleet([[head(), chunk("H"), RESET]], [HELLO]) as site:
        answer = await site.chat(stream=True)
        assert text_of(answer.text) == "H" and payloads(answer.text)[-1]["error"]["code"] == "upstream_lost"
        assert site.posts() == [1, 0]


@pytest.mark.parametrize("path", ["chat", "respond"])
async def test_failover_continues_the_same_stream_after_the_grace(path):
    go = asyncio.Event()
    async with fleet([[go, CLOSE]], [HELLO], stream=GRANTED) as site:
        body, text = {"model": "m", "messages": HELLO_MESSAGES, "input": "Hello", "stream": True}, ""
        body.pop("input" if path == "chat" else "messages")
        url = "/v1/chat/completions" if path == "chat" else "/v1/responses"
        async with site.client.stream("POST", url, json=body) as answer:
            assert answer.status_code == 200
            async for piece in answer.aiter_text():
                text += piece
                if path == "respond" or comments(text):
                    go.set()
        assert site.posts() == [1, 1]
        if path == "chat":
            assert text_of(text) == "Hi" and comments(text)
            assert "error" not in text and text.count('"role"') == 1
        else:
            types = [event["type"] for event in events(text)]
            assert types.count("response.created") == 1 and types[-1] == "response.completed"
            assert [event["sequence_number"] for event in events(text)] == [*range(len(types))]


async def test_failover_returns_the_last_failure_if_all_backends_fail():
    async with fleet([[CLOSE]], [whole({"error": "I am full"}, 503)]) as site:
        answer = await site.chat()
        assert problem(answer) == (503, "server_error", "server_is_overloaded", None) and site.posts() == [1, 1]


@pytest.mark.parametrize(("retries", "counts"), [(0, [1, 0, 0]), (1, [1, 1, 0]), (2, [1, 1, 1]), (9, [1, 1, 1])])
async def test_retry_limit_of_the_model_holds(retries, counts):
    async with fleet([[CLOSE]], [[CLOSE]], [[CLOSE]], model={"retries": retries}) as site:
        assert (await site.chat()).status_code == 502 and site.posts() == counts


async def test_retry_budget_is_ten_and_a_fifth_of_the_requests():
    """The budget begins with ten retries, and every fifth request adds one."""
    async with fleet([whole({"error": "no"}, 500)], [whole({"error": "no"}, 500)]) as site:
        for _ in range(40):
            assert (await site.chat()).status_code == 502
        first, second = site.posts()
        assert first + second - 40 == 10 + 39 // 5


@pytest.mark.parametrize("grace", [10, 0.2])
async def test_retry_waits_for_retry_after(grace):
    times = {"grace_seconds": grace}
    async with fleet([whole({"error": "busy"}, 503, retry_after="1"), HELLO], stream=times) as site:
        answer = await site.chat(stream=True)
        assert text_of(answer.text) == "Hi" and site.posts() == [2]


@pytest.mark.parametrize("after", ["60", "Wed, 21 Oct 2026 07:28:00 GMT"])
async def test_retry_after_that_is_long_rests_a_backend_of_several(after):
    busy = whole({"error": "busy"}, 503, retry_after=after, date="Wed, 21 Oct 2026 07:27:00 GMT")
    async with fleet([busy], [busy, HELLO], model={"retries": 1}) as site:
        answer = await site.chat(stream=True)
        assert (answer.status_code, answer.headers["retry-after"], site.posts()) == (503, "60", [1, 1])
        again = await site.chat(stream=True)
        assert (again.status_code, site.posts()) == (503, [1, 1])
        assert 1 <= int(again.headers["retry-after"]) <= 60


@pytest.mark.parametrize("after", ["9" * 5000, "soon"])
async def test_retry_after_that_is_no_time_rests_no_backend(after):
    async with fleet([whole({"error": "busy"}, 503, retry_after=after)], model={"retries": 1}) as site:
        answer = await site.chat(stream=True)
    assert answer.status_code == 503 and "retry-after" not in answer.headers


async def test_circuit_opens_after_repeated_failures_and_a_trial_closes_it(caplog):
    failing = [*[[CLOSE]] * 5, HELLO]
    async with fleet(failing, failing, model={"retries": 1}) as site:
        extend_pauses(site)
        extend_pauses(site, "b1")
        for _ in range(5):
            assert problem(await site.chat())[2] == "upstream_lost"
        refused = await site.chat()
        assert problem(refused)[:3] == (503, "server_error", "server_is_overloaded")
        assert int(refused.headers["retry-after"]) >= 1 and site.posts() == [5, 5]
        site.backend("b0").limiter.health.record_probe(asyncio.get_running_loop().time(), succeeded=True)
        assert text_of((await site.chat(stream=True)).text) == "Hi"
    assert "backend b0 failed repeatedly" in caplog.text and "backend b0 is available again" in caplog.text


@pytest.mark.parametrize("failure", [[CLOSE], whole({"error": "busy"}, 503, retry_after="60")])
async def test_circuit_never_refuses_for_an_only_backend(failure):
    async with fleet([*[failure] * 8, HELLO]) as site:
        for _ in range(8):
            assert (await site.chat()).status_code in {502, 503}
        assert site.posts() == [8] and text_of((await site.chat(stream=True)).text) == "Hi"


@pytest.mark.parametrize("status", [429, 503, 529])
async def test_backend_rests_for_as_long_as_it_asks(status):
    busy = whole({"error": "busy"}, status, retry_after="600")
    async with fleet([busy], [HELLO]) as site:
        for _ in range(8):
            assert (await site.chat()).status_code == 200
        assert site.posts() in ([0, 8], [1, 8])


async def test_warning_of_a_failed_backend_is_not_reported():
    """The first backend would drop the field, the second one keeps it."""
    kinds = [{"kind": "ollama"}, {"kind": "vllm"}]
    async with fleet([[CLOSE]], [whole(completion_body())], backends=kinds) as site:
        answer = await site.chat(logit_bias={"5": 1})
        assert (answer.status_code, site.posts()) == (200, [1, 1])
        assert "x-gateway-warnings" not in answer.headers
        assert site.upstreams["b1"].posts[0].json["logit_bias"] == {"5": 1}


async def test_failover_skips_a_lossy_backend_in_strict_mode():
    kinds = [{"kind": "vllm"}, {"kind": "ollama"}]
    async with fleet([[CLOSE]], [whole(completion_body())], backends=kinds, model={"strict": True}) as site:
        answer = await site.chat(logit_bias={"5": 1})
        assert problem(answer)[2] == "upstream_lost" and site.posts() == [1, 0]


async def test_upstream_model_is_set_for_each_backend():
    targets = [{"name": "b0", "upstream_model": "x"}, {"name": "b1", "priority": 1}]
    async with fleet([[CLOSE]], [whole(completion_body())], model={"backends": targets, "upstream_model": "y"}) as site:
        assert (await site.chat()).status_code == 200
        assert [one.posts[0].json["model"] for one in site.upstreams.values()] == ["x", "y"]


async def test_failover_covers_embeddings():
    vector = whole({"object": "list", "data": [{"object": "embedding", "index": 0, "embedding": [0.5]}], "model": "m"})
    async with fleet([[CLOSE]], [vector]) as site:
        answer = await site.client.post("/v1/embeddings", json={"model": "m", "input": "a"})
        assert answer.json()["data"][0]["embedding"] == [0.5] and site.posts() == [1, 1]


async def test_failover_covers_a_fan_out_of_choices():
    kinds = [{"kind": "ollama"}, {"kind": "openai", "ignores": ["n"]}]
    async with fleet([[CLOSE]], [whole(completion_body("a")), whole(completion_body("b"))], backends=kinds) as site:
        answer = await site.chat(n=2)
        assert sorted(one["message"]["content"] for one in answer.json()["choices"]) == ["a", "b"]


async def test_failover_covers_background_responses():
    async with fleet([[CLOSE]], [HELLO]) as site:
        answer = await site.respond(background=True, stream=True)
        assert [event["type"] for event in events(answer.text)][-1] == "response.completed" and site.posts() == [1, 1]


async def test_failover_covers_compaction_and_its_response():
    compacted = {"context_management": [{"type": "compaction", "compact_threshold": 1}]}
    async with fleet([[CLOSE]], [whole(completion_body("A summary.")), HELLO]) as site:
        answer = await site.respond(stream=True, **compacted)
        assert [event["type"] for event in events(answer.text)][-1] == "response.completed"
        assert site.posts() == [1, 2]


async def test_retry_is_cancelled_if_the_client_leaves_during_the_pause():
    async with fleet([whole({"error": "busy"}, 503, retry_after="2")], [HELLO], model={"retries": 5}) as site:
        site.upstreams["b1"]._scripts[:] = [whole({"error": "busy"}, 503, retry_after="2")]
        asking = asyncio.create_task(site.chat(stream=True))
        await until(lambda: site.posts() == [1, 1])
        asking.cancel()
        await until(lambda: not site.backend("b1").limiter.queue.total)
        assert site.posts() == [1, 1]


# other models


def small(*scripts, **fallback):
    """Return keywords for a fleet whose last backend has the fallback model."""
    name = f"b{len(scripts) - 1}"
    targets = [f"b{i}" for i in range(len(scripts) - 1)]
    return {
        "model": {"backends": targets, "fallback": [{"model": "small", **fallback}]},
        "more_models": {"small": {"backends": [name], "upstream_model": "tiny"}},
    }


async def ask_with(*scripts, fallback=None, **fields):
    async with fleet(*scripts, **small(*scripts, **(fallback or {}))) as site:
        answer = await site.chat(headers={"x-gateway-debug": "1"}, **fields)
        return answer, site.posts(), [one.posts[-1].json["model"] for one in site.upstreams.values() if one.posts]


async def test_fallback_model_answers_if_all_backends_fail():
    answer, posts, models = await ask_with([[CLOSE]], [[CLOSE]], [whole(completion_body())])
    assert (answer.status_code, posts, models) == (200, [1, 1, 1], ["m", "m", "tiny"])
    assert answer.headers["x-gateway-model"] == "small" and answer.headers["x-gateway-warnings"] == "translated:model"
    assert answer.json()["model"] == "m"


async def test_fallback_model_answers_a_long_prompt_only_if_configured():
    answer, posts, _ = await ask_with([OVERLONG], [whole(completion_body())])
    assert (problem(answer)[2], posts) == ("context_length_exceeded", [1, 0])
    answer, posts, _ = await ask_with([OVERLONG], [whole(completion_body())], fallback={"when": ["too_long"]})
    assert (answer.status_code, posts) == (200, [1, 1])
    answer, posts, _ = await ask_with([[CLOSE]], [whole(completion_body())], fallback={"when": ["too_long"]})
    assert (answer.status_code, posts) == (502, [1, 0])


async def test_fallback_model_has_no_fallback_itself():
    async with fleet(
        [[CLOSE]], [[CLOSE]], [HELLO],
        model={"backends": ["b0"], "fallback": ["small"]},
        more_models={"small": {"backends": ["b1"], "fallback": ["last"]}, "last": {"backends": ["b2"]}},
    ) as site:  # fmt: skip
        assert (await site.chat()).status_code == 502 and site.posts() == [1, 1, 0]


@pytest.mark.parametrize(
    ("first", "second", "when"),
    [
        ([CLOSE], [CLOSE], (["unavailable"], ["unavailable"])),
        (OVERLONG, OVERLONG, (["too_long"], ["too_long"])),
        ([CLOSE], OVERLONG, (["unavailable"], ["too_long"])),
        (OVERLONG, [CLOSE], (["too_long"], ["unavailable"])),
    ],
    ids=["unavailable", "too long", "unavailable, too long", "too long, unavailable"],
)
async def test_fallback_models_are_asked_in_their_order_until_one_answers(first, second, when):
    fallback = [{"model": name, "when": reasons} for name, reasons in zip(("b", "c"), when, strict=True)]
    async with fleet(
        [first], [second], [whole(completion_body())],
        model={"backends": ["b0"], "fallback": fallback},
        more_models={"b": {"backends": ["b1"]}, "c": {"backends": ["b2"]}},
    ) as site:  # fmt: skip
        answer = await site.chat(headers={"x-gateway-debug": "1"})
        assert (answer.status_code, site.posts()) == (200, [1, 1, 1])
        assert answer.headers["x-gateway-model"] == "c"
        assert answer.headers["x-gateway-warnings"] == "translated:model"


async def test_fallback_models_are_asked_once_each():
    async with fleet(
        [[CLOSE]], [[CLOSE]], [whole({"error": "I am full"}, 503)],
        model={"backends": ["b0"], "fallback": ["b", "c"]},
        more_models={"b": {"backends": ["b1"]}, "c": {"backends": ["b2"]}},
    ) as site:  # fmt: skip
        answer = await site.chat()
        assert (problem(answer)[2], site.posts()) == ("server_is_overloaded", [1, 1, 1])


async def test_fallback_model_must_be_allowed_for_the_api_key():
    keys = {"keys": [{"name": "a", "key": "aaa", "models": ["m"]}, {"name": "b", "key": "bbb"}]}
    scripts = [[CLOSE]], [whole(completion_body())]
    async with fleet(*scripts, auth=keys, **small(*scripts)) as site:
        first = await site.chat(headers=bearer("aaa"))
        second = await site.chat(headers=bearer("bbb"))
        assert (first.status_code, second.status_code) == (502, 200)


async def test_fallback_model_serves_neither_embeddings_nor_token_counts():
    scripts = [[CLOSE]], [whole(completion_body())]
    async with fleet(*scripts, **small(*scripts)) as site:
        embedding = await site.client.post("/v1/embeddings", json={"model": "m", "input": "a"})
        assert problem(embedding)[2] == "upstream_lost" and site.posts() == [1, 0]
        count = await site.client.post("/v1/responses/input_tokens", json={"model": "m", "input": "a"})
        assert count.status_code == 200 and site.posts() == [1, 0]


async def test_fallback_model_answers_at_once_while_the_circuit_is_open():
    scripts = [[CLOSE]], [whole(completion_body())]
    async with fleet(*scripts, **small(*scripts)) as site:
        extend_pauses(site)
        for _ in range(7):
            answer = await site.chat()
            assert (answer.status_code, answer.headers["x-gateway-warnings"]) == (200, "translated:model")
        assert site.posts() == [5, 7]


# which one


async def test_balancer_picks_the_least_busy_backend():
    hanging = asyncio.Event()
    slow = [hanging, *HELLO]
    async with fleet([slow], [slow], together=True) as site:
        asking = [asyncio.create_task(site.chat(stream=True)) for _ in range(6)]
        await until(lambda: sum(site.posts()) == 6)
        assert site.posts() == [3, 3]
        hanging.set()
        assert [text_of((await one).text) for one in asking] == ["Hi"] * 6


LATER = [{"role": "assistant", "content": "Hi"}, {"role": "user", "content": "More"}]


@pytest.mark.parametrize(
    ("sticky", "fields", "met"),
    [
        ("key", {"prompt_cache_key": "k1"}, True),
        ("prefix", {"prompt_cache_key": "k1"}, True),
        ("prefix", {}, True),
        ("none", {"prompt_cache_key": "k1"}, False),
        ("key", {}, False),
    ],
)
async def test_sticky_mode_decides_which_requests_share_a_backend(sticky, fields, met):
    first = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hello"}]
    async with fleet(
        [whole(completion_body())],
        [whole(completion_body())],
        [whole(completion_body())],
        together=True,
        model={"sticky": sticky},
    ) as site:
        for i in range(24):
            await site.chat(messages=[*first, *LATER * (i % 3)], **fields)
        assert (sorted(site.posts()) == [0, 0, 24]) == met


async def test_conversation_stays_at_one_backend():
    async with fleet(
        [whole(completion_body())], [whole(completion_body())], [whole(completion_body())], together=True
    ) as site:
        id = (await site.client.post("/v1/conversations", json={})).json()["id"]
        for _ in range(6):
            assert (await site.respond(conversation=id)).status_code == 200
        assert sorted(site.posts()) == [0, 0, 6]


async def test_response_chain_stays_at_one_backend():
    async with fleet(
        [whole(completion_body())], [whole(completion_body())], [whole(completion_body())], together=True
    ) as site:
        id = (await site.respond()).json()["id"]
        before = site.posts()
        for _ in range(6):
            id = (await site.respond(previous_response_id=id)).json()["id"]
        assert 6 in [now - then for now, then in zip(site.posts(), before, strict=True)]


async def test_balancer_splits_requests_by_weight():
    targets = [{"name": "b0", "weight": 1}, {"name": "b1", "weight": 9}]
    async with fleet([whole(completion_body())], [whole(completion_body())], model={"backends": targets}) as site:
        for _ in range(100):
            await site.chat()
        first, second = site.posts()
        assert first + second == 100 and first < 30


@pytest.mark.parametrize("path", ["chat", "respond"])
@pytest.mark.parametrize("streamed", [False, True])
async def test_request_leaves_no_reference_cycles(path, streamed):
    """The collector of cycles runs seldom, and what cycles hold piles up."""
    async with fleet([[CLOSE]], [HELLO if streamed else whole(completion_body())]) as site:
        with watched():
            assert (await getattr(site, path)(stream=streamed)).status_code == 200
            await until_freed(OF_A_REQUEST)


@pytest.mark.parametrize(
    ("script", "header"),
    [
        (whole({"error": "no"}, 500), "false"),
        (whole({"error": "who?"}, 401), "false"),
        (whole({"error": "loading model"}, 503), None),
        (whole({"error": {"message": "Pay.", "code": "insufficient_quota"}}, 429), "false"),
        (whole({"error": {"message": "Pay."}}, 402), "false"),
        (whole({"error": "slow down"}, 429), None),
        ([CLOSE], None),
    ],
    ids=["500", "401", "503", "quota", "credit", "rate", "closes"],
)
async def test_failure_says_whether_the_client_should_ask_again(script, header):
    async with fleet([script]) as site:
        answer = await site.chat()
        assert answer.status_code >= 429 and answer.headers.get("x-should-retry") == header
