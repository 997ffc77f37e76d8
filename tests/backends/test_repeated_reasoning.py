"""Test a thought that a server sends in its field for reasoning, and again between tags in the content: it is told once."""

import json

import pytest

from gateway.events import Finish, Logprob, ReasoningDelta, TextDelta, ToolArgsDelta, ToolCallEnd, ToolCallStart
from gateway.warnings import Warnings
from support.app import gateway
from support.pipeline import DONE, call, chunk, events_of, parser_settings, singly
from support.sse import events, text_of
from support.upstream import END, head, whole

ONCE = ["repaired:content"]
LONG = "I have to look. " * 400


def field(text):
    return chunk(reasoning_content=text)


def content(text):
    return chunk(content=text)


def both(thought, text):
    return chunk(reasoning_content=thought, content=text)


STOP = chunk("stop")
HI = [ReasoningDelta(0, "hm, so"), TextDelta(0, "Hi"), Finish(0, "stop")]
# What comes, its events, and what is reported
REPEATED = {
    "the field first": ([field("hm, so"), content("<think>hm, so</think>Hi"), STOP], HI),
    "in pieces": ([field("hm"), field(", so"), content("<thi"), content("nk>h"), content("m, s"), content("o</thi"), content("nk>H"), content("i"), STOP], HI),
    "in turn": ([both("h", "<think>h"), both("m, ", "m, "), both("so", "so"), content("</think>"), content("Hi"), STOP], HI),
    "the content ahead of the field": ([both("h", "<think>hm, "), both("m, so", "so"), content("</think>Hi"), STOP], HI),
    "white space around it": ([field("\nhm, so "), content("\n<think>\n\nhm, so\n</think>\n\nHi"), STOP], [ReasoningDelta(0, "\nhm, so "), *HI[1:]]),
    "white space of the content alone": ([field("hm, so"), content("<think> \n"), content("\nhm, so"), content("\n\n"), content("</think>"), content("Hi"), STOP], HI),
    "white space in pieces": ([field("\n"), field(" "), field("hm, so"), content("<think>hm, so</think>Hi"), STOP], [ReasoningDelta(0, "\n hm, so"), *HI[1:]]),
    "another field": ([chunk(reasoning="hm, so"), content("<think>hm, so</think>Hi"), STOP], HI),
    "other tags": ([field("hm, so"), content("[THINK]hm, so[/THINK]Hi"), STOP], HI),
    "tags of another family": ([field("hm, so"), content("<thinking>hm, "), content("so</thinking>"), content("Hi"), STOP], HI),
    "one chunk": ([both("hm, so", "<think>hm, so</think>Hi"), STOP], HI),
    "a cut within the thought": ([field("hm, so"), content("<think>hm"), chunk("length")], [HI[0], Finish(0, "length")]),
    "a cut behind white space": ([field("hm, so"), content("<think>hm, so\n"), chunk("length")], [HI[0], Finish(0, "length")]),
    "before a call": (
        [field("hm, so"), content("<think>hm, so</think>"), chunk(tool_calls=[call(0, "x", "g", "{}")]), chunk("tool_calls")],
        [HI[0], ToolCallStart(0, 0, "x", "g"), ToolArgsDelta(0, 0, "{}"), ToolCallEnd(0, 0), Finish(0, "tool_calls")],
    ),
    "a long one": ([field(LONG), content("<think>" + LONG), content("</think>Hi"), STOP], [ReasoningDelta(0, LONG), *HI[1:]]),
}  # fmt: skip
OTHERS = {
    "no tag": ([field("hm, so"), content("Hi"), STOP], HI),
    "the beginning of a tag": ([field("hm, so"), content("<thi"), content("s> is"), STOP], [HI[0], TextDelta(0, "<this> is"), Finish(0, "stop")]),
    "a tag without its end": ([field("hm, so"), content("<thi"), STOP], [HI[0], TextDelta(0, "<thi"), Finish(0, "stop")]),
    "white space without end": ([field("hm, so"), content(" " * 5000), content("<think>hm, so</think>"), STOP], [HI[0], TextDelta(0, " " * 5000 + "<think>hm, so</think>"), Finish(0, "stop")]),
    "white space alone": ([field("hm, so"), content("\n\n"), STOP], [HI[0], TextDelta(0, "\n\n"), Finish(0, "stop")]),
    "a tag later": ([field("hm, so"), content("Hi <think>hm, so</think>"), STOP], [HI[0], TextDelta(0, "Hi <think>hm, so</think>"), Finish(0, "stop")]),
    "another thought": ([field("hm, so"), content("<think>hm, no</think>Hi"), STOP], [HI[0], TextDelta(0, "<think>hm, no</think>Hi"), Finish(0, "stop")]),
    "a shorter thought": ([field("hm, so"), content("<think>hm"), content("</think>Hi"), STOP], [HI[0], TextDelta(0, "<think>hm</think>Hi"), Finish(0, "stop")]),
    "a longer thought": ([field("hm"), content("<think>hm, "), content("so</think>Hi"), STOP], [ReasoningDelta(0, "hm"), TextDelta(0, "<think>hm, so</think>Hi"), Finish(0, "stop")]),
    "a much longer thought": ([field("hm"), content("<think>hm" + LONG), STOP], [ReasoningDelta(0, "hm"), TextDelta(0, "<think>hm" + LONG), Finish(0, "stop")]),
    "a longer thought that is cut": ([field("hm"), content("<think>hm, so"), chunk("length")], [ReasoningDelta(0, "hm"), TextDelta(0, "<think>hm, so"), Finish(0, "length")]),
}  # fmt: skip


def events_and_warnings(pieces, format="native"):
    ledger = Warnings()
    found = events_of(pieces, parser_settings(format, ledger=ledger))
    noted = [entry for entry in ledger.entries() if entry.startswith(("repaired", "dropped"))]
    return [event for event in found if hasattr(event, "choice")], noted


@pytest.mark.parametrize("case", {**REPEATED, **OTHERS})
def test_repeated_thought_is_told_once_under_each_cut(case):
    frames, expected = {**REPEATED, **OTHERS}[case]
    stream = b"".join([*frames, DONE])
    found = events_and_warnings([stream])
    assert found == (expected, ONCE if case in REPEATED else [])
    assert found == events_and_warnings(singly(stream)) == events_and_warnings(frames)
    for at in range(0, len(stream), 1 if len(stream) < 4000 else 997):
        assert events_and_warnings([stream[:at], stream[at:]]) == found


@pytest.mark.parametrize("format", ["think", "hermes_json", "mistral"])
@pytest.mark.parametrize("case", REPEATED)
def test_repeated_thought_is_told_once_beside_each_format(case, format):
    frames, expected = REPEATED[case]
    assert events_and_warnings([b"".join([*frames, DONE])], format) == (expected, ONCE)


def test_repeated_thought_takes_its_log_probabilities_along():
    def chances(token):
        return {"content": [{"token": token, "logprob": -0.5, "bytes": [104], "top_logprobs": []}]}

    frames = [
        field("hm"),
        chunk(content="<think>hm</think>", logprobs=chances("hm")),
        chunk(content="Hi", logprobs=chances("Hi")),
    ]
    found, noted = events_and_warnings([*frames, STOP, DONE])
    assert found[1] == TextDelta(0, "Hi", (Logprob("Hi", -0.5, (104,)),)) and noted == [*ONCE, "dropped:logprobs"]


def test_repeated_thought_with_half_of_a_character_at_its_end_is_told():
    frames = [field("hm"), content("<think>"), sse_escaped("\ud83d")]
    assert events_and_warnings(frames)[0] == [ReasoningDelta(0, "hm"), TextDelta(0, "<think>\ufffd")]


def sse_escaped(text):
    return b"data: " + json.dumps({"choices": [{"delta": {"content": text}}]}).encode() + b"\n\n"


@pytest.mark.parametrize(
    ("content", "expected"), [("<think>hm</think>Hi", "Hi"), ("<think>hm", ""), ("<think>so", "<think>so")]
)
async def test_repeated_thought_in_lines_of_ollama_is_told_once(content, expected):
    lines = [
        {"message": {"thinking": "hm"}},
        {"message": {"content": content}},
        {"message": {"content": ""}, "done": True},
    ]
    script = [head(type="application/x-ndjson"), *(json.dumps(line).encode() + b"\n" for line in lines), END]
    async with gateway(script, backend={"kind": "ollama"}, model={"format": "native"}) as site:
        answer = await site.chat(stream=True)
    assert (text_of(answer.text, "reasoning_content"), text_of(answer.text)) == ("hm", expected)


# In the APIs, streamed and whole; by a format, its model's usual name, and without


@pytest.mark.parametrize(
    ("model", "name"), [({}, "m"), ({"format": "hermes_json"}, "m"), ({}, "deepseek-r1"), ({}, "Qwen3-8B")]
)
async def test_repeated_thought_is_told_once_in_both_apis(model, name):
    message = {"role": "assistant", "reasoning_content": "hm, so", "content": "<think>\nhm, so\n</think>\n\nHi"}
    body = json.dumps({"choices": [{"index": 0, "message": message, "finish_reason": "stop"}]}).encode()
    script, target = (
        [head(), *REPEATED["in turn"][0], DONE, END],
        {"backends": [{"name": "up", "upstream_model": name}], **model},
    )
    async with gateway(whole(body), whole(body), script, model=target) as site:
        chat, response = await site.chat(), await site.respond()
        chunks, log = await site.chat(stream=True), await site.respond(stream=True)
    assistant_message = chat.json()["choices"][0]["message"]
    assert (assistant_message["reasoning_content"], assistant_message["content"]) == ("hm, so", "Hi")
    assert chat.headers["x-gateway-warnings"].startswith("repaired:content")
    assert [item["type"] for item in response.json()["output"]] == ["reasoning", "message"]
    assert response.text.count("hm, so") == 1 and "think>" not in response.text
    assert (text_of(chunks.text, "reasoning_content"), text_of(chunks.text)) == ("hm, so", "Hi")
    final = events(log.text)[-1]["response"]["output"]
    assert json.dumps(final).count("hm, so") == 1 and final[1]["content"][0]["text"] == "Hi"
