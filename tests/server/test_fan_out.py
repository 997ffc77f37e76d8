"""`n` where a server gives one choice at a time: a request for each, and one answer of them all."""

import asyncio
import gc

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Raw
from openai.types import CompletionUsage

from gateway.backends.openai.decode import Decoder
from gateway.calls import Setting
from gateway.errors import Problem
from gateway.events import Extra, Failure, Finish, Text, Usage
from gateway.fan import Fan
from gateway.formats.format import Context
from gateway.ledger import Ledger
from gateway.server.fanning import FanCall
from gateway.upstream import Upstream
from support.app import gateway, listening, problem
from support.sse import payloads
from support.upstream import CLOSE, DONE, END, HANG, HELLO, SOON, chunk, frame, head, said, silent, stream, whole
from support.wait import until

ONE = {"backend": {"kind": "transformers"}, "model": {"format": "native"}}


def counted(prompt, completion, **details):
    usage = {"prompt_tokens": prompt, "completion_tokens": completion, **details}
    return frame(choices=[], usage=usage)


def answer(*texts, usage=(7, 2)):
    return stream(*map(chunk, texts), chunk(finish="stop"), counted(*usage))


def folded(frames):
    """The text and the finish reasons of each choice."""
    texts, ends = {}, {}
    for one in frames:
        for choice in one["choices"] if one != "[DONE]" else ():
            index = choice["index"]
            assert index not in ends, "nothing comes after the end of a choice"
            texts[index] = texts.get(index, "") + choice["delta"].get("content", "")
            if choice["finish_reason"]:
                ends[index] = choice["finish_reason"]
    return texts, ends


async def test_each_choice_of_a_stream_is_a_request():
    async with gateway(answer("A", "B"), answer("C"), answer("D", usage=(7, 5)), **ONE) as site:
        told = await site.chat(stream=True, n=3, stream_options={"include_usage": True})
        assert [post.json.get("n") for post in site.upstream.posts] == [None] * 3
    texts, ends = folded(payloads(told.text))
    assert {*texts.values()} == {"AB", "C", "D"} and ends == dict.fromkeys(range(3), "stop")
    usage = CompletionUsage.model_validate(payloads(told.text)[-2]["usage"])
    assert (usage.prompt_tokens, usage.completion_tokens, usage.total_tokens) == (7, 9, 16)
    assert told.headers["x-gateway-warnings"] == "emulated:n" and told.text.endswith("data: [DONE]\n\n")


async def test_each_choice_of_a_whole_answer_is_a_request():
    async with gateway(*(whole(said(text)) for text in "ABCDEF"), **ONE) as site:
        told = await site.chat(n=6)
        assert len(site.upstream.posts) == 6
    choices = told.json()["choices"]
    assert [choice["index"] for choice in choices] == [*range(6)]
    assert {choice["message"]["content"] for choice in choices} == {*"ABCDEF"}
    assert told.headers["x-gateway-warnings"].startswith("emulated:n")


@pytest.mark.parametrize("kind", ["lmstudio", "transformers"])
async def test_choices_of_a_text_likewise(kind):
    one = whole({"choices": [{"index": 0, "text": "A", "finish_reason": "stop"}]})
    async with gateway(one, backend={"kind": kind}) as site:
        told = await site.client.post("/v1/completions", json={"model": "m", "prompt": "B", "n": 2, "echo": True})
        assert len(site.upstream.posts) == 2
    assert [(choice["index"], choice["text"]) for choice in told.json()["choices"]] == [(0, "BA"), (1, "BA")]


@pytest.mark.parametrize("kind", ["vllm", "llamacpp", "openai"])
async def test_a_server_that_gives_several_is_asked_once(kind):
    async with gateway(stream(chunk("A"), chunk("B", index=1), chunk(finish="stop")), backend={"kind": kind}) as site:
        await site.chat(stream=True, n=2)
        assert [post.json["n"] for post in site.upstream.posts] == [2]


async def test_with_a_seed_each_has_its_own():
    async with gateway(HELLO, **ONE) as site:
        await site.chat(stream=True, n=3, seed=7)
        assert sorted(post.json["seed"] for post in site.upstream.posts) == [7, 8, 9]


async def test_at_most_four_are_asked_at_a_time():
    gate = asyncio.Event()
    async with listening([head(), chunk("A"), gate, chunk(finish="stop"), DONE, END], **ONE) as site:
        asking = asyncio.create_task(site.chat(stream=True, n=9))
        await until(lambda: len(site.upstream.posts), 4)
        await asyncio.sleep(0.1)
        assert len(site.upstream.posts) == 4
        gate.set()
        texts, _ = folded(payloads((await asking).text))
    assert texts == dict.fromkeys(range(9), "A") and len(site.upstream.posts) == 9


async def test_calls_of_each_choice_are_its_own():
    """A filter sees all choices: of each the first call is kept."""
    calls = [
        {"index": i, "id": f"c{i}", "type": "function", "function": {"name": "f", "arguments": "{}"}} for i in range(2)
    ]
    tools = [{"type": "function", "function": {"name": "f"}}]
    async with gateway(whole(said(None, tool_calls=calls)), **ONE) as site:
        told = await site.chat(n=2, tools=tools, parallel_tool_calls=False)
    ids = [[call["id"] for call in choice["message"]["tool_calls"]] for choice in told.json()["choices"]]
    assert ids == [["c0"], ["c0"]]


BUSY = whole({"error": "busy"}, status=503, retry_after="7")


@pytest.mark.parametrize("streamed", [False, True])
async def test_where_one_is_refused_the_whole_is(streamed):
    async with gateway(BUSY, **ONE) as site:
        told = await site.chat(stream=streamed, n=2)
    assert problem(told)[:3] == (503, "server_error", "server_is_overloaded") and told.headers["retry-after"] == "7"


async def test_where_one_fails_later_the_answer_does():
    async with gateway(stream(chunk("A")), [head(), silent(0.2), chunk("B"), CLOSE], **ONE) as site:
        told = await site.chat(stream=True, n=2)
    *frames, last = payloads(told.text)
    assert last["error"]["code"] == "upstream_lost" and "[DONE]" not in told.text
    assert {*folded(frames)[0].values()} == {"A", "B"}


@pytest.mark.parametrize("script", [answer("A"), [head(), chunk("A"), CLOSE]])
async def test_nothing_is_left_to_the_collector(script):
    async with listening(script, **ONE) as site:
        gc.collect()
        gc.disable()
        try:
            await site.chat(stream=True, n=2)
            await until(lambda: [one for one in gc.get_objects() if isinstance(one, FanCall)], [])
        finally:
            gc.enable()


async def test_a_client_that_leaves_leaves_all_of_them():
    async with listening([head(), chunk("A"), HANG], **ONE) as site:
        asked = {"model": "m", "messages": [{"role": "user", "content": "q"}], "stream": True, "n": 3}
        async with site.client.stream("POST", "/v1/chat/completions", json=asked) as told:
            await anext(told.aiter_bytes())
        async with asyncio.timeout(SOON):
            await site.upstream.gone.wait()


async def test_in_its_silence_it_is_kept_alive():
    slow = [head(), chunk("A"), silent(0.3), chunk(finish="stop"), DONE, END]
    async with gateway(slow, stream={"keepalive_seconds": 0.05}, **ONE) as site:
        told = await site.chat(stream=True, n=2)
    assert ": keep-alive" in told.text and folded(payloads(told.text))[1] == {0: "stop", 1: "stop"}


class Speaks:
    """A call that says its pieces when it may `go` on, and remembers how it was judged."""

    def __init__(self, *pieces):
        self._pieces, self.judged, self.go = [*pieces], [], asyncio.Event()

    async def ready(self, _=0):
        await self.go.wait()
        return True

    def read(self):
        self.go.clear()
        return self._pieces.pop(0)

    def judge(self, problem):
        self.judged.append(problem)

    def close(self):
        pass


async def spoken(call, one):
    """What is read of all calls once this one may go on."""
    one.go.set()
    assert await call.ready(SOON)
    return call.read()


async def test_once_one_has_begun_the_others_have_when_they_speak():
    calls = [Speaks(chunk(role="assistant"), chunk("A")), Speaks(chunk("B")), Speaks(chunk("C"))]
    waiting = iter(calls)
    call = FanCall(lambda *_: next(waiting), [b""] * 3, lambda _: None, fan(3))
    await spoken(call, calls[0])
    assert await spoken(call, calls[1]) == chunk("B")
    call.judge(None)
    assert [one.judged for one in calls] == [[], [None], []]
    await spoken(call, calls[0])
    assert [one.judged for one in calls] == [[None], [None], []]
    call.close()


async def test_one_that_ends_is_judged_by_itself_and_the_failure_of_one_is_the_end():
    calls = [Speaks(chunk("A"), chunk(finish="stop"), b""), Speaks(b""), Speaks(chunk("C"))]
    waiting, several = iter(calls), fan(3)
    call = FanCall(lambda *_: next(waiting), [b""] * 3, lambda _: None, several)
    for _ in range(2):
        several.feed(await spoken(call, calls[0]))
    calls[0].go.set()
    async with asyncio.timeout(SOON):
        while not calls[0].judged:
            assert not await call.ready(0.01)
    assert await spoken(call, calls[1]) == b""
    problems = [event.problem for event in several.feed(b"") if isinstance(event, Failure)]
    call.judge(*problems)
    assert [one.judged for one in calls] == [[None], problems, []] and problems[0].code == "upstream_lost"
    call.close()


def fan(n):
    """One of native answers, and what its ledger says."""
    ledger = Ledger()
    setting = Setting(None, Context({}), str, ledger)
    members = [Upstream(Decoder(ledger, 1, {"prompt_token_ids"}), setting, lambda: 4) for _ in range(n)]
    for member in members:
        member.answered("text/event-stream")
    return Fan(members)


@given(st.lists(st.lists(st.text(min_size=1, max_size=5), max_size=4), min_size=1, max_size=5), st.randoms())
def test_in_whatever_order_they_come_each_is_as_alone(answers, random):
    waiting = {i: [*map(chunk, texts), chunk(finish="stop"), counted(7, i)] for i, texts in enumerate(answers)}
    several, events = fan(len(answers)), []
    while waiting:
        several.current = random.choice([*waiting])
        if pieces := waiting[several.current]:
            events += several.feed(pieces.pop(0))
        else:
            several.end()
            del waiting[several.current]
    events += several.feed(b"")
    assert several.close() == []
    for i, texts in enumerate(answers):
        own = [event for event in events if getattr(event, "choice", None) == i]
        assert "".join(event.text for event in own if isinstance(event, Text)) == "".join(texts)
        assert own[-1] == Finish(i, "stop") and sum(isinstance(event, Finish) for event in own) == 1
    usages = [event for event in events if isinstance(event, Usage)]
    assert usages[-1] == Usage(7, sum(range(len(answers))))


def test_what_is_about_the_whole_is_of_no_choice():
    several = fan(2)
    several.current = 1
    extra = Extra(None, "prompt_token_ids", Raw(b"[1]"))
    assert several.feed(frame(choices=[], prompt_token_ids=[1])) == [extra]


def test_after_a_failure_nothing_comes():
    several, lost = fan(3), Problem(502, "lost")
    assert several.feed(chunk("A")) == [Text(0, "A")]
    several.current = 2
    assert several.fail(lost) == [Failure(lost)]
    several.current = 1
    assert several.feed(chunk("B")) == [] and several.close() == []
