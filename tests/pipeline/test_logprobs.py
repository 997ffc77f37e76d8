"""Test log-probabilities of tokens without text: they stay with their text and never end a tool call."""

import pytest

from gateway.events import Finish, Logprob, ReasoningDelta, TextDelta, ToolArgsDelta, ToolCallEnd, ToolCallStart
from gateway.warnings import Warnings
from support.app import gateway
from support.pipeline import DONE, call, chunk, events_of, grammatical, parser_settings
from support.upstream import chunk as upstream_chunk
from support.upstream import completion_body, stream, whole


def logprob_entries(*tokens):
    return tuple(Logprob(token, -0.5, tuple(token.encode())) for token in tokens)


def logprobs_field(*tokens):
    return {"content": [{"token": token, "logprob": -0.5} for token in tokens]}


def events_without_usage(*chunks, format, **options):
    *events, _usage = events_of([*chunks, DONE], parser_settings(format, **options))
    return events


FORMATS = pytest.mark.parametrize("format", ["native", "auto", "hermes_json"])


@FORMATS
def test_logprobs_of_tokens_around_a_text_belong_to_the_text(format):
    chunks = [
        chunk(content="", logprobs=logprobs_field("<s>")),
        chunk(content="hi", logprobs=logprobs_field("hi")),
        chunk("stop", content="", logprobs=logprobs_field("</s>")),
    ]
    assert events_without_usage(*chunks, format=format) == [
        TextDelta(0, "hi", logprob_entries("<s>", "hi", "</s>")),
        Finish(0, "stop"),
    ]


@FORMATS
def test_logprobs_inside_a_tool_call_are_dropped(format):
    ledger = Warnings()
    chunks = [
        chunk(logprobs=logprobs_field("<tool_call>")),
        chunk(tool_calls=[call(0, "id", "f", '{"a": ')], logprobs=logprobs_field("{")),
        chunk(logprobs=logprobs_field(" ")),
        chunk(tool_calls=[call(0, arguments='"x"}')], logprobs=logprobs_field("}")),
        chunk("tool_calls", logprobs=logprobs_field("</tool_call>")),
    ]
    start, args, end = ToolCallStart(0, 0, "id", "f"), ToolArgsDelta(0, 0, '{"a": "x"}'), ToolCallEnd(0, 0)
    assert events_without_usage(*chunks, format=format, ledger=ledger) == [start, args, end, Finish(0, "tool_calls")]
    assert "dropped:logprobs" in ledger.entries()


@FORMATS
def test_logprobs_of_reasoning_do_not_join_the_text(format):
    chunks = [
        chunk(reasoning="hm", logprobs=logprobs_field("hm")),
        chunk(content="hi", logprobs=logprobs_field("hi")),
        chunk("stop"),
    ]
    assert events_without_usage(*chunks, format=format) == [
        ReasoningDelta(0, "hm"),
        TextDelta(0, "hi", logprob_entries("hi")),
        Finish(0, "stop"),
    ]


def test_logprobs_after_an_unclosed_tool_call_in_the_text_are_dropped():
    ledger, text = Warnings(), '<tool_call>{"name": "f", "arguments": {"n": 1'
    chunks = [chunk(content=text, logprobs=logprobs_field(text)), chunk("stop", logprobs=logprobs_field("</s>"))]
    events = events_without_usage(*chunks, format="hermes_json", ledger=ledger)
    assert grammatical(events) and not any(type(event) is TextDelta for event in events)
    assert "dropped:logprobs" in ledger.entries()


@pytest.mark.parametrize("streamed", [True, False])
async def test_logprobs_that_did_not_come_are_reported(streamed):
    chunks = [upstream_chunk("Hi"), upstream_chunk(" you", finish="stop")]
    async with gateway(stream(*chunks) if streamed else whole(completion_body("Hi you"))) as site:
        response = await site.chat(stream=streamed, logprobs=True)
        assert "unenforced:logprobs" in response.headers.get("x-gateway-warnings", "") + response.text
        unasked = await site.chat(stream=streamed)
        assert "logprobs" not in unasked.headers.get("x-gateway-warnings", "") + unasked.text.replace(
            '"logprobs":null', ""
        )


async def test_logprobs_that_came_are_not_reported():
    likely = upstream_chunk("Hi", finish="stop")
    likely = likely.replace(b'"delta"', b'"logprobs": {"content": [{"token": "Hi", "logprob": -0.5}]}, "delta"')
    async with gateway(stream(likely)) as site:
        answer = await site.chat(stream=True, logprobs=True)
        assert "unenforced" not in answer.headers.get("x-gateway-warnings", "") + answer.text
