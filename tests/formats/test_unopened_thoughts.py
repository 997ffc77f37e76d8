"""Test thoughts whose opening tag the server has taken out, so that only the closing tag is in the text."""

import pytest
from msgspec.structs import replace

from gateway.events import Finish, Logprob, ReasoningDelta, TextDelta
from gateway.formats import FORMATS
from gateway.formats.parser import ParseContext
from gateway.formats.reader import TextReader
from gateway.formats.reasoning_calls import HeldOutput
from gateway.pipeline.normalizer import Normalizer
from gateway.warnings import Warnings
from support.app import gateway
from support.format_events import written
from support.pipeline import TOOLS, grammatical, merge, parser_settings, singly
from support.sse import events as events_of_response
from support.sse import text_of
from support.upstream import chunk, completion_body, stream, whole

HERMES = '<tool_call>{"name": "f", "arguments": {"a": "x"}}</tool_call>'
LISTED = '<tool_call>[{"name": "f", "arguments": {"a": "x"}}, {"name": "f", "arguments": {"a": "x"}}]</tool_call>'
CALLED = ["call", "f", '{"a": "x"}']
UNOPENED = ParseContext(TOOLS, unopened=True)
REPAIRED = ["repaired:content"]


def read(events, format="hermes_json", context=UNOPENED, *, ledger=None, **how):
    """Return the merged events of events of a backend, and of their end."""
    normaliser = Normalizer(replace(parser_settings(format, ledger=ledger), context=context, **how))
    return merge([*(output for event in events for output in normaliser.feed(event)), *normaliser.close()])


# A text, and what it is in a whole answer.
WHOLE = [
    ("text behind it", "hm\nso\n</think>\n\nYes.", [["reasoning", "hm\nso\n"], ["text", "Yes."]]),
    ("nothing behind it", "hm</think>", [["reasoning", "hm"]]),
    ("a call behind it", f"hm\n</think>\n{HERMES}", [["reasoning", "hm\n"], ["call", "f", '{"a": "x"}']]),
    ("code before it", "```\nx\n```\n</think>\nYes.", [["reasoning", "```\nx\n```\n"], ["text", "Yes."]]),
    ("text right behind it", "The tag </think> closes.", [["text", "The tag </think> closes."]]),
]  # fmt: skip


@pytest.mark.parametrize("tools", [TOOLS, {}])
@pytest.mark.parametrize(("text", "wanted"), [pytest.param(*row, id=what) for what, *row in WHOLE])
def test_closing_tag_alone_makes_a_thought_of_the_text_of_a_whole_answer(text, wanted, tools):
    if not tools and any(event[0] == "call" for event in wanted):
        wanted = [*wanted[:-1], ["text", HERMES]]
    for pieces in [[text], singly(text), *([text[:place], text[place:]] for place in range(1, len(text)))]:
        ledger = Warnings()
        deltas = [*(TextDelta(0, piece) for piece in pieces), Finish(0, "stop")]
        events = read(deltas, context=replace(UNOPENED, tools=tools), ledger=ledger, whole=True)
        assert written(events) == wanted and grammatical(events)
        warnings = [entry for entry in ledger.entries() if entry != "repaired:finish_reason"]
        assert warnings == (REPAIRED if wanted[0][0] == "reasoning" else [])


# A text, and what it is in a whole answer and in a stream.
BEFORE_A_CALL = [
    ("a call", f"hm</think>{HERMES}", [["reasoning", "hm"], CALLED], [["text", "hm"], CALLED]),
    ("blanks, a call", f"hm\n</think> {HERMES}", [["reasoning", "hm\n"], CALLED], [["text", "hm\n"], CALLED]),
    ("two calls", f"hm</think>{LISTED}", [["reasoning", "hm"], CALLED, CALLED], [["text", "hm"], CALLED, CALLED]),
    ("a call, text", f"hm</think>{HERMES}Yes.", [["reasoning", "hm"], CALLED, ["text", "Yes."]], [["text", "hm"], CALLED, ["text", "\nYes."]]),
    ("a tag without a call", "See </think><tool_call>.", [["text", "See </think><tool_call>."]], [["text", "See </think><tool_call>."]]),
    ("a second thought", f"a</think>{HERMES}\nb</think>{HERMES}", [["reasoning", "a"], CALLED, ["text", "b</think>"], CALLED], [["text", "a"], CALLED, ["text", "\nb</think>"], CALLED]),
]  # fmt: skip


@pytest.mark.parametrize(("text", "whole", "streamed"), [pytest.param(*row, id=what) for what, *row in BEFORE_A_CALL])
def test_closing_tag_alone_ends_a_thought_right_before_a_call(text, whole, streamed):
    for pieces in [[text], singly(text), *([text[:place], text[place:]] for place in range(1, len(text)))]:
        deltas = [*(TextDelta(0, piece) for piece in pieces), Finish(0, "stop")]
        assert written(read(deltas, whole=True)) == whole
        ledger = Warnings()
        assert written(read(deltas, ledger=ledger)) == streamed
        assert ("repaired:content" in ledger.entries()) == (whole[0][0] == "reasoning")
    alone = read([TextDelta(0, text), Finish(0, "stop")], context=ParseContext({}, unopened=True), whole=True)
    assert written(alone) == [["text", text]]


def test_closing_tag_behind_reasoning_of_the_backend_is_text():
    for deltas in (
        [ReasoningDelta(0, "hm"), TextDelta(0, "a\n</think>\nb")],
        [TextDelta(0, "a"), ReasoningDelta(0, "hm"), TextDelta(0, "a\n</think>\nb")],
    ):
        for tools in (TOOLS, {}):
            events = read([*deltas, Finish(0, "stop")], context=ParseContext(tools, unopened=True))
            assert "</think>" in "".join(event.text for event in events if type(event) is TextDelta)


def test_closing_tag_alone_drops_the_logprobs_of_its_thought():
    ledger = Warnings()
    tokens = [TextDelta(0, token, (Logprob(token, -0.5, None),)) for token in ("hm", "</think>", "\n", "Yes")]
    events = read([*tokens, Finish(0, "stop")], ledger=ledger, whole=True)
    assert written(events) == [["reasoning", "hm"], ["text", "Yes"]]
    assert {*ledger.entries()} == {"repaired:content", "dropped:logprobs"}


@pytest.mark.parametrize(
    ("prefill", "text", "wanted"), [("So", " hm</think>\nYes", " hm\nYes"), ("hm\n</think>\n", "Yes", "Yes")]
)
def test_closing_tag_alone_behind_a_prefill(prefill, text, wanted):
    events = read([TextDelta(0, text), Finish(0, "stop")], context=replace(UNOPENED, prefill=prefill))
    assert written(events) == [["text", wanted]]


def test_call_that_is_held_back_keeps_its_place_before_the_end_of_a_thought():
    class Seen(list):
        def thought_end(self, tag):
            self.append(tag)

    seen = Seen()
    held = HeldOutput(seen, TextReader(), UNOPENED, ("</think>",), apart=False)
    held.thought_end("</think>")
    held.count()
    assert seen == ["</think>"]


def test_families_that_think_are_those_whose_example_has_a_thought():
    assert FORMATS["hermes_json"].thinks and FORMATS["glm47_xml"].thinks and FORMATS["seed_oss_xml"].thinks
    assert not any(FORMATS[name].thinks for name in ("auto", "native", "llama3_json", "harmony", "pythonic"))


THOUGHT = "I should look.\n</think>\n\nIt rains."


@pytest.mark.parametrize("streamed", [True, False])
@pytest.mark.parametrize(
    ("kind", "model", "thinks"),
    [
        ("openai", "qwen3-8b", True),
        ("llamacpp", "glm-4.7-flash", True),
        ("lmstudio", "hunyuan-a13b", True),
        ("vllm", "qwen3-8b", False),
        ("sglang", "hunyuan-a13b", False),
        ("openai", "m", False),
        ("openai", "llama-3.1-8b", False),
    ],
)
async def test_closing_tag_alone_is_read_of_servers_that_take_out_the_opening_tag(kind, model, thinks, streamed):
    script = (
        stream(*(chunk(piece) for piece in THOUGHT), chunk(finish="stop"))
        if streamed
        else whole(completion_body(THOUGHT))
    )
    async with gateway(script, backend={"kind": kind}, model={"upstream_model": model}) as site:
        answer = await site.chat(stream=False)
        message = answer.json()["choices"][0]["message"]
        response = (await site.respond(stream=False)).json()["output"]
        assert ("repaired:content" in answer.headers.get("x-gateway-warnings", "")) == thinks
        assert message["content"] == ("It rains." if thinks else THOUGHT)
        assert message.get("reasoning_content") == ("I should look.\n" if thinks else None)
        assert [item["type"] for item in response] == (["reasoning", "message"] if thinks else ["message"])
        assert response[-1]["content"][0]["text"] == message["content"]


async def test_closing_tag_alone_falls_away_in_a_stream_of_both_apis():
    script = stream(*(chunk(piece) for piece in THOUGHT), chunk(finish="stop"))
    async with gateway(script, backend={"kind": "llamacpp"}, model={"upstream_model": "qwen3-8b"}) as site:
        chat, response = await site.chat(stream=True), await site.respond(stream=True)
        for answer in (chat, response):
            assert "repaired:content" in answer.text
        assert text_of(chat.text) == "I should look.\nIt rains."
        last = events_of_response(response.text)[-1]["response"]
        assert last["output"][0]["content"][0]["text"] == "I should look.\nIt rains."


async def test_model_that_always_thinks_begins_with_reasoning():
    script = whole(completion_body("I should look.\n</think>\n\nIt rains."))
    async with gateway(script, backend={"kind": "vllm"}, model={"upstream_model": "qwen3.5-35b"}) as site:
        message = (await site.chat(stream=False)).json()["choices"][0]["message"]
        assert (message["reasoning_content"], message["content"]) == ("I should look.\n", "It rains.")
