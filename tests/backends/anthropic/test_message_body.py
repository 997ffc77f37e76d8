"""Test the bodies of messages: blocks, tools, reasoning, formats and the prompt cache, all within the rules of the API."""

import json
from base64 import b64encode

import pytest
from msgspec.structs import replace

from gateway.api.chat.schema import KNOWN
from gateway.backends import KINDS
from gateway.backends.dialects import DIALECTS
from gateway.backends.openai.messages import MessagePolicy
from gateway.backends.openai.request_body import BodyTarget
from gateway.request import Request, Tool, ToolName
from gateway.warnings import Warnings
from support.anthropic_server import faults, text

KIND = KINDS["anthropic"]
OLD, NEW, NEWEST = "claude-sonnet-4-5-20250929", "claude-opus-4-6", "claude-sonnet-5"
F, G = Tool("f", {"name": "f", "parameters": {"type": "object"}}), Tool("g", {"name": "g"})
REQUIRED_TEXT = text("Continue.")
POINT = {"type": "ephemeral"}
USER = {"role": "user", "content": "q"}


def called(*ids, name="f", **more):
    calls = [{"id": id, "type": "function", "function": {"name": name, "arguments": '{"a": 1}'}} for id in ids]
    return {"role": "assistant", "content": None, "tool_calls": calls, **more}


def output(id, content="3C"):
    return {"role": "tool", "tool_call_id": id, "content": content}


def body_of(*messages, model=OLD, caches=False, prompted=False, mute=False, **members):
    """Return the body for these messages, which the API takes, and the warnings."""
    ledger = Warnings()
    policy = MessagePolicy(continues=KIND.continues, names=KIND.names, lists=KIND.lists)
    request = Request(model="m", messages=messages or (USER,), **members)
    kind = replace(KIND, refuses_tools=mute)
    target = BodyTarget(model, kind, policy, parsed_here=mute, prompted=prompted, caches=caches)
    body = json.loads(DIALECTS["anthropic"].body(request, target, KNOWN, ledger))
    assert faults(body) == []
    return body, ledger.entries()


def turns(*messages, **members):
    body, warnings = body_of(*messages, **members)
    return [(turn["role"], turn["content"]) for turn in body["messages"]], warnings


# Messages


def test_messages_body_has_what_the_api_needs():
    assert body_of() == (
        {
            "model": OLD,
            "max_tokens": 32000,
            "messages": [{"role": "user", "content": [text("q")]}],
            "stream": False,
        },
        [],
    )
    body, _ = body_of(max_tokens=7, stream=True, large=True)
    assert (body["max_tokens"], body["stream"]) == (7, True)


def test_messages_instructions_are_the_system_prompt():
    marked = {"type": "text", "text": "b", "cache_control": POINT}
    body, _ = body_of({"role": "system", "content": "a"}, {"role": "developer", "content": [marked]}, USER)
    assert body["system"] == [text("a"), marked]


def test_messages_of_one_role_are_one_turn_and_empty_ones_none():
    messages, warnings = turns(
        USER, {"role": "user", "content": ""}, {"role": "user", "content": [text("r"), text("")]}
    )
    assert (messages, warnings) == ([("user", [text("q"), text("r")])], [])


@pytest.mark.parametrize("blank", ["\n\n", " ", [text(" \t")]])
def test_messages_have_no_blank_texts(blank):
    messages, warnings = turns(
        {"role": "system", "content": blank},
        USER,
        {**called("a"), "content": blank},
        output("a", blank),
        {"role": "user", "content": blank},
        tools=(F,),
    )
    result = {"type": "tool_result", "tool_use_id": "a"}
    assert ([[block["type"] for block in content] for _, content in messages], messages[2][1], warnings) == (
        [["text"], ["tool_use"], ["tool_result"]],
        [result],
        [],
    )
    assert "system" not in body_of({"role": "system", "content": blank}, USER)[0]


def test_messages_begin_with_the_user():
    hello = {"role": "assistant", "content": "Hello"}
    assert turns(hello, USER) == (
        [("user", [REQUIRED_TEXT]), ("assistant", [text("Hello")]), ("user", [text("q")])],
        ["translated:messages"],
    )
    assert turns({"role": "system", "content": "a"}) == ([("user", [REQUIRED_TEXT])], ["translated:messages"])


def test_messages_results_are_at_the_head_of_the_next_turn():
    messages, warnings = turns(
        USER, called("a", "fn:b"), output("a"), output("fn:b", ""), {"role": "user", "content": "r"}, tools=(F,)
    )
    use = lambda id: {"type": "tool_use", "id": id, "name": "f", "input": {"a": 1}}  # noqa: E731
    result = {"type": "tool_result", "tool_use_id": "a", "content": "3C"}
    assert messages[1:] == [
        ("assistant", [use("a"), use("fn_b")]),
        ("user", [result, {"type": "tool_result", "tool_use_id": "fn_b"}, text("r")]),
    ]
    assert warnings == []


def test_messages_call_without_a_result_gets_one():
    messages, warnings = turns(USER, called("a"), {"role": "user", "content": "r"}, tools=(F,))
    assert messages[2][1][0] == {"type": "tool_result", "tool_use_id": "a", "content": "[no output]"}
    assert warnings == ["repaired:messages.tool_calls"]


def test_messages_images_stand_where_they_were():
    data = {"type": "image_url", "image_url": {"url": "data:image/PNG;x=y;base64,AAAA"}}
    elsewhere = {"type": "image_url", "image_url": {"url": "https://x.test/a.png"}, "cache_control": POINT}
    inline = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AAAA"}}
    by_url = {"type": "image", "source": {"type": "url", "url": "https://x.test/a.png"}, "cache_control": POINT}
    messages, _ = turns(
        {"role": "user", "content": [data, elsewhere]}, called("a"), output("a", [text("b"), data]), tools=(F,)
    )
    assert messages[0][1] == [inline, by_url]
    assert messages[2][1][0]["content"] == [text("b"), inline]


IMAGES = {
    "another name": ("image/jpg", b"\xff\xd8\xff\xe0\0\x10JFIF", "image/jpeg"),
    "another type": ("image/png", b"RIFF\x24\0\0\0WEBPVP8 ", "image/webp"),
    "no type": ("", b"GIF89a\1\0\1\0", "image/gif"),
    "upper case": ("IMAGE/PNG", b"\x89PNG\r\n\x1a\n\0\0\0\r", "image/png"),
    "unknown data": ("image/png", b"?" * 12, "image/png"),
}


@pytest.mark.parametrize(("given", "data", "type"), IMAGES.values(), ids=IMAGES)
def test_messages_images_have_the_type_of_their_data(given, data, type):
    url = f"data:{given};base64,{b64encode(data).decode()}"
    messages, _ = turns({"role": "user", "content": [{"type": "image_url", "image_url": {"url": url}}]})
    assert messages[0][1][0]["source"]["media_type"] == type


def test_messages_image_that_is_no_base64_keeps_its_type():
    url = "data:image/png;base64,A"
    messages, _ = turns({"role": "user", "content": [{"type": "image_url", "image_url": {"url": url}}]})
    assert messages[0][1][0]["source"] == {"type": "base64", "media_type": "image/png", "data": "A"}


def test_messages_reasoning_goes_back_if_it_is_signed():
    signed = {"type": "thinking", "thinking": "hm", "signature": "c2ln"}
    hidden = {"type": "redacted_thinking", "data": "cmVk"}
    others = ["x", {"type": "thinking", "thinking": "a", "signature": ""}, {"type": "mood"}]
    past = {"role": "assistant", "content": "A", "reasoning_content": "hm"}
    messages, warnings = turns(USER, {**past, "thinking_blocks": [*others, signed, hidden]}, USER)
    assert (messages[1], warnings) == (("assistant", [signed, hidden, text("A")]), [])
    for blocks in ({"thinking_blocks": others}, {"thinking_blocks": "x"}, {}):
        messages, warnings = turns(USER, {**past, **blocks}, USER)
        assert (messages[1], warnings) == (("assistant", [text("A")]), ["dropped:messages.reasoning_content"])


def test_messages_prefill_has_no_white_space_at_its_end():
    begun = {"role": "assistant", "content": "It is \n"}
    assert turns(USER, begun) == ([("user", [text("q")]), ("assistant", [text("It is")])], ["translated:messages"])
    assert turns(USER, {**begun, "content": "It is"})[1] == []
    assert turns(USER, {**begun, "content": " "})[0] == [("user", [text("q")])]
    signed = {"type": "thinking", "thinking": "hm", "signature": "c2ln"}
    assert turns(USER, {**begun, "content": " ", "thinking_blocks": [signed]})[0][1] == ("assistant", [signed])


@pytest.mark.parametrize("model", [NEW, NEWEST])
def test_messages_prefill_is_followed_by_the_user_if_the_model_refuses_it(model):
    begun = {"role": "assistant", "content": "It is"}
    messages, warnings = turns(USER, begun, model=model)
    assert messages[1:] == [("assistant", [text("It is")]), ("user", [REQUIRED_TEXT])]
    assert warnings == ["unenforced:prefill", "translated:messages"]
    assert turns(USER, begun, model=model, fresh=True)[1] == ["translated:messages"]


def test_messages_new_response_follows_a_message_of_the_assistant():
    messages, warnings = turns(USER, {"role": "assistant", "content": "A"}, fresh=True)
    assert (messages[-1], warnings) == (("user", [REQUIRED_TEXT]), ["translated:messages"])


# Tools


def test_messages_tools_have_an_input_schema():
    described = Tool("h", {"name": "h", "description": "d", "strict": True, "parameters": {"properties": {}}})
    body, warnings = body_of(tools=(G, described))
    empty = {"type": "object", "properties": {}}
    assert body["tools"] == [
        {"name": "g", "input_schema": empty},
        {"name": "h", "description": "d", "strict": True, "input_schema": {**empty, "additionalProperties": False}},
    ]
    assert ("tool_choice" in body, warnings) == (False, ["translated:tools.parameters"])
    assert "tools" not in body_of(tools=(G,), prompted=True)[0]
    assert body_of(tools=(G,), mute=True)[0]["tool_choice"] == {"type": "none"}


def test_messages_strict_tools_have_a_schema_that_the_api_can_enforce():
    bounded = {"type": "object", "properties": {"a": {"type": "integer", "minimum": 1}}}
    mapped = {"type": "object", "properties": {"a": {"type": "object", "additionalProperties": {"type": "string"}}}}
    offers = [Tool("f", {"name": "f", "strict": True, "parameters": schema}) for schema in (bounded, mapped)]
    body, warnings = body_of(tools=(offers[0],))
    fitting = {"type": "object", "properties": {"a": {"type": "integer"}}, "additionalProperties": False}
    assert body["tools"] == [{"name": "f", "strict": True, "input_schema": fitting}]
    assert warnings == ["translated:tools.parameters"]
    body, warnings = body_of(tools=(offers[1],))
    assert (body["tools"], warnings) == ([{"name": "f", "input_schema": mapped}], ["dropped:tools.strict"])


def test_messages_tools_without_strict_keep_their_keywords():
    bounded = {"type": "object", "properties": {"a": {"oneOf": [{"type": "integer", "minimum": 1}, {"type": "null"}]}}}
    body, warnings = body_of(tools=(Tool("f", {"name": "f", "strict": False, "parameters": bounded}),))
    assert (body["tools"], warnings) == ([{"name": "f", "input_schema": bounded}], [])


CHOICES = {
    "auto": ({"tool_choice": "auto"}, None),
    "required": ({"tool_choice": "required"}, {"type": "any"}),
    "one": ({"tool_choice": ToolName("g")}, {"type": "tool", "name": "g"}),
    "not parallel": ({"rest": {"parallel_tool_calls": False}}, {"type": "auto", "disable_parallel_tool_use": True}),
    "one, not parallel": (
        {"tool_choice": ToolName("g"), "rest": {"parallel_tool_calls": False}},
        {"type": "tool", "name": "g", "disable_parallel_tool_use": True},
    ),
    "a schema in its place": ({"tool_choice": "required", "guided": True}, None),
}


@pytest.mark.parametrize(("members", "choice"), CHOICES.values(), ids=CHOICES)
def test_messages_tool_choice_is_that_of_the_api(members, choice):
    assert body_of(tools=(F, G), **members)[0].get("tool_choice") == choice


def test_messages_past_calls_have_their_tools():
    past = USER, called("a"), output("a")
    for members in ({"tools": (F, G), "tool_choice": "none"}, {}):
        body, _ = body_of(*past, **members)
        assert body["tool_choice"] == {"type": "none"}
        assert [tool["name"] for tool in body["tools"]] == (["f", "g"] if members else ["f"])
    assert "tools" not in body_of(tools=(F,), tool_choice="none")[0]


# Reasoning


EFFORTS = {
    "old": (OLD, "high", {"thinking": {"type": "enabled", "budget_tokens": 16384}}),
    "older": ("claude-3-7-sonnet-latest", "low", {"thinking": {"type": "enabled", "budget_tokens": 2048}}),
    "first of 4": ("claude-opus-4-20250514", "low", {"thinking": {"type": "enabled", "budget_tokens": 2048}}),
    "another model": ("qwen3", "minimal", {"thinking": {"type": "enabled", "budget_tokens": 1024}}),
    "new": (
        NEW,
        "minimal",
        {"thinking": {"type": "adaptive", "display": "summarized"}, "output_config": {"effort": "low"}},
    ),
    "between": (
        NEW,
        "xhigh",
        {"thinking": {"type": "adaptive", "display": "summarized"}, "output_config": {"effort": "max"}},
    ),
    "newest": (
        NEWEST,
        "xhigh",
        {"thinking": {"type": "adaptive", "display": "summarized"}, "output_config": {"effort": "xhigh"}},
    ),
    "newer": (
        "anthropic.claude-mythos-5",
        "max",
        {"thinking": {"type": "adaptive", "display": "summarized"}, "output_config": {"effort": "max"}},
    ),
    "off": (NEW, "none", {"thinking": {"type": "disabled"}}),
}


@pytest.mark.parametrize(("model", "effort", "expected"), EFFORTS.values(), ids=EFFORTS)
def test_messages_effort_is_what_the_model_takes(model, effort, expected):
    body, warnings = body_of(model=model, rest={"reasoning_effort": effort})
    assert {name: body[name] for name in ("thinking", "output_config") if name in body} == expected
    assert warnings == []


def test_messages_switch_and_budget_are_thinking():
    for rest, expected in (
        ({"enable_thinking": False}, {"type": "disabled"}),
        ({"enable_thinking": True}, {"type": "enabled", "budget_tokens": 8192}),
        ({"thinking_token_budget": 2000}, {"type": "enabled", "budget_tokens": 2000}),
        ({"thinking": {"type": "adaptive"}}, {"type": "adaptive"}),
    ):
        assert body_of(rest=rest)[0]["thinking"] == expected
    for model, rest, expected, warning in (
        (NEW, {"thinking_token_budget": 2000}, {"type": "enabled", "budget_tokens": 2000}, []),
        (
            NEWEST,
            {"thinking_token_budget": 2000},
            {"type": "adaptive", "display": "summarized"},
            ["translated:thinking"],
        ),
        (
            NEWEST,
            {"thinking": {"type": "enabled", "display": "omitted"}},
            {"type": "adaptive", "display": "omitted"},
            [],
        ),
        (NEWEST, {"enable_thinking": False}, {"type": "disabled"}, []),
    ):
        body, warnings = body_of(model=model, rest=rest)
        assert (body["thinking"], warnings[1:]) == (expected, warning)
    body, warnings = body_of(rest={"thinking": 5})
    assert "thinking" not in body and "dropped:thinking" in warnings


def test_messages_budget_fits_the_token_limit():
    budget = {"thinking_token_budget": 8000}
    body, _ = body_of(rest=budget)
    assert (body["max_tokens"], body["thinking"]["budget_tokens"]) == (40000, 8000)
    body, warnings = body_of(rest=budget, max_tokens=4000)
    assert (body["max_tokens"], body["thinking"]["budget_tokens"]) == (4000, 2000)
    assert "translated:thinking" in warnings
    body, warnings = body_of(rest=budget, max_tokens=1024)
    assert "thinking" not in body and "unenforced:thinking" in warnings


def test_messages_reasoning_is_off_where_the_api_refuses_it():
    effort = {"reasoning_effort": "low"}
    body, warnings = body_of(rest=effort, tools=(F,), tool_choice="required")
    assert "thinking" not in body and warnings == ["unenforced:thinking"]
    body, warnings = body_of(USER, called("a"), output("a"), rest=effort, tools=(F,))  # called by another model
    assert "thinking" not in body and warnings == ["unenforced:thinking"]
    signed = [{"type": "thinking", "thinking": "hm", "signature": "c2ln"}]
    for past in (
        (called("a", thinking_blocks=signed), output("a")),
        (called("a"), output("a"), USER),
        ({"role": "assistant", "content": "A"},),
        ({"role": "assistant", "content": "A"}, USER),
    ):
        assert body_of(USER, *past, rest=effort, tools=(F,))[0]["thinking"]["type"] == "enabled"


def test_messages_sampling_is_left_out_beside_reasoning():
    body, warnings = body_of(rest={"reasoning_effort": "low", "temperature": 0.5, "top_k": 5})
    assert body.keys() & {"temperature", "top_k"} == set()
    assert warnings == ["forwarded:top_k", "dropped:temperature", "dropped:top_k"]
    assert body_of(rest={"reasoning_effort": "low", "top_p": 0.5})[1] == ["dropped:top_p"]
    body, warnings = body_of(rest={"reasoning_effort": "low", "temperature": 1})
    assert (body["temperature"], warnings) == (1, [])


# Other fields


def test_messages_sampling_is_within_the_range_of_the_api():
    assert body_of(rest={"temperature": 1.5})[0]["temperature"] == 1
    body, warnings = body_of(rest={"temperature": 0.5, "top_p": 0.5})
    assert (body["temperature"], "top_p" in body, warnings) == (0.5, False, ["dropped:top_p"])


@pytest.mark.parametrize(
    "model",
    ["claude-opus-4-7", "anthropic/claude-opus-4.8", "us.anthropic.claude-sonnet-5", "claude-haiku-5-5", NEWEST,
     "claude-mythos-preview"],
)  # fmt: skip
def test_messages_newest_models_get_no_sampling(model):
    sampling = {"temperature": 0.2, "top_k": 5, "top_p": 0.9}
    body, warnings = body_of(model=model, rest=sampling)
    assert body.keys().isdisjoint(sampling)
    assert warnings == ["forwarded:top_k", "dropped:temperature", "dropped:top_k", "dropped:top_p"]
    body, warnings = body_of(model=model, rest={"temperature": 1.2})
    assert (body["temperature"], warnings) == (1, ["translated:temperature"])


@pytest.mark.parametrize(
    "model", [OLD, NEW, "anthropic/claude-sonnet-4.5", "claude-sonnet-4.6", "kimi-k2", "claude-3-5-haiku"]
)
def test_messages_other_models_get_their_sampling(model):
    body, warnings = body_of(model=model, rest={"temperature": 0.2, "top_k": 5})
    assert (body["temperature"], body["top_k"], warnings) == (0.2, 5, ["forwarded:top_k"])
    assert body_of(model=model, rest={"top_p": 0.9})[0]["top_p"] == 0.9


def test_messages_stop_sequences_are_no_white_space():
    assert body_of(rest={"stop": "a"})[0]["stop_sequences"] == ["a"]
    body, warnings = body_of(rest={"stop": ["a", "\n"]})
    assert (body["stop_sequences"], warnings) == (["a"], ["dropped:stop"])


def test_messages_formats_are_schemas_or_an_instruction():
    schema = {"type": "object", "properties": {"a": {"type": "integer", "minimum": 1}}}
    format = {"type": "json_schema", "json_schema": {"name": "x", "schema": schema}}
    body, warnings = body_of(model=NEW, rest={"response_format": format, "reasoning_effort": "low"})
    fitting = {"type": "object", "properties": {"a": {"type": "integer"}}, "additionalProperties": False}
    config = {"format": {"type": "json_schema", "schema": fitting}, "effort": "low"}
    assert (body["output_config"], warnings) == (config, ["translated:response_format"])
    body, _ = body_of(rest={"response_format": {"type": "json_schema", "json_schema": {"schema": fitting}}})
    assert body["output_config"] == {"format": {"type": "json_schema", "schema": fitting}}
    body, warnings = body_of(rest={"response_format": {"type": "json_object"}})
    assert "one JSON object" in body["system"][0]["text"] and warnings == ["translated:response_format"]
    assert body_of(rest={"response_format": {"type": "mood"}})[1] == ["dropped:response_format"]
    assert body_of(rest={"response_format": {"type": "text"}})[1] == []


def test_messages_own_config_of_the_client_wins():
    body, _ = body_of(model=NEW, rest={"reasoning_effort": "low", "output_config": {"effort": "max"}})
    assert body["output_config"] == {"effort": "max"}


# The prompt cache


def test_messages_cache_points_are_set_for_clients_that_cannot():
    system, past = {"role": "system", "content": "s"}, {"role": "assistant", "content": "A"}
    body, _ = body_of(system, USER, past, USER, past, USER, tools=(F, G), caches=True)
    marked = [
        *("cache_control" in tool for tool in body["tools"]),
        *("cache_control" in block for block in body["system"]),
        *("cache_control" in turn["content"][-1] for turn in body["messages"]),
    ]
    assert marked == [False, True, True, False, False, True, False, True]
    assert json.dumps(body_of(USER, caches=True)[0]).count("cache_control") == 1


def test_messages_cache_points_of_the_client_stay_alone():
    own = {"role": "user", "content": [text("q", cache_control=POINT)]}
    for messages, rest in (((own, USER), {}), ((USER,), {"cache_control": POINT})):
        body, _ = body_of(*messages, caches=True, rest=rest)
        assert json.dumps(body).count("cache_control") == 1


def test_messages_counter_gets_the_prompt_alone():
    body, _ = body_of(tools=(F,), rest={"temperature": 0, "stop": "a"}, stream=True)
    counted = json.loads(KIND.counter.body(json.dumps(body).encode()))
    assert counted.keys() == {"model", "messages", "tools"} and faults(counted, counts=True) == []
    assert KINDS["vllm"].counter.body(b"{}") == b"{}"
