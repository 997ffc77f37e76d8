"""Test `n` where a backend gives one choice per request: the gateway sends one request per choice and joins them."""

import asyncio
import gc
import json
from weakref import WeakSet

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Raw
from openai.types import CompletionUsage

from gateway.backends.openai.decoder import ChatDecoder
from gateway.errors import Problem
from gateway.events import ExtraField, Failure, Finish, TextDelta, Usage
from gateway.formats.parser import ParseContext
from gateway.pipeline.fan_out import FanOut
from gateway.pipeline.tool_calls import ParserSettings
from gateway.pipeline.upstream_reader import UpstreamReader
from gateway.server.relay.fan_out_call import FanOutCall
from gateway.warnings import Warnings
from support.app import HELLO_MESSAGES, gateway, listening, overheard, problem, streaming
from support.sse import payloads
from support.upstream import CLOSE, DONE, END, HANG, HELLO, chunk, completion_body, frame, head, stream, whole
from support.wait import DEADLINE, idle, until

ONE = {"backend": {"kind": "transformers"}, "model": {"format": "native"}}


def usage_frame(prompt, completion, **details):
    usage = {"prompt_tokens": prompt, "completion_tokens": completion, **details}
    return frame(choices=[], usage=usage)


def stream_of(*texts, usage=(7, 2)):
    return stream(*map(chunk, texts), chunk(finish="stop"), usage_frame(*usage))


def texts_and_ends(frames):
    """Return the text and the finish reason of each choice."""
    texts, ends = {}, {}
    for one in frames:
        for choice in one["choices"] if one != "[DONE]" else ():
            index = choice["index"]
            assert index not in ends, "nothing comes after the end of a choice"
            texts[index] = texts.get(index, "") + choice["delta"].get("content", "")
            if choice["finish_reason"]:
                ends[index] = choice["finish_reason"]
    return texts, ends


async def test_choice_of_a_stream_is_one_upstream_request():
    async with gateway(stream_of("A", "B"), stream_of("C"), stream_of("D", usage=(7, 5)), **ONE) as site:
        response = await site.chat(stream=True, n=3, stream_options={"include_usage": True})
        assert [post.json.get("n") for post in site.upstream.posts] == [None] * 3
    texts, ends = texts_and_ends(payloads(response.text))
    assert {*texts.values()} == {"AB", "C", "D"} and ends == dict.fromkeys(range(3), "stop")
    usage = CompletionUsage.model_validate(payloads(response.text)[-2]["usage"])
    assert (usage.prompt_tokens, usage.completion_tokens, usage.total_tokens) == (7, 9, 16)
    assert response.headers["x-gateway-warnings"] == "emulated:n" and response.text.endswith("data: [DONE]\n\n")


async def test_choice_of_a_whole_response_is_one_upstream_request():
    async with gateway(*(whole(completion_body(text)) for text in "ABCDEF"), **ONE) as site:
        response = await site.chat(n=6)
        assert len(site.upstream.posts) == 6
    choices = response.json()["choices"]
    assert [choice["index"] for choice in choices] == [*range(6)]
    assert {choice["message"]["content"] for choice in choices} == {*"ABCDEF"}
    assert response.headers["x-gateway-warnings"].startswith("emulated:n")


@pytest.mark.parametrize("kind", ["lmstudio", "transformers"])
async def test_choice_of_a_text_completion_is_one_upstream_request(kind):
    one = whole({"choices": [{"index": 0, "text": "A", "finish_reason": "stop"}]})
    async with gateway(one, backend={"kind": kind}) as site:
        response = await site.client.post("/v1/completions", json={"model": "m", "prompt": "B", "n": 2, "echo": True})
        assert len(site.upstream.posts) == 2
    assert [(choice["index"], choice["text"]) for choice in response.json()["choices"]] == [(0, "BA"), (1, "BA")]


@pytest.mark.parametrize("kind", ["vllm", "llamacpp", "openai"])
async def test_choice_count_is_sent_to_a_backend_that_supports_it(kind):
    async with gateway(stream(chunk("A"), chunk("B", index=1), chunk(finish="stop")), backend={"kind": kind}) as site:
        await site.chat(stream=True, n=2)
        assert [post.json["n"] for post in site.upstream.posts] == [2]


async def test_choice_has_a_seed_of_its_own():
    async with gateway(HELLO, **ONE) as site:
        await site.chat(stream=True, n=3, seed=7)
        assert sorted(post.json["seed"] for post in site.upstream.posts) == [7, 8, 9]


async def test_choice_requests_are_at_most_four_at_a_time():
    gate = asyncio.Event()
    async with listening([head(), chunk("A"), gate, chunk(finish="stop"), DONE, END], **ONE) as site:
        task = asyncio.create_task(site.chat(stream=True, n=9))
        await until(lambda: len(site.upstream.posts), 4)
        await idle(0.1)
        assert len(site.upstream.posts) == 4
        gate.set()
        texts, _ = texts_and_ends(payloads((await task).text))
    assert texts == dict.fromkeys(range(9), "A") and len(site.upstream.posts) == 9


async def test_choice_keeps_its_own_tool_calls():
    """The filter for parallel tool calls keeps the first one of each choice."""
    calls = [
        {"index": i, "id": f"c{i}", "type": "function", "function": {"name": "f", "arguments": "{}"}} for i in range(2)
    ]
    tools = [{"type": "function", "function": {"name": "f"}}]
    async with gateway(whole(completion_body(None, tool_calls=calls)), **ONE) as site:
        response = await site.chat(n=2, tools=tools, parallel_tool_calls=False)
    ids = [[call["id"] for call in choice["message"]["tool_calls"]] for choice in response.json()["choices"]]
    assert ids == [["c0"], ["c0"]]


TWO_CHOICES = json.dumps({"model": "m", "messages": HELLO_MESSAGES, "stream": True, "n": 2}).encode()


def set_at(event, text):
    """Return a `take` that sets the event when this text is sent to the client."""

    async def take(message):
        if text in message.get("body", b""):
            event.set()

    return take


BUSY = whole({"error": "busy"}, status=503, retry_after="7")


@pytest.mark.parametrize("streamed", [False, True])
async def test_choice_that_is_refused_fails_the_whole_response(streamed):
    async with gateway(BUSY, **ONE) as site:
        response = await site.chat(stream=streamed, n=2)
    assert (
        problem(response)[:3] == (503, "server_error", "server_is_overloaded")
        and response.headers["retry-after"] == "7"
    )


async def test_choice_that_fails_later_ends_the_response():
    later = asyncio.Event()
    async with gateway(stream(chunk("A")), [head(), later, chunk("B"), CLOSE], **ONE) as site:
        response = await overheard(site, set_at(later, b'"A"'), TWO_CHOICES)
    *frames, last = payloads(response.text)
    assert last["error"]["code"] == "upstream_lost" and "[DONE]" not in response.text
    assert {*texts_and_ends(frames)[0].values()} == {"A", "B"}


@pytest.mark.parametrize("script", [stream_of("A"), [head(), chunk("A"), CLOSE]])
async def test_fan_out_leaves_no_reference_cycle(script, monkeypatch):
    made, alive, init = [], WeakSet(), FanOutCall.__init__

    def watched(self, *arguments):
        made.append(id(self))
        alive.add(self)
        init(self, *arguments)

    monkeypatch.setattr(FanOutCall, "__init__", watched)
    async with listening(script, **ONE) as site:
        gc.disable()
        try:
            await site.chat(stream=True, n=2)
            await until(lambda: len(alive), 0)
        finally:
            gc.enable()
    assert made


async def test_client_that_leaves_closes_all_upstream_calls():
    async with listening([head(), chunk("A"), HANG], stream={"keepalive_seconds": 600}, **ONE) as site:
        async with streaming(site, n=3) as response:
            await anext(response.aiter_bytes())
        async with asyncio.timeout(DEADLINE):
            await site.upstream.gone.wait()


async def test_keepalive_is_sent_while_all_choices_are_silent():
    kept_alive = asyncio.Event()
    slow = [head(), chunk("A"), kept_alive, chunk(finish="stop"), DONE, END]
    async with gateway(slow, stream={"keepalive_seconds": 0.05}, **ONE) as site:
        response = await overheard(site, set_at(kept_alive, b": keep-alive"), TWO_CHOICES)
    assert ": keep-alive" in response.text and texts_and_ends(payloads(response.text))[1] == {0: "stop", 1: "stop"}


class ScriptedCall:
    """An upstream call that returns its pieces when `go` is set, and keeps how it was judged."""

    def __init__(self, *pieces):
        self._pieces, self.judged, self.go = [*pieces], [], asyncio.Event()

    async def ready(self, _=0):
        await self.go.wait()
        return True

    def read(self):
        self.go.clear()
        return self._pieces.pop(0)

    def report_outcome(self, problem):
        self.judged.append(problem)

    def close(self):
        pass


async def read_after(call, one):
    """Let one call go on, and return what is read of all calls."""
    one.go.set()
    assert await call.ready(DEADLINE)
    return call.read()


async def test_upstream_call_is_judged_well_at_its_first_chunk():
    calls = [ScriptedCall(chunk(role="assistant"), chunk("A")), ScriptedCall(chunk("B")), ScriptedCall(chunk("C"))]
    waiting = iter(calls)
    call = FanOutCall(lambda *_: next(waiting), [b""] * 3, lambda _: None, fan(3))
    await read_after(call, calls[0])
    assert await read_after(call, calls[1]) == chunk("B")
    call.report_outcome(None)
    assert [one.judged for one in calls] == [[], [None], []]
    await read_after(call, calls[0])
    assert [one.judged for one in calls] == [[None], [None], []]
    call.close()


async def test_upstream_call_is_judged_by_its_own_end_or_failure():
    calls = [ScriptedCall(chunk("A"), chunk(finish="stop"), b""), ScriptedCall(b""), ScriptedCall(chunk("C"))]
    waiting, several = iter(calls), fan(3)
    call = FanOutCall(lambda *_: next(waiting), [b""] * 3, lambda _: None, several)
    for _ in range(2):
        several.feed(await read_after(call, calls[0]))
    calls[0].go.set()

    async def is_judged():
        assert not await call.ready(0.01)
        return bool(calls[0].judged)

    await until(is_judged)
    assert await read_after(call, calls[1]) == b""
    problems = [event.problem for event in several.feed(b"") if isinstance(event, Failure)]
    call.report_outcome(*problems)
    assert [one.judged for one in calls] == [[None], problems, []] and problems[0].code == "upstream_error"
    call.close()


def fan(n):
    """Return a FanOut of so many upstreams with native tool calls."""
    ledger = Warnings()
    parser_settings = ParserSettings(None, ParseContext({}), str, ledger)
    members = [
        UpstreamReader(ChatDecoder(ledger, 1, {"prompt_token_ids"}), parser_settings, lambda: 4) for _ in range(n)
    ]
    for member in members:
        member.set_content_type("text/event-stream")
    return FanOut(members)


@given(st.lists(st.lists(st.text(min_size=1, max_size=5), max_size=4), min_size=1, max_size=5), st.randoms())
def test_choice_is_the_same_in_any_order_of_chunks(answers, random):
    waiting = {i: [*map(chunk, texts), chunk(finish="stop"), usage_frame(7, i)] for i, texts in enumerate(answers)}
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
        assert "".join(event.text for event in own if isinstance(event, TextDelta)) == "".join(texts)
        assert own[-1] == Finish(i, "stop") and sum(isinstance(event, Finish) for event in own) == 1
    usages = [event for event in events if isinstance(event, Usage)]
    assert usages[-1] == Usage(7, sum(range(len(answers))))


def test_extra_field_of_the_whole_response_has_no_choice():
    several = fan(2)
    several.current = 1
    extra = ExtraField(None, "prompt_token_ids", Raw(b"[1]"), asked=True)
    assert several.feed(frame(choices=[], prompt_token_ids=[1])) == [extra]


def test_failure_ends_all_choices():
    several, lost = fan(3), Problem(502, "lost")
    assert several.feed(chunk("A")) == [TextDelta(0, "A")]
    several.current = 2
    assert several.fail(lost) == [Failure(lost)]
    several.current = 1
    assert several.feed(chunk("B")) == [] and several.close() == []
