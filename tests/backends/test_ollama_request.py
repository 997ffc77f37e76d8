"""Test requests to the native API of Ollama: a row for each field, and messages that its decoder takes."""

import json

import pytest

from gateway.backends import KINDS
from gateway.backends.dialects import DIALECTS
from gateway.backends.openai.messages import MessagePolicy
from gateway.backends.openai.request_body import BodyTarget
from gateway.request import Request
from gateway.transforms import lower_request
from gateway.warnings import Warnings
from support.app import HELLO_MESSAGES, problem
from support.conversations import CONVERSATIONS, conversation
from support.ollama import NAME, Turn, check_message, content_line
from support.ollama_gateway import CITY, FLAT, PIXEL, TOOLS, USER, site

BAD = "invalid_request_error"
HI = Turn([content_line("Hi")])
AN_OBJECT = Turn([content_line("{}")])  # fits any format
BARE_BODY = {"model": NAME, "messages": HELLO_MESSAGES, "stream": True, "truncate": False}
NOTHING = {"type": "object", "properties": {}}
WEATHER = TOOLS[0]
CLOCK = {"type": "function", "function": {"name": "clock", "parameters": NOTHING}}
SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}}}


async def fields_and_warnings(fields, *, upstream=NAME, able=None, **model):
    """Return the fields beyond those that every request has, and the warnings."""
    async with site(AN_OBJECT, model={**model, "upstream_model": upstream}, able=able) as one:
        answer = await one.chat(stream=True, **fields)
        assert answer.status_code == 200, answer.text
        upstream_body = {name: value for name, value in one.server.bodies[-1].items() if BARE_BODY.get(name) != value}
        return upstream_body, answer.headers.get("x-gateway-warnings")


def options(**values):
    return {"options": values}


FIELDS = [
    ({}, {}, None),
    ({"temperature": 0.5, "top_p": 0.9}, options(temperature=0.5, top_p=0.9), None),
    ({"seed": 7, "presence_penalty": 1, "frequency_penalty": -1}, options(seed=7, presence_penalty=1, frequency_penalty=-1), None),
    ({"stop": "a"}, options(stop=["a"]), None),
    ({"stop": ["a", "b"]}, options(stop=["a", "b"]), None),
    ({"max_tokens": 5}, options(num_predict=5), None),
    ({"max_completion_tokens": 6}, options(num_predict=6), None),
    ({"max_tokens": 5, "max_completion_tokens": 6}, options(num_predict=6), None),
    ({"top_k": 5, "min_p": 0.1}, options(top_k=5, min_p=0.1), "forwarded:top_k, forwarded:min_p"),
    ({"repetition_penalty": 1.1}, options(repeat_penalty=1.1), "renamed:repetition_penalty"),
    ({"num_ctx": 9000}, options(num_ctx=9000), "forwarded:num_ctx"),
    ({"options": {"num_ctx": 9000}}, options(num_ctx=9000), "forwarded:options"),
    ({"options": {"temperature": 0}, "temperature": 1}, options(temperature=0), "forwarded:options"),
    ({"keep_alive": "5m"}, {"keep_alive": "5m"}, "forwarded:keep_alive"),
    ({"truncate": True}, {"truncate": True}, "forwarded:truncate"),
    ({"logprobs": True, "top_logprobs": 3}, {"logprobs": True, "top_logprobs": 3}, None),
    ({"response_format": {"type": "text"}}, {}, None),
    ({"response_format": {"type": "json_object"}}, {"format": "json"}, None),
    ({"response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": SCHEMA, "strict": True}}}, {"format": SCHEMA}, None),
    ({"response_format": {"type": "json_schema", "json_schema": {"name": "x"}}}, {"format": "json"}, None),
    ({"response_format": {"type": "structural_tag"}}, {}, "dropped:response_format"),
    ({"format": "json"}, {"format": "json"}, "forwarded:format"),
    ({"stream_options": {"include_usage": True}}, {}, None),
    ({"user": "u", "metadata": {"a": "b"}, "service_tier": "auto"}, {}, None),
    ({"verbosity": "low", "prediction": {"type": "content"}}, {}, "dropped:verbosity, dropped:prediction"),
    ({"logit_bias": {"5": 1}}, {}, "dropped:logit_bias"),
    ({"options": "x"}, {}, "forwarded:options, dropped:options"),
    ({"n": 1}, {}, None),
    ({"grammar": "root ::= x"}, {}, "dropped:grammar"),
    ({"add_generation_prompt": True, "continue_final_message": False}, {}, None),
    ({"tools": TOOLS}, {"tools": [WEATHER, CLOCK]}, None),
    ({"tools": TOOLS, "tool_choice": "auto", "parallel_tool_calls": True}, {"tools": [WEATHER, CLOCK]}, None),
    ({"tools": TOOLS, "tool_choice": "none"}, {}, None),
    ({"tools": [], "tool_choice": "auto"}, {}, None),
    ({"functions": [WEATHER["function"]]}, {"tools": [WEATHER]}, None),
]  # fmt: skip


@pytest.mark.parametrize(("fields", "expected", "warnings"), FIELDS, ids=lambda value: str(value)[:40])
async def test_ollama_request_has_a_place_for_each_field(fields, expected, warnings):
    assert await fields_and_warnings(fields) == (expected, warnings)


@pytest.mark.parametrize(
    ("fields", "code"), [({"num_ctx": 1}, "unknown_parameter"), ({"grammar": ""}, "unsupported_parameter")]
)
async def test_ollama_strict_mode_refuses_forwarded_or_dropped_fields(fields, code):
    async with site(HI, model={"strict": True}) as one:
        assert problem(await one.chat(**fields)) == (400, BAD, code, next(iter(fields)))
        assert one.server.bodies == []


async def test_ollama_choices_are_a_request_each():
    async with site(HI) as one:
        answer = await one.chat(n=2)
        assert [choice["index"] for choice in answer.json()["choices"]] == [0, 1]
        assert len(one.server.bodies) == 2 and not any("n" in request_body for request_body in one.server.bodies)


async def test_ollama_whole_response_is_asked_for_without_streaming():
    async with site(HI) as one:
        await one.chat()
        assert one.server.bodies == [{**BARE_BODY, "stream": False}]


# Reasoning effort


SWITCH = "translated:chat_template_kwargs"
THOUGHTS = [
    ({"reasoning_effort": "none"}, False, None),
    ({"reasoning_effort": "minimal"}, "low", "translated:reasoning_effort"),
    ({"reasoning_effort": "low"}, "low", None),
    ({"reasoning_effort": "medium"}, "medium", None),
    ({"reasoning_effort": "high"}, "high", None),
    ({"reasoning_effort": "xhigh"}, "max", "translated:reasoning_effort"),
    ({"reasoning_effort": "max"}, "max", None),
    ({"reasoning": {"effort": "low"}}, "low", "translated:reasoning"),
    ({"reasoning": {"max_tokens": 7}}, None, "dropped:reasoning"),
    ({"reasoning": {"effort": "low"}, "reasoning_effort": "high"}, "high", "dropped:reasoning"),
    ({"think": True}, True, "forwarded:think"),
    ({"think": "high", "reasoning_effort": "low"}, "high", "forwarded:think"),
    ({"chat_template_kwargs": {"enable_thinking": False}}, False, SWITCH),
    ({"chat_template_kwargs": {"thinking": True}}, True, SWITCH),
    ({"chat_template_kwargs": {"enable_thinking": True}, "reasoning_effort": "low"}, "low", SWITCH),
    ({"chat_template_kwargs": {"enable_thinking": False}, "reasoning_effort": "low"}, False, SWITCH),
    ({"chat_template_kwargs": {"enable_thinking": True, "x": 1}}, True, f"dropped:chat_template_kwargs, {SWITCH}"),
    ({"chat_template_kwargs": {"x": 1}}, None, "dropped:chat_template_kwargs"),
    ({"chat_template_kwargs": "x"}, None, "dropped:chat_template_kwargs"),
    ({"enable_thinking": False}, False, "renamed:enable_thinking"),
    ({"thinking": {"type": "disabled"}}, False, "translated:thinking"),
    ({"think": None}, None, None),
    ({"reasoning": {"effort": []}}, None, "dropped:reasoning"),
    ({"reasoning": {"enabled": True}}, True, "translated:reasoning"),
]


@pytest.mark.parametrize(("fields", "think", "warnings"), THOUGHTS, ids=lambda value: str(value)[:60])
async def test_ollama_reasoning_effort_is_translated(fields, think, warnings):
    assert await fields_and_warnings(fields) == ({} if think is None else {"think": think}, warnings)


async def test_ollama_reasoning_is_not_asked_of_models_without_it():
    plain = ("completion", "tools")
    async with site(HI, able=plain) as one:
        for _ in range(2):
            answer = await one.chat(reasoning_effort="high")
            assert answer.headers["x-gateway-warnings"] == "dropped:reasoning_effort"
            assert "think" not in one.server.bodies[-1]
        assert (await one.respond(reasoning={"effort": "high"})).status_code == 200
        assert "x-gateway-warnings" not in (await one.chat(reasoning_effort="none")).headers
        assert one.server.bodies[-1]["think"] is False
        assert len(one.server.shown) <= 2  # its template, its abilities


async def test_ollama_model_is_not_looked_up_without_reasoning_fields():
    async with site(HI, model={"format": "native"}) as one:
        await one.chat()
        assert one.server.shown == []


def body(request, model="gpt-oss:20b", **target):
    ledger = Warnings()
    body_target = BodyTarget(model, KINDS["ollama"], MessagePolicy(reasoning="thinking"), **target)
    return json.loads(DIALECTS["ollama"].body(request, body_target, frozenset(), ledger)), ledger.entries()


def test_ollama_reasoning_none_is_low_for_a_model_that_always_thinks():
    upstream_body, listed = body(Request(model="m", messages=(USER,), rest={"reasoning_effort": "none"}))
    assert (upstream_body["think"], listed) == ("low", ["unenforced:reasoning_effort"])


@pytest.mark.parametrize(
    ("fields", "text", "thought"),
    [({}, "", "So."), ({"think": False}, "So.", ""), ({"reasoning_effort": "none"}, "So.", "")],
)
async def test_ollama_response_begins_in_reasoning_unless_turned_off(fields, text, thought):
    async with site(Turn([content_line("So.")]), model={"format": "think", "upstream_model": NAME}) as one:
        message = (await one.chat(**fields)).json()["choices"][0]["message"]
        assert (message["content"] or "") + message.get("reasoning_content", "") == text + thought


# Messages


def call(id="call_1", name="weather", arguments='{"city": "Oslo"}'):
    return {"id": id, "type": "function", "function": {"name": name, "arguments": arguments}}


def native(id="call_1", name="weather", index=0, arguments=None):
    return {
        "id": id,
        "function": {"index": index, "name": name, "arguments": {"city": "Oslo"} if arguments is None else arguments},
    }


def text(content):
    return {"type": "text", "text": content}


IMAGE = {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PIXEL}", "detail": "high"}}
SOUND = {"type": "input_audio", "input_audio": {"data": "UklGRg==", "format": "wav"}}
RESULT = {"role": "tool", "tool_call_id": "call_1", "content": "rain"}
MESSAGES = [
    ([{"role": "developer", "content": "Be kind."}, USER], [{"role": "system", "content": "Be kind."}, USER], None),
    ([{"role": "user", "content": [text("a"), text("b")]}], [{"role": "user", "content": "a\nb"}], None),
    ([{"role": "user", "content": [text("a"), IMAGE, text("b")]}], [{"role": "user", "content": "a\nb", "images": [PIXEL]}], None),
    ([{"role": "user", "content": [IMAGE, SOUND]}], [{"role": "user", "content": "", "images": [PIXEL, "UklGRg=="]}], None),
    ([{**USER, "name": "Ann"}, USER], [USER, USER], "dropped:messages.name"),
    (
        [USER, {"role": "assistant", "content": "Hi", "reasoning_content": "Hm"}, USER],
        [USER, {"role": "assistant", "content": "Hi", "thinking": "Hm"}, USER],
        None,
    ),
    (
        [USER, {"role": "assistant", "content": None, "tool_calls": [call(), call("call_2", "clock", "")]}, RESULT, {**RESULT, "tool_call_id": "call_2", "content": [text("ten")]}],
        [
            USER,
            {"role": "assistant", "content": "", "tool_calls": [native(), native("call_2", "clock", 1, {})]},
            {**RESULT, "tool_name": "weather"},
            {**RESULT, "tool_call_id": "call_2", "tool_name": "clock", "content": "ten"},
        ],
        None,
    ),
    (
        [USER, {"role": "assistant", "content": "", "tool_calls": [call(arguments='{"city": ')]}, RESULT],
        [
            USER,
            {"role": "assistant", "content": "", "tool_calls": [native(arguments={"__raw": '{"city": '})]},
            {**RESULT, "tool_name": "weather"},
        ],
        "repaired:messages.tool_calls.function.arguments",
    ),
    (
        [USER, {"role": "assistant", "tool_calls": [call()]}, {**RESULT, "content": [text("see"), IMAGE]}],
        [
            USER,
            {"role": "assistant", "content": "", "tool_calls": [native()]},
            {**RESULT, "tool_name": "weather", "content": "see\n[image #1]"},
            {"role": "user", "content": "Tool output images:", "images": [PIXEL]},
        ],
        "translated:messages.content.image_url",
    ),
    (
        [USER, {"role": "assistant", "content": [text("Hi"), {"type": "refusal", "refusal": "No."}]}, USER],
        [USER, {"role": "assistant", "content": "HiNo."}, USER],
        None,
    ),
]  # fmt: skip


@pytest.mark.parametrize(("given", "expected", "warnings"), MESSAGES, ids=map(str, range(len(MESSAGES))))
async def test_ollama_messages_fit_its_decoder(given, expected, warnings):
    assert await fields_and_warnings({"messages": given}) == ({"messages": expected}, warnings)


async def test_ollama_tool_call_arguments_keep_order_and_numbers():
    arguments = '{"b": 1.0, "a": 12345678901234567890, "c": {"z": 1, "y": "\\u00e9"}}'
    messages = [USER, {"role": "assistant", "tool_calls": [call(arguments=arguments)]}, RESULT]
    data = DIALECTS["ollama"].body(
        Request(model="m", messages=tuple(messages)),
        BodyTarget("m", KINDS["ollama"], MessagePolicy()),
        frozenset(),
        Warnings(),
    )
    assert arguments.encode() in data


@pytest.mark.parametrize("name", CONVERSATIONS)
def test_ollama_conversations_of_clients_fit_its_decoder(name):
    case = CONVERSATIONS[name]
    ledger = Warnings()
    read = conversation(case["input"], case.get("instructions"), ledger)
    request, _ = lower_request(Request(model="m", messages=tuple(read.messages), fresh=True), ledger)
    upstream_body, _ = body(request)
    for message in upstream_body["messages"]:
        check_message(message)
    results = [message["tool_name"] for message in upstream_body["messages"] if message["role"] == "tool"]
    assert len(results) == sum(message["role"] == "tool" for message in request.messages)


async def test_ollama_message_part_that_is_unsupported_is_refused():
    parts = [text("Look."), {"type": "video_url", "video_url": {"url": "data:video/mp4;base64,AAAA"}}]
    async with site(HI) as one:
        answer = await one.chat(messages=[{"role": "user", "content": parts}])
        assert problem(answer) == (400, BAD, "unsupported_value", "messages[0].content[1].type")
        assert "'video_url'" in answer.json()["error"]["message"]


# Prefills


async def test_ollama_response_continues_the_last_message():
    messages = [USER, {"role": "assistant", "content": "<think>Hm"}]
    for stream in (True, False):
        async with site(Turn([content_line("m.</think>Hi")]), model={"format": "think"}) as one:
            answer = await one.chat(messages=messages, stream=stream)
            assert one.server.bodies[-1]["messages"] == messages
            response_text = answer.text
            assert "Hi" in response_text and "</think>" not in response_text


async def test_ollama_last_message_is_not_continued_in_responses():
    past = [{"role": "user", "content": "Hello"}, {"role": "assistant", "content": "Yes."}]
    async with site(HI) as one:
        answer = await one.respond(input=past, tools=FLAT)
        assert one.server.bodies[-1]["messages"][-1] == {"role": "user", "content": ""}
        assert "translated:messages" in answer.headers["x-gateway-warnings"]
        assert one.server.bodies[-1]["tools"][0]["function"]["parameters"] == CITY
