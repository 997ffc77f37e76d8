"""A second backend is asked where the first takes its time."""

import asyncio

import pytest

from gateway.server.hedging import Hedged, Second
from support.app import problem
from support.backends import fleet
from support.sse import text_of
from support.upstream import CLOSE, HANG, HELLO, chunk, head, said, silent, stream, whole
from support.wait import until

HEDGED = {"hedge_seconds": 0.05}
B = stream(chunk("B"), chunk(finish="stop"))


async def test_the_second_answers_where_the_first_is_silent():
    async with fleet([[HANG]], [B], model=HEDGED) as site:
        answer = await site.chat(stream=True, headers={"x-gateway-debug": "1"})
        assert text_of(answer.text) == "B" and answer.headers["x-gateway-backend"] == "b1"
        await asyncio.wait_for(site.upstreams["b0"].gone.wait(), 2)


async def test_a_whole_answer_is_hedged_as_well():
    async with fleet([[HANG]], [whole(said("B"))], model=HEDGED) as site:
        assert (await site.chat()).json()["choices"][0]["message"]["content"] == "B"


async def test_the_first_answers_if_it_is_faster_after_all():
    async with fleet([[silent(0.3), *HELLO]], [[HANG]], model=HEDGED) as site:
        answer = await site.chat(stream=True)
        assert text_of(answer.text) == "Hi" and site.posts() == [1, 1]
        await asyncio.wait_for(site.upstreams["b1"].gone.wait(), 2)


async def test_nobody_else_is_asked_where_the_first_is_quick():
    async with fleet([HELLO], [B], model={"hedge_seconds": 5}) as site:
        assert text_of((await site.chat(stream=True)).text) == "Hi" and site.posts() == [1, 0]


async def test_the_failure_of_one_is_no_matter_as_long_as_there_is_the_other():
    async with fleet([[silent(0.2), CLOSE]], [[silent(0.4), *B]], model=HEDGED) as site:
        assert text_of((await site.chat(stream=True)).text) == "B" and site.posts() == [1, 1]
    async with fleet([[silent(0.4), *HELLO]], [[CLOSE]], model=HEDGED) as site:
        assert text_of((await site.chat(stream=True)).text) == "Hi" and site.posts() == [1, 1]


async def test_where_both_fail_a_third_is_asked():
    async with fleet([[silent(0.2), CLOSE]], [[CLOSE]], [B], model=HEDGED) as site:
        assert text_of((await site.chat(stream=True)).text) == "B" and site.posts() == [1, 1, 1]


async def test_with_one_backend_there_is_nobody_else_to_ask():
    async with fleet([[silent(0.2), *HELLO]], model=HEDGED) as site:
        assert text_of((await site.chat(stream=True)).text) == "Hi" and site.posts() == [1]


async def test_who_could_not_take_the_request_is_not_asked():
    kinds = [{"kind": "vllm"}, {"kind": "ollama"}]
    async with fleet([[silent(0.3), *HELLO]], [B], backends=kinds, model={**HEDGED, "strict": True}) as site:
        answer = await site.chat(stream=True, logit_bias={"5": 1})
        assert text_of(answer.text) == "Hi" and site.posts() == [1, 0]


async def test_it_is_kept_alive_meanwhile():
    times = {"grace_seconds": 0.05, "keepalive_seconds": 0.05}
    async with fleet([[HANG]], [[silent(0.3), *B]], model=HEDGED, stream=times) as site:
        answer = await site.chat(stream=True)
        assert text_of(answer.text) == "B" and ": " in answer.text


async def test_what_is_noted_is_of_the_one_that_answers():
    kinds = [{"kind": "ollama"}, {"kind": "vllm"}]
    async with fleet([[HANG]], [whole(said())], backends=kinds, model=HEDGED) as site:
        answer = await site.chat(logit_bias={"5": 1})
        assert answer.status_code == 200 and "x-gateway-warnings" not in answer.headers


async def test_the_client_that_leaves_ends_both():
    async with fleet([[HANG]], [[head(), HANG]], model=HEDGED) as site:
        asking = asyncio.create_task(site.chat(stream=True))
        await until(lambda: site.posts() == [1, 1])
        asking.cancel()
        for upstream in site.upstreams.values():
            await asyncio.wait_for(upstream.gone.wait(), 2)


@pytest.mark.parametrize("choices", [1, 2])
async def test_choices_one_at_a_time_are_not_hedged(choices):
    kinds = [{"kind": "ollama"}, {"kind": "ollama"}]
    async with fleet(
        [[silent(0.2), *whole({"error": "x"}, 400)]], [whole({"error": "x"}, 400)], backends=kinds, model=HEDGED
    ) as site:
        assert problem(await site.chat(n=choices))[0] == 400
        assert site.posts() == ([1, 1] if choices == 1 else [2, 0])


class Speaks:
    """A call that has something to say from a moment on."""

    def __init__(self, moment, said):
        self._moment, self._said, self.closed = moment, said, False

    async def ready(self, _=0, _ear=None):
        await self._moment.wait()
        return True

    def read(self):
        return self._said

    def close(self):
        self.closed = True


async def test_of_two_who_speak_at_the_same_moment_one_gives_the_answer():
    moment, told = asyncio.Event(), []
    calls = [Speaks(moment, b"a"), Speaks(moment, b"b")]

    async def won():
        told.append(b"b")

    async def other():
        asyncio.get_running_loop().call_soon(moment.set)
        return Second(calls[1], won)

    hedged = Hedged(calls[0], 0.01, other)
    assert await hedged.ready(5)
    said = hedged.read()
    assert told == ([said] if said == b"b" else [])
    assert [call.closed for call in calls] == [said == b"b", said == b"a"]
    hedged.close()
    assert all(call.closed for call in calls)
