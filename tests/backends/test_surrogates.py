"""Test characters whose two JSON escapes a server cuts over two deltas, and halves that stay alone."""

import json

import pytest

from gateway.events import (
    Annotation,
    ExtraField,
    Finish,
    Logprob,
    Media,
    ReasoningDelta,
    RefusalDelta,
    TextDelta,
    ToolArgsDelta,
    ToolCallEnd,
    ToolCallStart,
)
from gateway.warnings import Warnings
from support.app import gateway
from support.pipeline import DONE, call, events_of, parser_settings, singly
from support.sampling import places
from support.sse import events, payloads, text_of
from support.upstream import END, head, whole

HIGH, LOW = "\ud83d", "\ude00"  # of 😀
OTHER = "\ud83c\udf27"  # 🌧, as two escapes
CONTENT, ARGUMENTS = "repaired:content", "repaired:tool_calls.function.arguments"
THOUGHT = "repaired:reasoning_content"


def sent(finish=None, *, index=0, logprobs=None, **delta):
    """Return a frame whose JSON has all but ASCII as escapes."""
    choice = {"index": index, "delta": delta, "finish_reason": finish, **({"logprobs": logprobs} if logprobs else {})}
    return b"data: " + json.dumps({"choices": [choice]}).encode() + b"\n\n"


def args(text):
    return sent(tool_calls=[call(0, None, None, text)])


CALL = sent(tool_calls=[call(0, "x", "g", "")])
STOP, CALLS = sent("stop"), sent("tool_calls")
COMPLETE = [ToolCallEnd(0, 0), Finish(0, "tool_calls")]
# What comes, its events, and what is reported
STREAMS = {
    "content": ([sent(content="a" + HIGH), sent(content=LOW + "b"), STOP], [TextDelta(0, "a😀b"), Finish(0, "stop")], []),
    "a delta for each half": ([sent(content=HIGH), sent(content=LOW), STOP], [TextDelta(0, "😀"), Finish(0, "stop")], []),
    "between plain deltas": (
        [*(sent(content=one) for one in ("a", "b", HIGH, LOW, "c", "d")), STOP], [TextDelta(0, "ab😀cd"), Finish(0, "stop")], [],
    ),
    "two in turn": ([sent(content=HIGH), sent(content=LOW + "\ud83c"), sent(content="\udf27"), STOP], [TextDelta(0, "😀🌧"), Finish(0, "stop")], []),
    "one that is whole": ([sent(content=OTHER + HIGH), sent(content=LOW + OTHER), STOP], [TextDelta(0, "🌧😀🌧"), Finish(0, "stop")], []),
    "an empty delta between": ([sent(content=HIGH), sent(content=""), sent(content=LOW), STOP], [TextDelta(0, "😀"), Finish(0, "stop")], []),
    "after its finish reason": ([sent("stop", content=HIGH), sent("stop", content=LOW)], [TextDelta(0, "😀"), Finish(0, "stop")], []),
    "two choices": (
        [sent(content=HIGH), sent(content="b", index=1), sent(content=LOW), STOP, sent("stop", index=1)],
        [TextDelta(1, "b"), TextDelta(0, "😀"), Finish(1, "stop"), Finish(0, "stop")], [],
    ),
    "reasoning": (
        [sent(reasoning_content="a" + HIGH), sent(reasoning_content=LOW), sent(content="b"), STOP],
        [ReasoningDelta(0, "a😀"), TextDelta(0, "b"), Finish(0, "stop")], [],
    ),
    "reasoning by another name": (
        [sent(reasoning=HIGH), sent(reasoning=LOW + "a"), sent(content="b"), STOP],
        [ReasoningDelta(0, "😀a"), TextDelta(0, "b"), Finish(0, "stop")], [],
    ),
    "reasoning in details": (
        [sent(reasoning_details=[{"text": HIGH}]), sent(reasoning_details=[{"text": LOW}]), sent(content="b"), STOP],
        [ReasoningDelta(0, "😀"), TextDelta(0, "b"), Finish(0, "stop")], [],
    ),
    "parts": (
        [sent(content=[{"type": "text", "text": HIGH}]), sent(content=[{"type": "text", "text": LOW}]), STOP],
        [TextDelta(0, "😀"), Finish(0, "stop")], [],
    ),
    "refusal": ([sent(refusal=HIGH), sent(refusal=LOW), STOP], [RefusalDelta(0, "😀"), Finish(0, "stop")], []),
    "arguments": (
        [CALL, args('{"a": "' + HIGH), args(LOW + '"}'), CALLS],
        [ToolCallStart(0, 0, "x", "g"), ToolArgsDelta(0, 0, '{"a": "😀"}'), *COMPLETE], [],
    ),
    "arguments around text": (
        [CALL, args('{"a": "' + HIGH), sent(content="b"), args(LOW + '"}'), CALLS],
        [ToolCallStart(0, 0, "x", "g"), ToolArgsDelta(0, 0, '{"a": "😀"}'), ToolCallEnd(0, 0), TextDelta(0, "b"), Finish(0, "tool_calls")], [],
    ),
    "arguments with escapes of their own": (
        [CALL, args('{"a": "\\ud83d'), args('\\ude00"}'), CALLS],
        [ToolCallStart(0, 0, "x", "g"), ToolArgsDelta(0, 0, '{"a": "\\ud83d\\ude00"}'), *COMPLETE], [],
    ),
    "a lone high half": ([sent(content=HIGH), sent(content="a"), STOP], [TextDelta(0, "\ufffda"), Finish(0, "stop")], [CONTENT]),
    "a lone low half": ([sent(content="a" + LOW), STOP], [TextDelta(0, "a\ufffd"), Finish(0, "stop")], [CONTENT]),
    "a lone high half amid a delta": ([sent(content=f"a{HIGH}b"), STOP], [TextDelta(0, "a\ufffdb"), Finish(0, "stop")], [CONTENT]),
    "halves in the wrong order": ([sent(content=LOW), sent(content=HIGH), STOP], [TextDelta(0, "\ufffd\ufffd"), Finish(0, "stop")], [CONTENT]),
    "two high halves": ([sent(content=HIGH), sent(content=HIGH), sent(content=LOW), STOP], [TextDelta(0, "\ufffd😀"), Finish(0, "stop")], [CONTENT]),
    "a lone half at the end": ([sent(content="a" + HIGH), STOP], [TextDelta(0, "a\ufffd"), Finish(0, "stop")], [CONTENT]),
    "a lone half of reasoning": (
        [sent(reasoning_content="a" + HIGH), sent(content="b"), STOP],
        [ReasoningDelta(0, "a\ufffd"), TextDelta(0, "b"), Finish(0, "stop")], [THOUGHT],
    ),
    "a lone half before a call": (
        [sent(content=HIGH), CALL, args("{}"), CALLS],
        [TextDelta(0, "\ufffd"), ToolCallStart(0, 0, "x", "g"), ToolArgsDelta(0, 0, "{}"), *COMPLETE], [CONTENT],
    ),
    "a lone half of arguments": (
        [CALL, args('{"a": "' + HIGH), args('"}'), CALLS],
        [ToolCallStart(0, 0, "x", "g"), ToolArgsDelta(0, 0, '{"a": "\ufffd"}'), *COMPLETE], [ARGUMENTS],
    ),
    "beside numbers that are none": (
        [sent(content=HIGH).replace(b'"finish_reason"', b'"x": NaN, "finish_reason"'), sent(content=LOW), STOP],
        [ExtraField(0, "x", b"-9999"), TextDelta(0, "😀"), Finish(0, "stop")], [],
    ),
    "characters that stand for halves": (
        [sent(content="\U0010f83d" + LOW), sent(content=HIGH), sent(content="\U0010fe00"), STOP],
        [TextDelta(0, "\U0010f83d\ufffd\ufffd\U0010fe00"), Finish(0, "stop")], [CONTENT],
    ),
    "members that are passed on": (
        [sent(content=HIGH, annotations=[{"text": HIGH}], images=[{"text": LOW}]), sent(content=LOW), STOP],
        [Annotation(0, b'{"text": "\xef\xbf\xbd"}'), Media(0, b'{"text": "\xef\xbf\xbd"}', "images"), TextDelta(0, "😀"), Finish(0, "stop")], [],
    ),
}  # fmt: skip


def plain(event):
    """Return an event whose JSON compares."""
    return (
        repr(event)
        if not hasattr(event, "json")
        else (type(event), bytes(event.json) if not isinstance(event.json, str) else event.json)
    )


def events_and_warnings(pieces, format="native"):
    ledger = Warnings()
    found = events_of(pieces, parser_settings(format, ledger=ledger), n=2)
    noted = [entry for entry in ledger.entries() if entry.startswith("repaired")]
    return [event for event in found if hasattr(event, "choice")], noted


@pytest.mark.parametrize("format", ["native", "hermes_json"])
@pytest.mark.parametrize("case", STREAMS)
def test_surrogate_pair_over_two_deltas_is_one_character_under_each_cut(case, format):
    frames, expected, noted = STREAMS[case]
    stream = b"".join([*frames, DONE])
    found = events_and_warnings([stream], format)
    assert ([*map(plain, found[0])], found[1]) == ([*map(plain, expected)], noted)
    assert found == events_and_warnings(singly(stream), format) == events_and_warnings([*frames, DONE], format)
    for at in places(len(stream), most=len(stream)):
        assert events_and_warnings([stream[:at], stream[at:]], format) == found


@pytest.mark.parametrize("case", STREAMS)
def test_surrogate_pair_without_an_end_of_the_stream_is_the_same(case):
    frames, expected, noted = STREAMS[case]
    found = events_and_warnings(frames)
    assert ([*map(plain, found[0])], found[1]) == ([*map(plain, expected)], noted)


def test_half_that_waits_is_told_if_the_stream_breaks_off():
    found, noted = events_and_warnings([sent(content="a" + HIGH)])
    assert found == [TextDelta(0, "a\ufffd")] and noted == [CONTENT]


def test_half_that_waits_keeps_the_log_probabilities_of_its_delta():
    chances = {"content": [{"token": HIGH, "logprob": -0.5, "bytes": [240, 159], "top_logprobs": []}]}
    frames = [sent(content=HIGH, logprobs=chances), sent(content=LOW), STOP, DONE]
    (text, *_), noted = events_and_warnings(frames)
    assert (text.text, noted) == ("😀", [])
    assert text.logprobs == (Logprob("\ufffd", -0.5, (240, 159)),)


# In the APIs, streamed and whole

BODIES = {
    "content": ({"content": f"a{HIGH}b"}, "content", "a\ufffdb", CONTENT),
    "the end of the content": ({"content": "a" + HIGH}, "content", "a\ufffd", CONTENT),
    "reasoning": ({"content": "b", "reasoning_content": "a" + LOW}, "reasoning_content", "a\ufffd", THOUGHT),
}


@pytest.mark.parametrize("case", BODIES)
async def test_lone_half_in_a_whole_response_is_a_warning(case):
    message, field, expected, noted = BODIES[case]
    body = json.dumps({"choices": [{"index": 0, "message": message, "finish_reason": "stop"}]}).encode()
    async with gateway(whole(body)) as site:
        chat, response = await site.chat(), await site.respond()
    assert chat.json()["choices"][0]["message"][field] == expected
    assert noted in chat.headers["x-gateway-warnings"] and noted in response.headers["x-gateway-warnings"]
    assert expected in response.text


@pytest.mark.parametrize("case", ["content", "reasoning", "two in turn", "a lone high half", "a lone half at the end"])
async def test_surrogate_pair_over_two_deltas_is_one_character_in_both_apis(case):
    frames, expected, noted = STREAMS[case]
    async with gateway([head(), *frames, DONE, END]) as site:
        chat, response = await site.chat(stream=True), await site.respond(stream=True)
    (text,) = [event.text for event in expected if type(event) is TextDelta]
    deltas = [event["delta"] for event in events(response.text) if event["type"] == "response.output_text.delta"]
    assert text_of(chat.text) == "".join(deltas) == text
    for answer in (chat, response):
        assert all(entry in answer.text or entry in answer.headers.get("x-gateway-warnings", "") for entry in noted)


@pytest.mark.parametrize(
    ("texts", "expected"), [(["a", HIGH, LOW, ""], "a😀"), (["a", HIGH, ""], "a\ufffd"), (["a", HIGH], "a\ufffd")]
)
async def test_surrogate_pair_in_lines_of_ollama_is_one_character(texts, expected):
    lines = [
        json.dumps({"message": {"content": text}, "done": at == len(texts)}).encode() + b"\n"
        for at, text in enumerate(texts, 1)
    ]
    script = [head(type="application/x-ndjson"), *lines, END]
    async with gateway(script, backend={"kind": "ollama"}) as site:
        assert text_of((await site.chat(stream=True)).text) == expected


async def test_surrogate_pair_in_completions_is_one_character():
    pieces = [
        json.dumps({"choices": [{"index": 0, "text": text, "finish_reason": end}]}).encode()
        for text, end in (("a" + HIGH, None), (LOW, None), (HIGH, "stop"))
    ]
    async with gateway([head(), *(b"data: " + piece + b"\n\n" for piece in pieces), DONE, END]) as site:
        answer = await site.client.post("/v1/completions", json={"model": "m", "prompt": "Hi", "stream": True})
    chunks = [one for one in payloads(answer.text) if one != "[DONE]"]
    assert "".join(choice["text"] for one in chunks for choice in one["choices"]) == "a😀\ufffd"
    assert CONTENT in answer.text
