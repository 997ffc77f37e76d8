"""Test tool calls in another format than the one that the text is read in."""

import json

import pytest
from msgspec.structs import replace

from gateway.events import Finish, Logprob, ReasoningDelta, RefusalDelta, TextDelta
from gateway.formats.parser import ParseContext
from gateway.pipeline.format_mismatch import format_of, likely_formats
from gateway.pipeline.normalizer import Normalizer
from gateway.warnings import Warnings
from support.app import gateway
from support.format_events import written
from support.pipeline import TOOLS, grammatical, merge, parser_settings, singly
from support.upstream import chunk, completion_body, stream, whole

CALL = ["call", "f", '{"a": "x"}']
HERMES = '<tool_call>{"name": "f", "arguments": {"a": "x"}}</tool_call>'
MISTRAL = '[TOOL_CALLS]f[ARGS]{"a": "x"}'
XML = "<function=f>\n<parameter=a>\nx\n</parameter>\n</function>"
KIMI = '<|tool_calls_section_begin|><|tool_call_begin|>functions.f:0<|tool_call_argument_begin|>{"a": "x"}<|tool_call_end|><|tool_calls_section_end|>'
BARE = '{"name": "f", "parameters": {"a": "x"}}'
PYTHON = '[f(a="x")]'

# The format that the text is read in, the text, the format of its calls, and what a whole answer becomes.
CASES = [
    ("Hermes in Mistral", "mistral", f"So.\n{HERMES}", "hermes_json", [["text", "So."], CALL]),
    ("Mistral in Hermes", "hermes_json", f"So. {MISTRAL}", "mistral", [["text", "So."], CALL]),
    ("Kimi in Qwen", "qwen_xml", f"<think>hm</think>{KIMI}", "kimi_k2", [["reasoning", "hm"], CALL]),
    ("XML in Mistral, with text behind it", "mistral", f"{XML.replace('<function', '<tool_call><function')}</tool_call>So.",
     "hermes_json", [CALL, ["text", "So."]]),
    ("bare JSON in XML, with text behind it", "qwen_xml", f"{BARE}\nSo.", "bare_json", [CALL, ["text", "So."]]),
    ("Python in Hermes", "hermes_json", PYTHON, "pythonic", [CALL]),
    ("Hermes in plain text", "native", HERMES, "hermes_json", [CALL]),
    ("a tool that was not offered", "mistral", HERMES.replace('"f"', '"h"'), "", [["text", HERMES.replace('"f"', '"h"')]]),
    ("a mention of a tag", "mistral", "Write <tool_call> and [f].", "", [["text", "Write <tool_call> and [f]."]]),
    ("a definition of a tool", "qwen_xml", '{"name": "f", "description": "d"}', "", [["text", '{"name": "f", "description": "d"}']]),
]  # fmt: skip


def events_of(pieces, format, *, ledger, context=None, **how):
    """Return the merged events of a text in pieces, and of its end."""
    settings = replace(parser_settings(format, ledger=ledger), context=context or ParseContext(TOOLS), **how)
    normaliser = Normalizer(settings)
    fed = [event for piece in pieces if piece for event in normaliser.feed(TextDelta(0, piece))]
    return merge([*fed, *normaliser.feed(Finish(0, "stop")), *normaliser.close()])


def in_all_cuts(text):
    return [[text], singly(text), *([text[:place], text[place:]] for place in range(1, len(text)))]


@pytest.mark.parametrize(("format", "text", "name", "wanted"), [pytest.param(*row, id=what) for what, *row in CASES])
def test_calls_of_another_format_are_read_in_a_whole_answer(format, text, name, wanted):
    for pieces in in_all_cuts(text):
        ledger = Warnings()
        events = events_of(pieces, format, ledger=ledger, whole=True, auto=True)
        assert written(events) == wanted and grammatical(events)
        assert events[-1] == Finish(0, "tool_calls" if name else "stop") and not ledger.entries()


@pytest.mark.parametrize("how", [{"auto": True}, {"whole": True}, {}])
@pytest.mark.parametrize(
    ("format", "text", "name"), [pytest.param(*row[:3], id=what) for what, *row in CASES if row[0] != "native"]
)
def test_calls_of_another_format_are_reported_in_a_stream_or_where_the_format_is_given(format, text, name, how):
    for pieces in in_all_cuts(text):
        ledger = Warnings()
        events = events_of(pieces, format, ledger=ledger, **how)
        assert not any(event[0] == "call" for event in written(events)) and grammatical(events)
        assert ledger.entries() == ([f"unread:tool_calls={name}"] if name else [])


@pytest.mark.parametrize("text", ['[{"name": "f"}, {"name": "g"}]', '{"name": "g"}', '[{"name": "g", "purpose": "p"}]'])
def test_tools_that_json_only_names_are_no_calls_of_another_format(text):
    for pieces in in_all_cuts(text):
        ledger = Warnings()
        events = events_of(pieces, "hermes_json", ledger=ledger, whole=True, auto=True)
        assert written(events) == [["text", text]] and ledger.entries() == ["unread:tool_calls=bare_json"]
    events = events_of(['{"name": "g", "arguments": {}}'], "hermes_json", ledger=ledger, whole=True, auto=True)
    assert written(events) == [["call", "g", "{}"]]


def normalised(events, format, ledger, **how):
    """Return the merged events of events of a backend, and of their end."""
    normaliser = Normalizer(replace(parser_settings(format, ledger=ledger), context=ParseContext(TOOLS), **how))
    return merge([*(output for event in events for output in normaliser.feed(event)), *normaliser.close()])


def test_calls_of_another_format_replace_the_text_of_a_whole_answer_alone():
    ledger = Warnings()
    deltas = [ReasoningDelta(0, "hm"), TextDelta(0, f"So.{HERMES}"), RefusalDelta(0, "No."), Finish(0, "stop")]
    events = normalised(deltas, "mistral", ledger, whole=True, auto=True)
    assert written(events) == [["reasoning", "hm"], ["text", "So."], CALL]
    assert [type(event) for event in events[-2:]] == [RefusalDelta, Finish] and not ledger.entries()


def test_calls_of_another_format_lose_their_logprobs():
    ledger = Warnings()
    text = TextDelta(0, HERMES, (Logprob(HERMES, -0.5, None),))
    events = normalised([text, Finish(0, "stop")], "mistral", ledger, whole=True, auto=True)
    assert written(events) == [CALL] and ledger.entries() == ["dropped:logprobs"]


def test_calls_of_another_format_are_left_open_by_the_token_limit():
    ledger = Warnings()
    deltas = [TextDelta(0, HERMES[:-16]), Finish(0, "length")]
    assert written(normalised(deltas, "mistral", ledger, whole=True, auto=True)) == [
        ["call", "f", '{"a": "', "incomplete"]
    ]


def test_calls_of_another_format_are_looked_for_in_the_end_of_a_long_text():
    for text, names in (
        (f"{'x' * 70_000} {HERMES}", ["unread:tool_calls=hermes_json"]),
        (f"{HERMES} {'x' * 70_000}", []),
    ):
        ledger = Warnings()
        pieces = [text[place : place + 97] for place in range(0, len(text), 97)]
        assert written(events_of(pieces, "mistral", ledger=ledger)) == [["text", text]]
        assert ledger.entries() == names


def test_calls_of_another_format_are_not_looked_for_without_tools():
    ledger = Warnings()
    events_of([HERMES], "mistral", ledger=ledger, context=ParseContext({}))
    assert not ledger.entries()


TOOL = {"type": "function", "function": {"name": "f", "parameters": {"properties": {"a": {"type": "string"}}}}}
MODELS = [
    ("mistral-small-3.2", HERMES),
    ("qwen3-coder-30b", MISTRAL),
    ("hermes-4", KIMI),
    ("llama-3.1-8b", KIMI),
]


@pytest.mark.parametrize("streamed", [True, False])
@pytest.mark.parametrize(("model", "text"), MODELS)
async def test_calls_of_another_format_in_both_apis(model, text, streamed):
    script = (
        stream(*(chunk(piece) for piece in text), chunk(finish="stop")) if streamed else whole(completion_body(text))
    )
    async with gateway(script, backend={"kind": "vllm"}, model={"upstream_model": model}) as site:
        message = (await site.chat(stream=False, tools=[TOOL])).json()["choices"][0]["message"]
        (call,) = message["tool_calls"]
        assert message["content"] is None and json.loads(call["function"]["arguments"]) == {"a": "x"}
        response = (await site.respond(stream=False, tools=[{"type": "function", **TOOL["function"]}])).json()
        (item,) = response["output"]
        assert item["type"] == "function_call" and json.loads(item["arguments"]) == {"a": "x"}


@pytest.mark.parametrize(("model", "text"), MODELS[:3])
async def test_calls_of_another_format_are_a_warning_of_a_stream_in_both_apis(model, text):
    script = stream(*(chunk(piece) for piece in text), chunk(finish="stop"))
    async with gateway(script, backend={"kind": "vllm"}, model={"upstream_model": model}) as site:
        chat = await site.chat(stream=True, tools=[TOOL])
        response = await site.respond(stream=True, tools=[{"type": "function", **TOOL["function"]}])
        for answer in (chat, response):
            (comment,) = (part for part in answer.text.split("\n\n") if part.startswith(": gateway-warnings "))
            assert "unread:tool_calls=" in comment


async def test_calls_of_another_format_are_a_warning_where_the_operator_gives_the_format():
    model = {"upstream_model": "mistral-small-3.2", "format": "mistral"}
    async with gateway(whole(completion_body(HERMES)), backend={"kind": "vllm"}, model=model) as site:
        answer = await site.chat(stream=False, tools=[TOOL])
        assert answer.json()["choices"][0]["message"]["content"] == HERMES
        assert "unread:tool_calls=hermes_json" in answer.headers["x-gateway-warnings"]


async def test_calls_in_a_whole_answer_that_nothing_parses_are_a_warning():
    async with gateway(whole(completion_body(HERMES)), backend={"kind": "vllm"}, model={"format": "native"}) as site:
        answer = await site.chat(stream=False, tools=[TOOL])
        assert answer.json()["choices"][0]["message"]["content"] == HERMES
        assert "unread:tool_calls=hermes_json" in answer.headers["x-gateway-warnings"]


# Guesses after the response


@pytest.mark.parametrize(
    ("text", "read_in", "first", "calls"),
    [
        (HERMES, "mistral", "hermes_json", True),
        (f"So. {MISTRAL}", "hermes_json", "mistral", True),
        (HERMES, "a format of the configuration", "hermes_json", True),
        (HERMES.replace('"f"', '"h"'), "mistral", "hermes_json", False),
    ],
)
def test_likely_formats_begin_with_those_that_read_a_call(text, read_in, first, calls):
    found = {guess.format: guess.calls for guess in likely_formats(text, read_in, ParseContext(TOOLS))}
    assert found[first] is calls and read_in not in found
    assert [*found.values()] == sorted(found.values(), reverse=True)


def test_the_warning_and_the_page_name_the_same_format():
    text, context = '[TOOL_CALLS][{"name": "f", "arguments": {"a": "x"}}]', ParseContext(TOOLS)
    assert format_of(text, None, context) == likely_formats(text, "hermes_json", context)[0].format == "mistral"


def test_likely_formats_of_plain_text_are_none():
    assert likely_formats("It is sunny.", "mistral", ParseContext(TOOLS)) == []
