"""Test hedging: a second backend gets the request if the first one is slow."""

import asyncio

import pytest

from gateway.server.relay.hedged_call import HedgedCall, SecondCall
from support.app import problem
from support.backends import fleet
from support.sse import text_of
from support.upstream import CLOSE, HANG, HELLO, chunk, completion_body, head, silent, stream, whole
from support.wait import DEADLINE, until

HEDGED = {"hedge_seconds": 0.05}
B = stream(chunk("B"), chunk(finish="stop"))


def sets(event):
    """Return a step of an upstream that sets an event: the hedge has arrived."""

    async def step(_):
        event.set()

    return step


async def test_hedge_answers_if_the_first_backend_is_silent():
    async with fleet([[HANG]], [B], model=HEDGED) as site:
        answer = await site.chat(stream=True, headers={"x-gateway-debug": "1"})
        assert text_of(answer.text) == "B" and answer.headers["x-gateway-backend"] == "b1"
        await until(lambda: site.upstreams["b0"].connections == 0)


async def test_hedge_covers_responses_that_are_not_streamed():
    async with fleet([[HANG]], [whole(completion_body("B"))], model=HEDGED) as site:
        assert (await site.chat()).json()["choices"][0]["message"]["content"] == "B"


async def test_hedge_is_cancelled_if_the_first_backend_answers():
    hedged = asyncio.Event()
    async with fleet([[hedged, *HELLO]], [[sets(hedged), HANG]], model=HEDGED) as site:
        answer = await site.chat(stream=True)
        assert text_of(answer.text) == "Hi" and site.posts() == [1, 1]
        await until(lambda: site.upstreams["b1"].connections == 0)


async def test_hedge_is_not_sent_if_the_first_backend_is_quick():
    async with fleet([HELLO], [B], model={"hedge_seconds": 5}) as site:
        assert text_of((await site.chat(stream=True)).text) == "Hi" and site.posts() == [1, 0]


async def test_hedge_hides_the_failure_of_one_of_two_attempts():
    hedged = asyncio.Event()
    async with fleet([[hedged, CLOSE]], [[sets(hedged), silent(0.1), *B]], model=HEDGED) as site:
        assert text_of((await site.chat(stream=True)).text) == "B" and site.posts() == [1, 1]
    hedged = asyncio.Event()
    async with fleet([[hedged, silent(0.1), *HELLO]], [[sets(hedged), CLOSE]], model=HEDGED) as site:
        assert text_of((await site.chat(stream=True)).text) == "Hi" and site.posts() == [1, 1]


async def test_hedge_and_first_attempt_that_both_fail_are_retried():
    hedged = asyncio.Event()
    async with fleet([[hedged, silent(0.1), CLOSE]], [[sets(hedged), CLOSE]], [B], model=HEDGED) as site:
        assert text_of((await site.chat(stream=True)).text) == "B" and site.posts() == [1, 1, 1]


async def test_hedge_is_not_sent_beside_the_retry_of_a_turn():
    empty = stream(chunk(reasoning_content="Hm"), chunk(finish="stop"))
    tools = [{"type": "function", "function": {"name": "clock"}}]

    async def hedge_from_now_on(_):
        vars((await site.app.state.directory.get("m")).settings).update(HEDGED)

    late = {"hedge_seconds": DEADLINE}
    async with fleet([[hedge_from_now_on, *empty], [silent(0.2), *HELLO]], [B], model=late) as site:
        assert text_of((await site.chat(stream=True, tools=tools)).text) == "Hi" and site.posts() == [2, 0]


async def test_hedge_needs_a_second_backend():
    async with fleet([[silent(0.2), *HELLO]], model=HEDGED) as site:
        assert text_of((await site.chat(stream=True)).text) == "Hi" and site.posts() == [1]


async def test_hedge_skips_a_lossy_backend_in_strict_mode():
    kinds = [{"kind": "vllm"}, {"kind": "ollama"}]
    async with fleet([[silent(0.3), *HELLO]], [B], backends=kinds, model={**HEDGED, "strict": True}) as site:
        answer = await site.chat(stream=True, logit_bias={"5": 1})
        assert text_of(answer.text) == "Hi" and site.posts() == [1, 0]


async def test_hedge_sends_keepalives_while_both_backends_are_silent():
    times = {"grace_seconds": 0.05, "keepalive_seconds": 0.05}
    async with fleet([[HANG]], [[silent(0.3), *B]], model=HEDGED, stream=times) as site:
        answer = await site.chat(stream=True)
        assert text_of(answer.text) == "B" and ": " in answer.text


async def test_hedge_reports_only_warnings_of_the_backend_that_answers():
    kinds = [{"kind": "ollama"}, {"kind": "vllm"}]
    async with fleet([[HANG]], [whole(completion_body())], backends=kinds, model=HEDGED) as site:
        answer = await site.chat(logit_bias={"5": 1})
        assert answer.status_code == 200 and "x-gateway-warnings" not in answer.headers


async def test_hedge_and_first_attempt_end_if_the_client_leaves():
    async with fleet([[HANG]], [[head(), HANG]], model=HEDGED) as site:
        asking = asyncio.create_task(site.chat(stream=True))
        await until(lambda: site.posts() == [1, 1])
        asking.cancel()
        for upstream in site.upstreams.values():
            await until(upstream.gone.is_set)


@pytest.mark.parametrize("choices", [1, 2])
async def test_hedge_is_not_used_for_a_fan_out_of_choices(choices):
    kinds = [{"kind": "ollama"}, {"kind": "ollama"}]
    hedged, refused = asyncio.Event(), whole({"error": "x"}, 400)
    first = [hedged if choices == 1 else silent(0.2), *refused]
    async with fleet([first], [[sets(hedged), *refused]], backends=kinds, model=HEDGED) as site:
        assert problem(await site.chat(n=choices))[0] == 400
        assert site.posts() == ([1, 1] if choices == 1 else [2, 0])


class Speaks:
    """An upstream call that has data from a moment on."""

    def __init__(self, moment, data):
        self._moment, self._data, self.closed = moment, data, False

    async def ready(self, _=0, _ear=None):
        await self._moment.wait()
        return True

    def read(self):
        return self._data

    def close(self):
        self.closed = True


async def test_hedge_race_has_one_winner_if_both_backends_answer_at_once():
    moment, wins = asyncio.Event(), []
    calls = [Speaks(moment, b"a"), Speaks(moment, b"b")]

    async def won():
        wins.append(b"b")

    async def other():
        asyncio.get_running_loop().call_soon(moment.set)
        return SecondCall(calls[1], won)

    hedged = HedgedCall(calls[0], 0.01, other)
    assert await hedged.ready(5)
    data = hedged.read()
    assert wins == ([data] if data == b"b" else [])
    assert [call.closed for call in calls] == [data == b"b", data == b"a"]
    hedged.close()
    assert all(call.closed for call in calls)
