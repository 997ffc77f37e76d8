"""Test what a backend that speaks the Messages API gets of a client's body, and the client of its response."""

import json

import pytest
from msgspec import Raw
from msgspec.structs import replace

from gateway.backends import KINDS
from gateway.backends.dialects import DIALECTS
from gateway.backends.openai.messages import MessagePolicy
from gateway.backends.openai.request_body import BodyTarget
from gateway.events import (
    NATIVE_BLOCK,
    NATIVE_END,
    NATIVE_USAGE,
    Annotation,
    ExtraField,
    Finish,
    Media,
    ReasoningDelta,
    TextDelta,
    ToolArgsDelta,
    ToolCallEnd,
    ToolCallStart,
    Usage,
)
from gateway.request import StoredReasoning
from gateway.warnings import Warnings
from support.messages import (
    QUESTION,
    SETTINGS,
    TOOL,
    assistant,
    body_of,
    encoded,
    parsed,
    refusal_message,
    result,
    seal,
    text,
    use,
    user,
)
from support.messages_events import events_of

KEEPS = replace(SETTINGS, keeps_body=True)
SIGNED = {"type": "thinking", "thinking": "hm", "signature": "c2ln"}
HIDDEN = {"type": "redacted_thinking", "data": "cmVk"}
MOOD = {"type": "mood", "mood": "fine"}


def sent(*messages, target="claude", **fields):
    """Return the body for a backend that speaks the API, and the warnings.  target: its name of the model."""
    ledger = Warnings()
    if messages:
        fields["messages"] = [*messages]
    request = parsed(KEEPS, ledger, **fields).request
    assert ledger.entries() == [] and request.sent.stands_for(request)
    target = BodyTarget(target, KINDS["anthropic"], MessagePolicy())
    return json.loads(DIALECTS["anthropic"].sent_body(request, target, ledger)), ledger.entries()


def past_of(*blocks):
    """Return the blocks that a past message of the assistant is sent with, and the warnings."""
    body, warnings = sent(QUESTION, assistant(*blocks), QUESTION)
    return body["messages"][1]["content"], warnings


def sealed(*blocks, model="m", thought=""):
    return seal(StoredReasoning(thought, blocks, model))


# Requests


def test_sent_body_is_the_clients_with_the_name_of_the_model():
    fields = {
        "system": [text("s", cache_control={"type": "ephemeral"})],
        "tools": [
            {**TOOL, "cache_control": {"type": "ephemeral"}},
            {"type": "web_search_20250305", "name": "web_search"},
        ],
        "thinking": {"type": "enabled", "budget_tokens": 1024},
        "max_tokens": 2000,
        "metadata": {"user_id": "u"},
        "messages": [QUESTION, assistant(SIGNED, HIDDEN, use()), user(result())],
        "context_management": {"edits": [{"type": "clear_tool_uses_20250919"}]},
        "stream": True,
    }
    assert sent(**fields) == ({**body_of(**fields), "model": "claude"}, [])


def test_sent_body_has_the_limit_of_the_request():
    request = parsed(KEEPS).request
    target = BodyTarget("claude", KINDS["anthropic"], MessagePolicy())
    for limit, expected in ((50, 50), (200, 200), (None, 100)):
        changed = replace(request, max_tokens=limit, large=True)
        assert json.loads(DIALECTS["anthropic"].sent_body(changed, target, Warnings()))["max_tokens"] == expected


@pytest.mark.parametrize(("limit", "budget", "warnings"), [(1500, 1024, ["translated:thinking"]), (2100, 2000, [])])
def test_sent_body_with_a_smaller_limit_has_a_budget_below_it(limit, budget, warnings):
    thinking, ledger = {"type": "enabled", "budget_tokens": 2000}, Warnings()
    request = replace(parsed(KEEPS, thinking=thinking, max_tokens=4000).request, max_tokens=limit)
    body = DIALECTS["anthropic"].sent_body(request, BodyTarget("claude", KINDS["anthropic"], MessagePolicy()), ledger)
    assert json.loads(body)["thinking"] == {**thinking, "budget_tokens": budget}
    assert ledger.entries() == warnings


def test_sent_body_that_only_fills_the_cache_still_does():
    assert sent(max_tokens=0)[0]["max_tokens"] == 0


def test_sent_body_has_ids_of_calls_that_the_api_takes():
    past = [QUESTION, assistant(text("a"), use("functions.f:0"), use()), user(result("functions.f:0"), result())]
    body, warnings = sent(*past)
    assert warnings == []
    assert body["messages"][1]["content"] == [text("a"), use("functions_f_0"), use()]
    assert body["messages"][2]["content"] == [result("functions_f_0"), result()]
    late = {"role": "system", "content": [text("s")]}
    assert sent(*past, late)[0]["messages"][3] == late


def test_sent_body_stands_only_for_the_same_messages_tools_and_parameters():
    request = parsed(KEEPS, tools=[TOOL]).request
    assert request.sent.stands_for(request)
    assert not request.sent.stands_for(replace(request, messages=(*request.messages,) * 2))
    assert not request.sent.stands_for(replace(request, tools=()))
    assert not request.sent.stands_for(replace(request, rest={**request.rest, "top_k": 1}))
    assert request.sent.stands_for(replace(request, max_tokens=1))
    assert parsed(tools=[TOOL]).request.sent is None


def test_sent_body_has_the_signatures_of_the_backend():
    assert past_of(SIGNED, HIDDEN, text("a")) == ([SIGNED, HIDDEN, text("a")], [])
    ours = {**SIGNED, "signature": sealed(SIGNED, thought="hm")}
    assert past_of(ours, {**HIDDEN, "data": sealed(HIDDEN)}, text("a")) == ([SIGNED, HIDDEN, text("a")], [])


def test_sent_body_has_no_reasoning_of_other_models():
    unsigned, others = {**SIGNED, "signature": ""}, {**SIGNED, "signature": sealed(SIGNED, model="n", thought="hm")}
    for block in (unsigned, others, {**SIGNED, "signature": sealed(thought="hm")}):
        assert past_of(block, text("a")) == ([text("a")], ["dropped:thinking"])
    assert past_of({**HIDDEN, "data": sealed()}, text("a")) == ([text("a")], ["dropped:redacted_thinking"])
    body, _ = sent(QUESTION, assistant(unsigned), QUESTION)
    assert body["messages"] == [QUESTION, QUESTION]


def test_sent_body_turns_reasoning_off_where_the_api_refuses_it():
    past = [QUESTION, assistant({**SIGNED, "signature": ""}, use()), user(result())]
    edits = [{"type": "clear_thinking_20251015", "keep": "all"}, {"type": "clear_tool_uses_20250919"}]
    on = {"max_tokens": 4000, "thinking": {"type": "enabled", "budget_tokens": 2000}}
    body, warnings = sent(*past, **on, context_management={"edits": edits})
    assert (body["thinking"], body["context_management"]) == ({"type": "disabled"}, {"edits": edits[1:]})
    assert warnings == ["dropped:thinking", "unenforced:thinking"]
    body, warnings = sent(thinking={"type": "enabled", "budget_tokens": -1})
    assert (body["thinking"], warnings) == ({"type": "disabled"}, ["unenforced:thinking"])
    for unset in ({"type": "enabled"}, {"type": "enabled", "budget_tokens": None}):  # the API demands a budget itself
        assert sent(thinking=unset)[0]["thinking"] == unset
    for messages in ([QUESTION], [QUESTION, assistant(SIGNED, use()), user(result())]):
        assert sent(*messages, **on)[0]["thinking"] == on["thinking"]


BUDGET = {"type": "enabled", "budget_tokens": 2000}
SAMPLED = {"temperature": 0.3, "top_k": 5, "top_p": 0.9}


@pytest.mark.parametrize("target", ["claude-opus-4-7", "anthropic.claude-sonnet-5-v1:0"])
def test_sent_body_lacks_what_the_newest_models_refuse(target):
    body, warnings = sent(QUESTION, target=target, **SAMPLED)
    assert warnings == ["dropped:temperature", "dropped:top_k", "dropped:top_p"] and not SAMPLED.keys() & body.keys()
    body, warnings = sent(QUESTION, target=target, thinking=BUDGET, temperature=1, max_tokens=4000)
    assert (body["thinking"]["type"], body["temperature"], warnings) == ("adaptive", 1, ["translated:thinking"])
    body, warnings = sent(QUESTION, target=target, thinking={"type": "adaptive"})
    assert (body["thinking"], warnings) == ({"type": "adaptive"}, [])


@pytest.mark.parametrize("target", ["claude", "claude-latest", "claude-opus-4-5", "claude-sonnet-4-6", "minimax-m2"])
def test_sent_body_keeps_what_the_model_may_take(target):
    body, warnings = sent(QUESTION, target=target, thinking=BUDGET, max_tokens=4000, **SAMPLED)
    assert (body["thinking"], warnings) == (BUDGET, []) and SAMPLED.items() <= body.items()


def test_sent_body_is_not_what_only_the_gateway_can_read():
    found = {"type": "web_search_result", "url": "u", "title": "t", "encrypted_content": sealed(thought="a page")}
    searched = {"type": "server_tool_use", "id": "s", "name": "web_search", "input": {}}
    results = {"type": "web_search_tool_result", "tool_use_id": "s", "content": [found]}
    for blocks in ([searched, results], [{"type": "compaction", "content": sealed(thought="all")}]):
        request = parsed(KEEPS, messages=[QUESTION, assistant(*blocks), QUESTION]).request
        assert request.sent.fields is None and not request.sent.stands_for(request)
    results["content"] = [{**found, "encrypted_content": "theirs"}]
    assert past_of(searched, results) == ([searched, results], [])


def test_sent_body_keeps_blocks_and_tools_that_only_the_backend_knows():
    tools = [TOOL, {"type": "mood_20270101", "name": "mood"}]
    messages = [{"role": "user", "content": [text("q"), MOOD]}, assistant(MOOD, text("a")), QUESTION]
    request = parsed(KEEPS, messages=messages, tools=tools).request
    assert sent(*messages, tools=tools)[0]["messages"] == messages
    assert [tool.name for tool in request.tools] == ["f"]
    assert [one["content"] for one in request.messages] == ["q", "a", "q"]
    assert request.sent.refusal.problem.message.startswith("tools.1: Input tag 'mood_20270101'")
    assert "Input tag 'mood'" in parsed(KEEPS, messages=messages).request.sent.refusal.problem.message


def test_sent_body_with_another_fault_is_refused():
    assert "tool_use_id" in refusal_message(user(result()), settings=KEEPS)
    assert "type" in refusal_message(user({"text": "q"}), settings=KEEPS)


def test_sent_body_has_the_warnings_of_its_neutral_form_apart():
    request = parsed(KEEPS, tools=[{"type": "web_search_20250305", "name": "web_search"}]).request
    assert request.sent.warnings == ("dropped:tools.web_search",)


# Responses


def extra(name, choice=None, **members):
    return ExtraField(choice, name, Raw(json.dumps(members).encode()), asked=True, inside=choice is not None)


def block(**members):
    return extra(NATIVE_BLOCK, 0, **members)


def message_of(*events, **options):
    return json.loads(encoded(events, stream=False, **options))


STOP = Finish(0, "stop")
UNSEALED = {"unsealed": True}
PLACE = {"type": "page_location", "cited_text": "a"}
SEARCH = {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {"query": "x"}}
FOUND = {"type": "web_search_tool_result", "tool_use_id": "srvtoolu_1", "content": []}


def raw(value):
    return Raw(json.dumps(value).encode())


CONTENT = [
    block(),
    ReasoningDelta(0, "hm"),
    ReasoningDelta(0, "", json.dumps({"type": "thinking", "signature": "c2ln", **UNSEALED})),
    ReasoningDelta(0, "", json.dumps({**HIDDEN, **UNSEALED})),
    block(),
    Annotation(0, raw(PLACE)),
    TextDelta(0, "a"),
    block(),
    TextDelta(0, "b"),
    Media(0, raw(SEARCH), "blocks"),
    Media(0, raw(FOUND), "blocks"),
    block(caller={"type": "direct"}),
    ToolCallStart(0, 0, "toolu_1", "f"),
    ToolArgsDelta(0, 0, "{}"),
    ToolCallEnd(0, 0),
    Finish(0, "tool_calls"),
]
BLOCKS = [
    SIGNED,
    HIDDEN,
    text("a", citations=[PLACE]),
    text("b"),
    SEARCH,
    FOUND,
    {**use("toolu_1"), "caller": {"type": "direct"}},
]


def test_native_blocks_reach_the_client_unchanged():
    assert message_of(*CONTENT)["content"] == BLOCKS


def test_native_blocks_are_streamed_as_clients_collect_them():
    events = events_of(encoded(CONTENT))
    starts = [event["content_block"] for event in events if event["type"] == "content_block_start"]
    assert [start["type"] for start in starts] == [one["type"] for one in BLOCKS]
    assert [start.get("input") for start in starts if "input" in start] == [{}, {}]
    deltas = [event["delta"] for event in events if event["type"] == "content_block_delta"]
    assert json.loads(next(one["partial_json"] for one in deltas if "partial_json" in one)) == SEARCH["input"]


ENDS = {
    "a pause": ({"stop_reason": "pause_turn", "stop_sequence": None}, {"stop_reason": "pause_turn"}),
    "a reason of tomorrow": ({"stop_reason": "bored"}, {"stop_reason": "bored"}),
    "the reason of the content": ({"stop_reason": "tool_use"}, {"stop_reason": "end_turn"}),
    "a container": (
        {"stop_reason": "end_turn", "container": {"id": "c"}},
        {"stop_reason": "end_turn", "container": {"id": "c"}},
    ),
    "a refusal": (
        {"stop_reason": "refusal", "stop_details": {"type": "refusal", "explanation": "No."}},
        {"stop_reason": "refusal", "stop_details": {"type": "refusal", "explanation": "No."}},
    ),
}


@pytest.mark.parametrize(("given", "expected"), ENDS.values(), ids=ENDS)
def test_native_end_is_what_the_content_does_not_show(given, expected):
    message = message_of(TextDelta(0, "a"), extra(NATIVE_END, **given), STOP)
    shown = {name: message[name] for name in ("stop_reason", "stop_details", "container") if name in message}
    assert shown == expected and message["stop_sequence"] is None


def test_native_usage_has_the_members_beside_the_counts():
    given = {"input_tokens": 99, "service_tier": "priority", "cache_creation": {"x": 1}, "inference_geo": None}
    searched = {"server_tool_use": {"web_search_requests": 2}}
    usage = message_of(Usage(5, 2), extra(NATIVE_USAGE, **given, **searched), TextDelta(0, "a"), STOP)["usage"]
    assert (usage["input_tokens"], usage["service_tier"], usage["cache_creation"]) == (5, "priority", {"x": 1})
    assert usage["server_tool_use"] == {"web_search_requests": 2} and "inference_geo" not in usage


@pytest.mark.parametrize("tier", ["standard", "priority"])
def test_native_usage_at_the_end_repeats_no_standard_service_tier(tier):
    data = encoded([Usage(5, 2), extra(NATIVE_USAGE, service_tier=tier), TextDelta(0, "a"), STOP])
    (usage,) = [event["usage"] for event in events_of(data) if event["type"] == "message_delta"]
    assert usage.get("service_tier", "standard") == tier and ("service_tier" in usage) is (tier != "standard")
