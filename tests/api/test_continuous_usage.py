"""Test `continuous_usage_stats`: each chunk has its usage, whether the backend counts in each chunk or not."""

import json

import pytest
from msgspec import Raw

from api.test_completions import OSLO, piece
from gateway.events import (
    ExtraField,
    Failure,
    Finish,
    Media,
    ReasoningDelta,
    TextDelta,
    ToolArgsDelta,
    ToolCallStart,
    ToolInputDelta,
    Usage,
)
from gateway.transforms.continuous_usage import Continuous
from gateway.warnings import Warnings
from support.app import gateway
from support.sampling import places
from support.sse import comments, payloads
from support.upstream import COUNTS, DONE, END, call, chunk, frame, head, stream

OPTIONS = {"include_usage": True, "continuous_usage_stats": True}
LAST = chunk(finish="stop")
TOTAL = frame(choices=[], usage=COUNTS)
TOOL = {"type": "function", "function": {"name": "get_weather", "parameters": {"type": "object"}}}
# By what the backend sends: its stream, and the tokens of each chunk of the response
UNCOUNTED = {
    "text": ([chunk("Oslo"), chunk(" is "), chunk("cold in winter"), LAST], [1, 1, 2, 6, 6, 6]),
    "thoughts": ([chunk(reasoning_content="I look"), chunk(reasoning_content=" up"), chunk("Hi"), LAST], [2, 2, 3, 3, 3, 3]),
    "calls": ([chunk(tool_calls=call("get_weather", "", id="c")), chunk(tool_calls=call(None, '{"city":"Bergen"}')), LAST], [0, 0, 5, 5, 5]),
    "counted at its end": ([chunk("Oslo is cold"), chunk(" in winter"), LAST, TOTAL], [3, 3, 6, 2, 2]),
    "prompt counted first": ([frame(choices=[], usage={"prompt_tokens": 7}), chunk("Oslo"), chunk(" is cold"), LAST], [1, 1, 3, 3, 3]),
}  # fmt: skip


async def usages(site, **fields):
    """Return the response, and the usage of each of its chunks."""
    body = {"stream": True, "stream_options": OPTIONS, **fields}
    answer = await site.client.post(
        "/v1/chat/completions", json={"model": "m", "messages": [{"role": "user", "content": "Hello"}], **body}
    )
    return answer, [one["usage"] for one in payloads(answer.text) if one != "[DONE]"]


def warnings_of(answer):
    return [answer.headers.get("x-gateway-warnings", ""), *comments(answer.text)]


@pytest.mark.parametrize("sent", UNCOUNTED)
async def test_usage_of_each_chunk_is_estimated_if_the_backend_does_not_count_it(sent):
    frames, expected = UNCOUNTED[sent]
    async with gateway(stream(*frames)) as site:
        answer, found = await usages(site, tools=[TOOL])
    assert [usage["completion_tokens"] for usage in found] == expected
    assert all(usage["prompt_tokens"] > 0 for usage in found)
    assert any("estimated:usage" in one for one in warnings_of(answer))


async def test_usage_at_the_end_is_the_one_that_the_backend_has_counted():
    async with gateway(stream(*UNCOUNTED["counted at its end"][0])) as site:
        _, found = await usages(site)
    assert (found[-1]["completion_tokens"], found[-1]["prompt_tokens"]) == (2, 7)


async def test_usage_that_the_backend_counts_in_each_chunk_is_not_estimated():
    counted = [
        json.loads(chunk("Oslo and Bergen")[6:]) | {"usage": {"prompt_tokens": 7, "completion_tokens": 3}},
        json.loads(LAST[6:]) | {"usage": {"prompt_tokens": 7, "completion_tokens": 4}},
    ]
    async with gateway(stream(*(frame(**one) for one in counted))) as site:
        answer, found = await usages(site)
    assert [usage["completion_tokens"] for usage in found] == [3, 3, 4, 4]
    assert "estimated" not in "".join(warnings_of(answer))


async def test_usage_of_chunks_is_not_estimated_for_other_clients():
    async with gateway(stream(chunk("Oslo"), LAST, TOTAL)) as site:
        answer, found = await usages(site, stream_options={"include_usage": True})
    assert found[:-1] == [None] * (len(found) - 1)
    assert "estimated" not in "".join(warnings_of(answer))


async def test_usage_of_each_chunk_is_the_same_under_each_cut():
    whole = b"".join([*UNCOUNTED["thoughts"][0], TOTAL, DONE])
    expected = None
    for at in places(len(whole)):
        async with gateway([head(), whole[:at], whole[at:], END]) as site:
            _, found = await usages(site)
        expected = expected or found
        assert found == expected


async def test_usage_of_each_completion_chunk_is_estimated():
    async with gateway(stream(piece(" Os"), piece("lo in winter"), piece(finish="stop"))) as site:
        answer = await site.client.post(
            "/v1/completions", json={"model": "m", "prompt": "Hi", "stream": True, "stream_options": OPTIONS}
        )
    found = [one["usage"] for one in payloads(answer.text) if one != "[DONE]"]
    assert [usage["completion_tokens"] for usage in found] == [1, 4, 4, 4]
    assert any("estimated:usage" in one for one in warnings_of(answer))


async def test_usage_of_each_completion_chunk_ends_with_the_count_of_the_backend():
    async with gateway(OSLO) as site:
        answer = await site.client.post(
            "/v1/completions", json={"model": "m", "prompt": "Hi", "stream": True, "stream_options": OPTIONS}
        )
    found = [one["usage"]["completion_tokens"] for one in payloads(answer.text) if one != "[DONE]"]
    assert found == [1, 2, 2, 2]


async def test_usage_of_each_chunk_is_estimated_for_each_choice_of_a_backend_that_gives_one_at_a_time():
    async with gateway(stream(chunk("Oslo"), LAST), backend={"kind": "lmstudio"}) as site:
        _, found = await usages(site, n=2)
    assert None not in found and [usage["completion_tokens"] for usage in found][-1] == 2


def test_estimate_counts_the_text_of_each_event():
    events = [
        ReasoningDelta(0, "abcd"), ToolCallStart(0, 0, "c", "name"), ToolArgsDelta(0, 0, "{}{}"), ToolInputDelta(0, 0, "four"),
        Media(0, Raw(b"{}")), TextDelta(0, "text"), Finish(0, "stop"),
    ]  # fmt: skip
    counting = Continuous(lambda: 9, lambda characters: characters // 4, Warnings())
    counts = [usage for event in events for usage in counting.feed(event) if isinstance(usage, Usage)]
    assert [usage.completion for usage in counts] == [1, 1, 2, 3, 3, 4, 4] and {usage.prompt for usage in counts} == {9}
    assert [*counting.close()] == []


@pytest.mark.parametrize(
    "event", [Failure(None), ExtraField(None, "provider", Raw(b"1")), ExtraField(0, "citations", Raw(b"[]"))]
)
def test_estimate_leaves_events_without_a_chunk_alone(event):
    ledger = Warnings()
    assert Continuous(lambda: 9, lambda characters: characters, ledger).feed(event) == (event,)
    assert ledger.entries() == []


def test_estimate_stands_before_a_member_that_the_client_asked_for():
    progress = ExtraField(None, "prompt_progress", Raw(b"1"), asked=True)
    assert Continuous(lambda: 9, lambda characters: characters, Warnings()).feed(progress) == (Usage(9, 0), progress)
