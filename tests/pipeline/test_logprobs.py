"""Log-probabilities of tokens without text: they stay with the text they stand in, and never end a call."""

import pytest

from gateway.events import Finish, Logprob, Reasoning, Text, ToolArgs, ToolEnd, ToolStart
from gateway.ledger import Ledger
from support.pipeline import DONE, call, chunk, events_of, grammatical, setting


def entries(*tokens):
    return tuple(Logprob(token, -0.5, tuple(token.encode())) for token in tokens)


def chances(*tokens):
    return {"content": [{"token": token, "logprob": -0.5} for token in tokens]}


def said(*chunks, format, **options):
    *events, _usage = events_of([*chunks, DONE], setting(format, **options))
    return events


FORMATS = pytest.mark.parametrize("format", ["native", "auto", "hermes_json"])


@FORMATS
def test_around_a_text_they_belong_to_it(format):
    chunks = [
        chunk(content="", logprobs=chances("<s>")),
        chunk(content="hi", logprobs=chances("hi")),
        chunk("stop", content="", logprobs=chances("</s>")),
    ]
    assert said(*chunks, format=format) == [Text(0, "hi", entries("<s>", "hi", "</s>")), Finish(0, "stop")]


@FORMATS
def test_inside_of_a_call_they_fall_away(format):
    ledger = Ledger()
    chunks = [
        chunk(logprobs=chances("<tool_call>")),
        chunk(tool_calls=[call(0, "id", "f", '{"a": ')], logprobs=chances("{")),
        chunk(logprobs=chances(" ")),
        chunk(tool_calls=[call(0, arguments='"x"}')], logprobs=chances("}")),
        chunk("tool_calls", logprobs=chances("</tool_call>")),
    ]
    start, args, end = ToolStart(0, 0, "id", "f"), ToolArgs(0, 0, '{"a": "x"}'), ToolEnd(0, 0)
    assert said(*chunks, format=format, ledger=ledger) == [start, args, end, Finish(0, "tool_calls")]
    assert "dropped:logprobs" in ledger.entries()


@FORMATS
def test_beside_a_thought_they_are_not_the_text_s(format):
    chunks = [
        chunk(reasoning="hm", logprobs=chances("hm")),
        chunk(content="hi", logprobs=chances("hi")),
        chunk("stop"),
    ]
    assert said(*chunks, format=format) == [Reasoning(0, "hm"), Text(0, "hi", entries("hi")), Finish(0, "stop")]


def test_after_a_call_in_the_text_that_never_ended_they_are_its():
    ledger, text = Ledger(), '<tool_call>{"name": "f", "arguments": {"n": 1'
    chunks = [chunk(content=text, logprobs=chances(text)), chunk("stop", logprobs=chances("</s>"))]
    events = said(*chunks, format="hermes_json", ledger=ledger)
    assert grammatical(events) and not any(type(event) is Text for event in events)
    assert "dropped:logprobs" in ledger.entries()
