"""Test requests of the chat API: which are refused, with which message, and what each kind of backend is sent.

https://platform.openai.com/docs/api-reference/chat/create
"""

import json
import re

import pytest

from support.app import HELLO_MESSAGES, gateway, problem
from support.sse import comments, payloads
from support.upstream import COUNTS, HELLO, call, chunk, completion_body, frame, stream, whole

BAD = "invalid_request_error"
USER = {"role": "user", "content": "Hello"}
WEATHER = {
    "name": "get_weather",
    "description": "The weather of a city",
    "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
}
CLOCK = {"name": "clock", "parameters": {"type": "object", "properties": {}}}
TOOL, CLOCK_TOOL = {"type": "function", "function": WEATHER}, {"type": "function", "function": CLOCK}
SHELL = {"type": "custom", "custom": {"name": "shell", "description": "Runs a command"}}
CALLED = {"id": "call_1", "type": "function", "function": {"name": "get_weather", "arguments": '{"city":"Oslo"}'}}
ANSWERED = {"role": "tool", "tool_call_id": "call_1", "content": "rain"}
KINDS = ("openai", "vllm", "llamacpp", "lmstudio", "sglang", "transformers")  # with an API for chat completions


# Requests that are refused


def kind_of(value):
    return {
        bool: "a boolean",
        int: "an integer",
        float: "a decimal",
        str: "a string",
        list: "an array",
        dict: "an object",
    }[type(value)]


def typed(name, value, expected):
    text = f"Invalid type for '{name}': expected {expected}, but got {kind_of(value)} instead."
    return {name.split(".")[0].split("[")[0]: value}, text, "invalid_type", name


def wrong_types():
    for names, expected, values in (
        (("model", "prompt_cache_key", "prompt_cache_retention", "service_tier", "user"), "a string", (1, [], {}, True)),
        (("safety_identifier", "reasoning_effort", "verbosity"), "a string", (1, [], {})),
        (("messages", "tools", "functions", "modalities"), "an array", ("a", {}, 1)),
        (("stop",), "an array", (1, {}, True)),
        (("audio", "logit_bias", "metadata", "moderation", "prediction", "prompt_cache_options", "response_format",
          "stream_options", "tool_choice", "function_call", "web_search_options"), "an object", ([], 1, True)),
        (("logprobs", "parallel_tool_calls", "store", "stream"), "a boolean", ("true", 1, 0)),
        (("max_completion_tokens", "max_tokens", "n", "seed", "top_logprobs"), "an integer", ("1", 1.5, True, [])),
        (("frequency_penalty", "presence_penalty", "temperature", "top_p"), "a decimal", ("1", False, {})),
    ):  # fmt: skip
        for name in names:
            for value in values:
                yield typed(name, value, expected)


def below(name, kind, least, got):
    text = f"Invalid '{name}': {kind} below minimum value. Expected a value >= {least}, but got {got} instead."
    return {name: got}, text, f"{kind}_below_min_value", name


def above(name, kind, most, got):
    text = f"Invalid '{name}': {kind} above maximum value. Expected a value <= {most}, but got {got} instead."
    return {name: got}, text, f"{kind}_above_max_value", name


def missing(name, **fields):
    return fields, f"Missing required parameter: '{name}'.", "missing_required_parameter", name


def not_among(name, value, supported, **fields):
    return (
        fields or {name: value},
        f"Invalid value: '{value}'. Supported values are: {supported}.",
        "invalid_value",
        name,
    )


def message(*messages):
    return {"messages": [*messages]}


ROLES = "'developer', 'system', 'user', 'assistant', 'tool', and 'function'"
EFFORTS = "'none', 'minimal', 'low', 'medium', 'high', 'xhigh', and 'max'"
NOT_PRECEDED = (
    "Invalid parameter: messages with role 'tool' must be a response to a preceding message with 'tool_calls'."
)
REFUSED = [
    *wrong_types(),
    missing("model", model=None),
    missing("messages", messages=None),
    ({"messages": []}, "Invalid 'messages': empty array. Expected an array with minimum length 1, but got an empty array instead.", "empty_array", "messages"),
    above("temperature", "decimal", 2, 2.1),
    below("temperature", "decimal", 0, -0.1),
    above("top_p", "decimal", 1, 1.01),
    below("top_p", "decimal", 0, -1),
    above("frequency_penalty", "decimal", 2, 3),
    below("frequency_penalty", "decimal", -2, -3),
    above("presence_penalty", "decimal", 2, 3),
    below("presence_penalty", "decimal", -2, -2.5),
    below("max_tokens", "integer", 1, 0),
    below("max_completion_tokens", "integer", 1, -5),
    below("n", "integer", 1, 0),
    above("n", "integer", 128, 129),
    below("top_logprobs", "integer", 0, -1),
    above("top_logprobs", "integer", 20, 21),
    not_among("reasoning_effort", "huge", EFFORTS),
    not_among("verbosity", "chatty", "'low', 'medium', and 'high'"),
    not_among("tool_choice", "maybe", "'none', 'auto', and 'required'"),
    not_among("function_call", "maybe", "'none' and 'auto'"),
    not_among("modalities[1]", "smell", "'text' and 'audio'", modalities=["text", "smell"]),
    ({"modalities": ["text", "audio"]}, "Audio output is not supported. Request only 'text'.", "unsupported_value", "modalities"),
    ({"moderation": {"model": "m", "policy": {"output": {"mode": "block"}}}}, "Blocking moderation is not supported: the gateway has no moderation engine.", "unsupported_value", "moderation"),
    ({"safety_identifier": "x" * 129}, "Invalid 'safety_identifier': string too long. Expected a string with maximum length 128, but got a string with length 129 instead.", "string_above_max_length", "safety_identifier"),
    ({"metadata": {str(i): "x" for i in range(17)}}, "Invalid 'metadata': too many properties. Expected an object with at most 16, but got 17.", "object_above_max_properties", "metadata"),
    ({"metadata": {"k" * 65: "x"}}, None, "string_above_max_length", "metadata." + "k" * 64),
    ({"metadata": {"k": "x" * 513}}, None, "string_above_max_length", "metadata.k"),
    ({"metadata": {"k": 1}}, "Invalid type for 'metadata.k': expected a string, but got an integer instead.", "invalid_type", "metadata.k"),
    ({"stop": "x" * 16385}, "Invalid 'stop': the stop sequences have 16385 characters in total. Send at most 16384.", "string_above_max_length", "stop"),
    ({"stop": ["x" * 9000] * 2}, None, "string_above_max_length", "stop"),
    ({"stop": ["a", 1]}, "Invalid type for 'stop[1]': expected a string, but got an integer instead.", "invalid_type", "stop[1]"),
    ({"stream_options": {"include_usage": True}}, "The 'stream_options' parameter is only allowed when 'stream' is enabled.", None, "stream_options"),
    ({"stream": True, "stream_options": {"include_usage": "yes"}}, None, "invalid_type", "stream_options.include_usage"),
    ({"stream": True, "stream_options": {"include_obfuscation": 1}}, None, "invalid_type", "stream_options.include_obfuscation"),
    ({"top_logprobs": 3}, "The 'top_logprobs' parameter is only allowed when 'logprobs' is enabled.", None, "top_logprobs"),
    ({"top_logprobs": 3, "logprobs": False}, None, None, "top_logprobs"),
    missing("response_format.type", response_format={}),
    missing("response_format.json_schema", response_format={"type": "json_schema"}),
    ({"response_format": {"type": "json_schema", "schema": []}}, None, "invalid_type", "response_format.schema"),
    ({"response_format": {"type": "json_object", "schema": "x"}}, None, "invalid_type", "response_format.schema"),
    missing("response_format.json_schema.name", response_format={"type": "json_schema", "json_schema": {}}),
    ({"response_format": {"type": "json_schema", "json_schema": {"name": "x" * 65}}}, None, "string_above_max_length", "response_format.json_schema.name"),
    ({"response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": []}}}, None, "invalid_type", "response_format.json_schema.schema"),
    # tools
    ({"tools": [TOOL] * 129}, "Invalid 'tools': array too long. Expected an array with maximum length 128, but got an array with length 129 instead.", "array_above_max_length", "tools"),
    ({"tools": [1]}, "Invalid type for 'tools[0]': expected an object, but got an integer instead.", "invalid_type", "tools[0]"),
    missing("tools[0].type", tools=[{"function": WEATHER}]),
    not_among("tools[1].type", "web_search", "'function' and 'custom'", tools=[TOOL, {"type": "web_search"}]),
    missing("tools[0].function", tools=[{"type": "function"}]),
    missing("tools[0].function.name", tools=[{"type": "function", "function": {}}]),
    ({"tools": [{"type": "function", "function": {"name": "f", "parameters": "none"}}]}, None, "invalid_type", "tools[0].function.parameters"),
    ({"tools": [{"type": "function", "function": {"name": "f", "strict": "yes"}}]}, None, "invalid_type", "tools[0].function.strict"),
    missing("tools[0].custom", tools=[{"type": "custom"}]),
    missing("tools[0].custom.name", tools=[{"type": "custom", "custom": {}}]),
    ({"tools": [{"type": "custom", "custom": {"name": "f", "format": "text"}}]}, None, "invalid_type", "tools[0].custom.format"),
    ({"tool_choice": "required"}, "'tool_choice' is only allowed when 'tools' are specified.", None, "tool_choice"),
    ({"tool_choice": "required", "tools": []}, None, None, "tool_choice"),
    missing("tool_choice.type", tool_choice={}, tools=[TOOL]),
    not_among("tool_choice.type", "any", "'function', 'custom', and 'allowed_tools'", tool_choice={"type": "any"}, tools=[TOOL]),
    missing("tool_choice.function", tool_choice={"type": "function"}, tools=[TOOL]),
    missing("tool_choice.function.name", tool_choice={"type": "function", "function": {}}, tools=[TOOL]),
    ({"tool_choice": {"type": "function", "function": {"name": "x"}}, "tools": [TOOL]}, "Invalid value for 'tool_choice': the tool 'x' is not among 'tools'.", "invalid_value", "tool_choice"),
    ({"tool_choice": {"type": "custom", "custom": {"name": "x"}}, "tools": [SHELL]}, None, "invalid_value", "tool_choice"),
    ({"tool_choice": {"type": "function", "function": {"name": "x"}}}, None, "invalid_value", "tool_choice"),
    missing("tool_choice.allowed_tools.mode", tool_choice={"type": "allowed_tools", "allowed_tools": {"tools": []}}, tools=[TOOL]),
    missing("tool_choice.allowed_tools.tools", tool_choice={"type": "allowed_tools", "allowed_tools": {"mode": "auto"}}, tools=[TOOL]),
    ({"tool_choice": {"type": "allowed_tools", "allowed_tools": {"mode": "auto", "tools": [TOOL, CLOCK_TOOL, {"type": "function", "name": "z"}]}}, "tools": [TOOL]},
     "Invalid value for 'tool_choice': the tool 'clock' is not among 'tools'.", "invalid_value", "tool_choice"),
    ({"functions": []}, None, "empty_array", "functions"),
    ({"functions": [WEATHER], "tools": [TOOL]}, "'functions' and 'tools' are mutually exclusive. Send only 'tools'.", None, "functions"),
    missing("functions[0].name", functions=[{}]),
    missing("function_call.name", functions=[WEATHER], function_call={}),
    ({"functions": [WEATHER], "function_call": {"name": "x"}}, None, "invalid_value", "tool_choice"),
    # messages
    (message(1), "Invalid type for 'messages[0]': expected an object, but got an integer instead.", "invalid_type", "messages[0]"),
    missing("messages[1].role", **message(USER, {"content": "x"})),
    not_among("messages[0].role", "robot", ROLES, **message({"role": "robot", "content": "x"})),
    missing("messages[0].content", **message({"role": "user"})),
    missing("messages[0].content", **message({"role": "user", "content": None})),
    missing("messages[0].content", **message({"role": "system"})),
    (message({"role": "user", "content": 5}), "Invalid type for 'messages[0].content': expected one of a string or array of objects, but got an integer instead.", "invalid_type", "messages[0].content"),
    (message({"role": "user", "content": ["x"]}), None, "invalid_type", "messages[0].content[0]"),
    missing("messages[0].content[0].type", **message({"role": "user", "content": [{"text": "x"}]})),
    missing("messages[0].content[1].text", **message({"role": "user", "content": [{"type": "text", "text": ""}, {"type": "text"}]})),
    missing("messages[0].content[0].image_url", **message({"role": "user", "content": [{"type": "image_url"}]})),
    missing("messages[0].content[0].input_audio", **message({"role": "user", "content": [{"type": "input_audio"}]})),
    (message({"role": "user", "content": "x", "name": 1}), None, "invalid_type", "messages[0].name"),
    (message(USER, {"role": "assistant", "refusal": 1}), None, "invalid_type", "messages[1].refusal"),
    (message(USER, {"role": "assistant", "tool_calls": "x"}), None, "invalid_type", "messages[1].tool_calls"),
    (message({**USER, "tool_calls": 5}), None, "invalid_type", "messages[0].tool_calls"),
    (message({**USER, "tool_calls": ["x"]}), None, "invalid_type", "messages[0].tool_calls[0]"),
    (message({**USER, "function_call": "x"}), None, "invalid_type", "messages[0].function_call"),
    missing("messages[1].tool_calls[0].id", **message(USER, {"role": "assistant", "tool_calls": [{"type": "function"}]})),
    missing("messages[1].tool_calls[0].type", **message(USER, {"role": "assistant", "tool_calls": [{"id": "a"}]})),
    missing("messages[1].tool_calls[0].function", **message(USER, {"role": "assistant", "tool_calls": [{"id": "a", "type": "function"}]})),
    missing("messages[1].tool_calls[0].custom", **message(USER, {"role": "assistant", "tool_calls": [{"id": "a", "type": "custom"}]})),
    (message(USER, {"role": "assistant", "tool_calls": [{"id": "a", "type": "function", "function": {"name": "f", "arguments": {}}}]}), None, "invalid_type", "messages[1].tool_calls[0].function.arguments"),
    missing("messages[1].function_call.arguments", **message(USER, {"role": "assistant", "function_call": {"name": "f"}})),
    missing("messages[0].tool_call_id", **message({"role": "tool", "content": "x"})),
    missing("messages[0].content", **message({"role": "tool", "tool_call_id": "a"})),
    (message(USER, ANSWERED), NOT_PRECEDED, None, "messages[1].role"),
    (message(USER, {"role": "assistant", "tool_calls": [CALLED]}, {**ANSWERED, "tool_call_id": "call_2"}), NOT_PRECEDED, None, "messages[2].role"),
    missing("messages[0].name", **message({"role": "function", "content": "x"})),
    (message({"role": "function", "name": "f", "content": 1}), None, "invalid_type", "messages[0].content"),
    (message(USER, {"role": "function", "name": "f", "content": "x"}), "The result of function 'f' has no preceding call.", None, "messages[1].name"),
]  # fmt: skip


async def test_request_not_allowed_by_the_api_gets_its_error_message():
    async with gateway(HELLO) as site:
        for fields, text, code, param in REFUSED:
            answer = await site.chat(**fields)
            assert problem(answer) == (400, BAD, code, param), fields
            if text:
                assert answer.json()["error"]["message"] == text
        assert site.upstream.posts == [], "the backend gets no request"


@pytest.mark.parametrize(
    "body",
    [b"", b"{", b"{'model': 1}", b'{"model": "m", "messages": [}', b"\xff\xfe", b'{"model": "\xff"}', b"NaN", b'{"n": 1e999}',
     b"[" * 100_000, b'{"user": "\\ud800"}', b"\xef\xbb\xbf{}"],
    ids=["empty", "cut", "quotes", "broken", "utf-16", "latin", "nan", "huge", "deep", "half a surrogate", "bom"],
)  # fmt: skip
async def test_request_body_that_is_not_json_is_a_400(body):
    async with gateway(HELLO) as site:
        answer = await site.chat(body)
        assert problem(answer) == (400, BAD, None, None)
        assert answer.json()["error"]["message"].startswith("We could not parse the JSON body of your request.")


@pytest.mark.parametrize(
    ("body", "got"), [(b"[]", "an array"), (b'"x"', "a string"), (b"null", "null"), (b"1.5", "a decimal")]
)
async def test_request_body_that_is_not_an_object_is_a_400(body, got):
    async with gateway(HELLO) as site:
        answer = await site.chat(body)
        assert problem(answer) == (400, BAD, "invalid_type", "body")
        assert (
            answer.json()["error"]["message"] == f"Invalid type for 'body': expected an object, but got {got} instead."
        )


# Requests that are sent to the backend


# A response that fits a request without a forced tool call.
AN_OBJECT = stream(chunk("{}"), chunk(finish="stop"), frame(choices=[], usage=COUNTS))


def a_call(tool):
    pieces = call(id="c", name=tool[tool["type"]]["name"], arguments="{}")
    return stream(chunk(tool_calls=pieces), chunk(finish="tool_calls"), frame(choices=[], usage=COUNTS))


async def sent(fields, kind="openai", **model):
    """Send a request; return the body that the upstream got, without the fields of every request, and the warnings."""
    (found,) = await all_sent([fields], kind, **model)
    return found


async def all_sent(requests, kind="openai", **model):
    """Do the same with several requests, one after the other, at one gateway."""
    found = []
    async with gateway(*map(fitting_script, requests), backend={"kind": kind}, model=model) as site:
        for fields in requests:
            answer = await site.chat(stream=True, **fields)
            assert answer.status_code == 200, answer.text
            body = site.upstream_body
            assert body.pop("stream") is True
            assert body.pop("model") == "m"
            if body.get("stream_options") == {"include_usage": True}:
                del body["stream_options"]
            if body["messages"] == HELLO_MESSAGES:
                del body["messages"]
            found.append((body, answer.headers.get("x-gateway-warnings")))
        assert len(site.upstream.posts) == len(requests)
    return found


def fitting_script(fields):
    forced = fields.get("tool_choice") not in (None, "auto", "none")
    return a_call(fields["tools"][-1]) if forced else AN_OBJECT


def all_warnings(answer):
    """Return the warnings of the header and those of the comments in the stream."""
    return " ".join([answer.headers.get("x-gateway-warnings", ""), *comments(answer.text)])


NULLABLE = (
    "audio", "frequency_penalty", "function_call", "functions", "logit_bias", "logprobs", "max_completion_tokens",
    "max_tokens", "metadata", "modalities", "moderation", "n", "parallel_tool_calls", "prediction", "presence_penalty",
    "prompt_cache_key", "prompt_cache_options", "prompt_cache_retention", "reasoning_effort", "response_format",
    "safety_identifier", "seed", "service_tier", "stop", "store", "stream_options", "temperature", "tool_choice",
    "tools", "top_logprobs", "top_p", "user", "verbosity", "web_search_options", "made_up",
)  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
async def test_field_null_counts_as_absent(kind):
    assert await sent(dict.fromkeys(NULLABLE), kind) == ({}, None)


async def test_stream_may_be_null():
    async with gateway(whole(completion_body())) as site:
        assert (await site.chat(stream=None)).json()["object"] == "chat.completion"
        assert site.upstream_body["stream"] is False
        assert "stream_options" not in site.upstream_body


PASSED = {
    "frequency_penalty": -2, "presence_penalty": 2.0, "logit_bias": {"50": -100}, "reasoning_effort": "xhigh",
    "response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": {"type": "object"}, "strict": True}},
    "seed": 2**63, "stop": ["a", "b", "c", "d"], "temperature": 0, "top_p": 1, "logprobs": True, "top_logprobs": 20,
}  # fmt: skip
NOT_PASSED = {
    "lmstudio": (
        ("logprobs", "top_logprobs"), {"reasoning_effort": "high"},
        "translated:reasoning_effort, dropped:logprobs, dropped:top_logprobs",
    ),
    "transformers": (
        ("presence_penalty", "reasoning_effort", "response_format", "logprobs", "top_logprobs"),
        {
            "chat_template_kwargs": {"reasoning_effort": "xhigh", "enable_thinking": True},
            "messages": [
                {"role": "system", "content": 'Answer with nothing but JSON that fits this JSON Schema: {"type":"object"}'},
                *HELLO_MESSAGES,
            ],
        },
        "emulated:response_format, dropped:presence_penalty, translated:reasoning_effort, dropped:logprobs, dropped:top_logprobs",
    ),
}  # fmt: skip
OWN_SERVICE = {
    "audio": {"format": "wav", "voice": "x"}, "prompt_cache_key": "k", "prompt_cache_options": {},
    "prompt_cache_retention": "24h", "safety_identifier": "x" * 128, "service_tier": "fast", "user": "u",
}  # fmt: skip
NOT_DONE = {
    "moderation": {"model": "m", "policy": {"input": {"mode": "score"}}}, "prediction": {"type": "content", "content": "x"}, "verbosity": "low", "web_search_options": {},
}  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
async def test_field_that_a_kind_supports_is_sent_unchanged(kind):
    upstream_body, warnings = await sent(PASSED, kind)
    if kind in NOT_PASSED:
        names, translated, listed = NOT_PASSED[kind]
        assert upstream_body == {name: value for name, value in PASSED.items() if name not in names} | translated
        assert warnings == listed
    else:
        assert (upstream_body, warnings) == (PASSED, None)


@pytest.mark.parametrize("kind", KINDS)
async def test_field_of_the_openai_service_is_left_out_without_a_warning(kind):
    assert await sent(OWN_SERVICE, kind) == (OWN_SERVICE if kind == "openai" else {}, None)


@pytest.mark.parametrize("kind", KINDS)
async def test_field_that_no_local_backend_supports_is_dropped_with_a_warning(kind):
    upstream_body, warnings = await sent(NOT_DONE, kind)
    if kind == "openai":
        assert (upstream_body, warnings) == (NOT_DONE, None)
    else:
        assert (upstream_body, warnings) == ({}, ", ".join(f"dropped:{name}" for name in NOT_DONE))


@pytest.mark.parametrize("kind", KINDS)
async def test_field_with_its_default_value_is_left_out_without_a_warning(kind):
    text = {"response_format": {"type": "text"}}
    defaults = {"verbosity": "medium", "store": False, "modalities": ["text"], "n": 1}
    assert await all_sent([{"stop": "a", **text}, defaults], kind) == [
        ({"stop": "a", **(text if kind != "transformers" else {})}, None),
        ({}, None),
    ]


@pytest.mark.parametrize("kind", KINDS)
async def test_field_unknown_to_the_api_is_forwarded_with_a_warning(kind):
    fields = {"chat_template_kwargs": {"enable_thinking": False}, "made_up": 5, "made up, too": 6}
    warnings = "forwarded:chat_template_kwargs, forwarded:made_up, forwarded:made?up?too"
    if kind == "transformers":  # it refuses unknown fields
        kept = {"chat_template_kwargs": {"enable_thinking": False}}
        assert await sent(fields, kind) == (kept, warnings.replace("forwarded:made", "dropped:made"))
    else:
        assert await sent(fields, kind) == (fields, warnings)


LIMITS = {
    "openai": None, "vllm": "max_completion_tokens", "llamacpp": "max_tokens", "lmstudio": "max_tokens",
    "sglang": "max_completion_tokens", "transformers": "max_tokens",
}  # fmt: skip


REQUESTED_LIMITS = [  # fields, name that the client uses, limit
    ({"max_tokens": 5}, "max_tokens", 5),
    ({"max_completion_tokens": 6}, "max_completion_tokens", 6),
    ({"max_tokens": 5, "max_completion_tokens": 6}, "max_completion_tokens", 6),
]


@pytest.mark.parametrize("kind", KINDS)
async def test_field_for_the_token_limit_has_the_name_of_the_kind(kind):
    found = await all_sent([fields for fields, _, _ in REQUESTED_LIMITS], kind)
    assert found == [({LIMITS[kind] or name: limit}, None) for _, name, limit in REQUESTED_LIMITS]


@pytest.mark.parametrize("n", [2, 128])
async def test_choice_count_is_sent_and_a_missing_choice_is_a_warning(n):
    async with gateway(HELLO, whole(completion_body())) as site:
        answer = await site.chat(stream=True, n=n)
        assert site.upstream_body["n"] == n
        assert "unenforced:n" in all_warnings(answer)
        assert (await site.chat(n=n)).headers["x-gateway-warnings"] == "unenforced:n"


STREAM_OPTIONS = [
    ({}, {"include_usage": True}),
    ({"include_usage": False}, {"include_usage": True}),
    ({"include_usage": True, "continuous_usage_stats": True}, {"include_usage": True, "continuous_usage_stats": True}),
    ({"include_obfuscation": True}, {"include_usage": True}),
]


@pytest.mark.parametrize(("given", "expected"), STREAM_OPTIONS)
async def test_usage_is_always_requested_and_shown_only_on_request(given, expected):
    async with gateway(HELLO) as site:
        answer = await site.chat(stream=True, stream_options=given)
        assert site.upstream_body["stream_options"] == expected
        *chunks, done = payloads(answer.text)
        assert done == "[DONE]"
        shown = [chunk["usage"]["total_tokens"] for chunk in chunks if chunk.get("usage")]
        if given.get("include_usage"):
            assert (chunks[-1]["choices"], shown[-1]) == ([], 9)
            assert all("usage" in chunk for chunk in chunks)
        else:
            assert not any("usage" in chunk for chunk in chunks)
        padded = [chunk for chunk in chunks if chunk.get("obfuscation")]
        assert bool(padded) == bool(given.get("include_obfuscation"))


async def test_service_tier_is_in_the_response_only_if_requested():
    async with gateway(HELLO, whole(completion_body()), HELLO, backend={"kind": "vllm"}) as site:
        assert payloads((await site.chat(stream=True, service_tier="auto")).text)[0]["service_tier"] == "default"
        assert (await site.chat(service_tier="flex")).json()["service_tier"] == "default"
        assert "service_tier" not in payloads((await site.chat(stream=True)).text)[0]


EXTRAS = [
    ({"prompt_logprobs": 0}, {"prompt_logprobs": [None, {"1": {"logprob": -0.5}}]}, {}),
    ({"return_token_ids": True}, {"prompt_token_ids": [1, 2]}, {"token_ids": [7]}),
    ({"kv_transfer_params": {"a": 1}}, {"kv_transfer_params": {"b": 2}}, {}),
    ({"timings_per_token": True}, {"timings": {"prompt_n": 3, "predicted_n": 4}}, {}),
]


@pytest.mark.parametrize(("extra_fields", "of_answer", "of_choice"), EXTRAS)
async def test_field_added_by_a_backend_is_shown_whether_requested_or_not(extra_fields, of_answer, of_choice):
    body = completion_body()
    body |= of_answer
    body["choices"][0] |= of_choice
    choice = {"index": 0, "delta": {"content": "Hi"}, "finish_reason": None, **of_choice}
    streamed = stream(frame(choices=[choice], **of_answer), chunk(finish="stop"))
    async with gateway(whole(body), whole(body), streamed, streamed) as site:
        for fields in (extra_fields, {}):
            answer = (await site.chat(**fields)).json()
            assert of_answer.items() <= answer.items()
            assert of_choice.items() <= answer["choices"][0].items()
        for fields in (extra_fields, {}):
            chunks = payloads((await site.chat(stream=True, **fields)).text)[:-1]
            assert any(of_answer.items() <= chunk.items() for chunk in chunks)
            assert any(of_choice.items() <= one.items() for chunk in chunks for one in chunk["choices"])
    sent_fields, _ = await sent({name: False for name in extra_fields})
    assert sent_fields == {name: False for name in extra_fields}


async def test_token_ids_of_held_back_text_come_with_it_complete():
    pieces = [("a <th", [1, 2]), ("ou", [3]), (">", [4])]
    frames = [frame(choices=[{"index": 0, "delta": {"content": text}, "token_ids": ids}]) for text, ids in pieces]
    async with gateway(stream(*frames, chunk(finish="stop"))) as site:
        answer = await site.chat(stream=True, return_token_ids=True)
        choices = [one for chunk in payloads(answer.text)[:-1] for one in chunk["choices"]]
        assert "".join(one["delta"].get("content", "") for one in choices) == "a <thou>"
        assert [id for one in choices for id in one.get("token_ids", ())] == [1, 2, 3, 4]


async def test_prompt_progress_is_streamed_if_requested():
    progress = {"total": 10, "processed": 5}
    script = stream(
        frame(choices=[{"index": 0, "delta": {"role": "assistant"}}], prompt_progress=progress),
        chunk("Hi"),
        chunk(finish="stop"),
    )
    async with gateway(script) as site:
        chunks = payloads((await site.chat(stream=True, return_progress=True)).text)
        assert [chunk["prompt_progress"] for chunk in chunks[:-1] if "prompt_progress" in chunk] == [progress]
        assert sum("role" in one["delta"] for chunk in chunks[:-1] for one in chunk["choices"]) == 1


async def test_response_that_continues_a_message_of_the_client_has_its_role():
    messages = [USER, {"role": "user", "content": "And"}]
    async with gateway(HELLO, whole(completion_body()), HELLO) as site:
        more = {"messages": messages, "add_generation_prompt": False}
        assert payloads((await site.chat(stream=True, **more)).text)[0]["choices"][0]["delta"]["role"] == "user"
        assert (await site.chat(**more)).json()["choices"][0]["message"]["role"] == "user"
        answer = await site.chat(stream=True, messages=messages, add_generation_prompt=True)
        assert payloads(answer.text)[0]["choices"][0]["delta"]["role"] == "assistant"


# Tools

NAMED = {"type": "function", "function": {"name": "clock"}}
ALLOWED = {"type": "allowed_tools", "allowed_tools": {"mode": "auto", "tools": [{"type": "function", "name": "clock"}]}}
REQUIRED = {"type": "allowed_tools", "allowed_tools": {"mode": "required", "tools": [CLOCK_TOOL]}}
BOTH = [TOOL, CLOCK_TOOL]
SHIM = {
    "type": "function",
    "function": {
        "name": "shell",
        "description": "Runs a command",
        "parameters": {
            "type": "object",
            "properties": {"input": {"type": "string", "description": "The whole input of the tool, as plain text."}},
            "required": ["input"],
            "additionalProperties": False,
        },
    },
}
FORCING = ("openai", "vllm", "sglang")
WORDS_ONLY = ("llamacpp", "lmstudio")
IGNORING = ("transformers",)
IN_OTHER_WORDS = "emulated:tool_choice"
EMULATED = "emulated:tools.custom"
CHOICES = [  # kinds, tool_choice, tools and choice upstream, warnings
    (KINDS, None, BOTH, None, None),
    (KINDS, "auto", BOTH, "auto", None),
    (KINDS, "none", None, None, None),
    (KINDS, ALLOWED, [CLOCK_TOOL], "auto", None),
    ((*FORCING, *WORDS_ONLY), "required", BOTH, "required", None),
    ((*FORCING, *WORDS_ONLY), REQUIRED, [CLOCK_TOOL], "required", None),
    (FORCING, NAMED, BOTH, NAMED, None),
    (WORDS_ONLY, NAMED, [CLOCK_TOOL], "required", None),
    (IGNORING, "required", BOTH, None, IN_OTHER_WORDS),
    (IGNORING, REQUIRED, [CLOCK_TOOL], None, IN_OTHER_WORDS),
    (IGNORING, NAMED, [CLOCK_TOOL], None, IN_OTHER_WORDS),
]
IN_WORDS = "Answer with a call of {}, and with nothing else."


@pytest.mark.parametrize("kind", KINDS)
async def test_tool_choice_is_sent_in_the_form_that_the_kind_understands(kind):
    cases = [case for kinds, *case in CHOICES if kind in kinds]
    requests = [{"tools": BOTH, **({"tool_choice": choice} if choice else {})} for choice, *_ in cases]
    found = await all_sent(requests, kind)
    for (choice, tools, expected, warnings), got in zip(cases, found, strict=True):
        wanted = {**({"tools": tools} if tools else {}), **({"tool_choice": expected} if expected else {})}
        if warnings == IN_OTHER_WORDS:
            which = "the tool 'clock'" if choice == NAMED else "one of the tools"
            wanted["messages"] = [{"role": "system", "content": IN_WORDS.format(which)}, *HELLO_MESSAGES]
        assert got == (wanted, warnings), choice


@pytest.mark.parametrize("format", ["auto", "native", "hermes_json"])
@pytest.mark.parametrize("kind", KINDS)
async def test_tool_choice_is_none_where_the_gateway_parses_the_tool_calls(kind, format):
    found = await all_sent([{"tools": BOTH, "tool_choice": choice} for choice in (None, "auto")], kind, format=format)
    here = kind in ("vllm", "llamacpp") and format == "hermes_json"
    unset, auto = [{"tool_choice": "none"}] * 2 if here else ({}, {"tool_choice": "auto"})
    assert found == [({"tools": BOTH, **unset}, None), ({"tools": BOTH, **auto}, None)]


async def test_tool_definition_is_sent_without_nulls():
    bare = {"type": "function", "function": {"name": "f", "description": None, "parameters": None}}
    upstream_body, warnings = await sent({"tools": [bare]})
    (tool,) = upstream_body["tools"]
    assert tool["function"] == {"name": "f", "parameters": {"type": "object", "properties": {}}} and not warnings


@pytest.mark.parametrize("kind", KINDS)
async def test_tool_list_that_is_empty_is_not_sent(kind):
    none = {"tools": [], "parallel_tool_calls": False}
    found = await all_sent([{**none, "tool_choice": choice} for choice in (None, "none", "auto")], kind)
    assert found == [({}, None)] * 3


async def test_tool_call_markup_is_text_if_no_tool_may_be_called():
    text = 'Look: <tool_call>{"name": "clock", "arguments": {}}</tool_call>'
    async with gateway(whole(completion_body(text))) as site:
        for fields in ({}, {"tools": []}, {"tools": BOTH, "tool_choice": "none"}):
            (choice,) = (await site.chat(**fields)).json()["choices"]
            assert (choice["message"]["content"], choice["finish_reason"]) == (text, "stop")
        (choice,) = (await site.chat(tools=BOTH)).json()["choices"]
        assert choice["message"]["tool_calls"][0]["function"]["name"] == "clock"


@pytest.mark.parametrize("kind", KINDS)
async def test_custom_tool_is_sent_as_a_function_and_its_calls_become_custom(kind):
    script = stream(chunk(tool_calls=call("shell", '{"input": "ls -l"}', id="call_9")), chunk(finish="tool_calls"))
    body = completion_body(
        None, tool_calls=[{**CALLED, "function": {"name": "shell", "arguments": '{"input": "ls -l"}'}}]
    )
    async with gateway(script, whole(body), backend={"kind": kind}) as site:
        answer = await site.chat(stream=True, tools=[SHELL])
        assert site.upstream_body["tools"] == [SHIM]
        calls = [
            one
            for chunk in payloads(answer.text)[:-1]
            for c in chunk["choices"]
            for one in c["delta"].get("tool_calls", ())
        ]
        assert calls[0] == {"index": 0, "id": "call_9", "type": "custom", "custom": {"name": "shell", "input": ""}}
        assert "".join(one["custom"]["input"] for one in calls) == "ls -l"
        message = (await site.chat(tools=[SHELL])).json()["choices"][0]["message"]
        assert message["tool_calls"] == [
            {"id": "call_1", "type": "custom", "custom": {"name": "shell", "input": "ls -l"}}
        ]


async def test_custom_tool_named_in_tool_choice_is_forced_as_a_function():
    fields = {"tools": [TOOL, SHELL], "tool_choice": {"type": "custom", "custom": {"name": "shell"}}}
    forced = {"type": "function", "function": {"name": "shell"}}
    assert await sent(fields, "vllm") == ({"tools": [TOOL, SHIM], "tool_choice": forced}, EMULATED)
    assert await sent(fields, "llamacpp") == ({"tools": [SHIM], "tool_choice": "required"}, EMULATED)


async def test_custom_tool_grammar_is_described_with_an_unenforced_warning():
    format = {"type": "grammar", "grammar": {"syntax": "lark", "definition": "start: /[0-9]+/"}}
    tool = {"type": "custom", "custom": {"name": "shell", "format": format}}
    upstream_body, warnings = await sent({"tools": [tool]})
    assert "[0-9]+" in upstream_body["tools"][0]["function"]["description"]
    assert warnings == f"{EMULATED}, unenforced:tools.custom.format"


async def test_custom_tool_call_of_the_past_is_sent_as_a_function_call():
    called = {"id": "c", "type": "custom", "custom": {"name": "shell", "input": 'say "hi"'}}
    messages = [
        USER,
        {"role": "assistant", "tool_calls": [called]},
        {"role": "tool", "tool_call_id": "c", "content": "hi"},
    ]
    upstream_body, _ = await sent({"messages": messages})
    assert json.loads(upstream_body["messages"][1]["tool_calls"][0]["function"]["arguments"]) == {"input": 'say "hi"'}


async def test_tool_call_beyond_the_first_is_dropped_if_not_parallel():
    calls = chunk(tool_calls=[*call("clock", "{}", id="a"), *call("get_weather", "{}", place=1, id="b")])
    script = stream(calls, chunk(finish="tool_calls"))
    async with gateway(script) as site:
        answer = await site.chat(stream=True, tools=BOTH, parallel_tool_calls=False)
        assert site.upstream_body["parallel_tool_calls"] is False
        assert "get_weather" not in answer.text
        assert "dropped:tool_calls" in all_warnings(answer)


@pytest.mark.parametrize("streamed", [False, True])
async def test_tool_call_is_dropped_if_tool_choice_is_none(streamed):
    call_of_clock = call("clock", "{}", id="a")
    script = stream(chunk("Hi"), chunk(tool_calls=call_of_clock), chunk(finish="tool_calls"))
    async with gateway(script if streamed else whole(completion_body("Hi", tool_calls=call_of_clock))) as site:
        answer = await site.chat(stream=streamed, tools=BOTH, tool_choice="none")
        assert "tools" not in site.upstream_body
        assert '"Hi"' in answer.text and '"finish_reason":"stop"' in answer.text and "clock" not in answer.text
        assert "dropped:tool_calls" in all_warnings(answer)


async def test_logprobs_with_tools_are_requested_unstreamed_from_llamacpp():
    fields = {"logprobs": True, "top_logprobs": 2, "tools": [TOOL]}
    assert await sent(fields, "vllm") == (fields, None)
    async with gateway(whole(completion_body()), backend={"kind": "llamacpp"}) as site:
        for streamed in (False, True):
            await site.chat(**fields, stream=streamed)
            assert (
                site.upstream_body["logprobs"],
                site.upstream_body["top_logprobs"],
                site.upstream_body["stream"],
            ) == (True, 2, False)


@pytest.mark.parametrize(("fields", "most"), [({}, 0), ({"top_logprobs": 0}, 0), ({"top_logprobs": 2}, 2)])
@pytest.mark.parametrize("streamed", [False, True])
async def test_logprobs_show_no_more_alternatives_than_requested(fields, most, streamed):
    others = [{"token": token, "logprob": -1.0, "bytes": None} for token in "xyz"]
    chances = {"content": [{"token": "Hi", "logprob": -0.5, "bytes": None, "top_logprobs": others}]}
    first_frame = frame(choices=[{"index": 0, "delta": {"content": "Hi"}, "logprobs": chances}])
    async with gateway(stream(first_frame, chunk(finish="stop")), backend={"kind": "llamacpp"}) as site:
        answer = await site.chat(logprobs=True, stream=streamed, **fields)
        assert answer.text.count('"logprob":-1.0') == most
        assert site.upstream_body["top_logprobs"] == max(most, 1)


# Functions, which tools replaced


FUNCTIONS = [
    (None, None),
    ("auto", "auto"),
    ({"name": "clock"}, NAMED),
]


@pytest.mark.parametrize(("choice", "expected"), FUNCTIONS)
async def test_functions_become_tools(choice, expected):
    fields = {"functions": [WEATHER, CLOCK], "function_call": choice}
    assert await sent(fields) == ({"tools": BOTH, **({"tool_choice": expected} if expected else {})}, None)


async def test_functions_are_not_sent_if_none_may_be_called():
    requests = [
        {"functions": [CLOCK], "function_call": "none"},
        {"function_call": "auto"},
        {"functions": [CLOCK], "tools": [], "tool_choice": "auto"},
    ]
    tools = {"tools": [CLOCK_TOOL], "tool_choice": "auto"}
    assert await all_sent(requests) == [({}, None), ({}, None), (tools, None)]


TWO_CALLS = [*call("get_weather", '{"city":', id="a"), *call(None, '"Oslo"}'), *call("clock", "{}", place=1, id="b")]


async def test_function_call_is_the_only_one_in_a_response_to_functions():
    whole_calls = [CALLED, {**CALLED, "id": "call_2"}]
    body = completion_body(None, tool_calls=whole_calls)
    body["choices"][0]["finish_reason"] = "tool_calls"
    script = stream(*(chunk(tool_calls=[one]) for one in TWO_CALLS), chunk(finish="tool_calls"))
    async with gateway(script, whole(body), HELLO, whole(completion_body())) as site:
        answer = await site.chat(stream=True, functions=[WEATHER, CLOCK])
        choices = [chunk["choices"][0] for chunk in payloads(answer.text)[:-1]]
        pieces = [one["delta"]["function_call"] for one in choices if "function_call" in one["delta"]]
        assert pieces[0] == {"name": "get_weather", "arguments": ""}
        assert "".join(piece["arguments"] for piece in pieces) == '{"city":"Oslo"}'
        assert sum("name" in piece for piece in pieces) == 1
        assert choices[-1]["finish_reason"] == "function_call"
        assert 'tool_calls"' not in answer.text
        assert "dropped:tool_calls" in all_warnings(answer)

        answer = await site.chat(functions=[WEATHER])
        (choice,) = answer.json()["choices"]
        assert choice["message"]["function_call"] == CALLED["function"]
        assert "tool_calls" not in choice["message"]
        assert choice["finish_reason"] == "function_call"
        assert "dropped:tool_calls" in answer.headers["x-gateway-warnings"]

        assert (
            payloads((await site.chat(stream=True, functions=[CLOCK])).text)[-2]["choices"][0]["finish_reason"]
            == "stop"
        )
        assert (await site.chat(functions=[CLOCK])).json()["choices"][0]["finish_reason"] == "stop"


async def test_function_call_that_was_cut_has_finish_reason_length():
    script = stream(chunk(tool_calls=call("clock", '{"a"', id="a")), chunk(finish="length"))
    async with gateway(script) as site:
        assert (await site.chat(functions=[CLOCK])).json()["choices"][0]["finish_reason"] == "length"


async def test_function_call_of_the_past_becomes_a_tool_call_with_an_id():
    called = {"name": "get_weather", "arguments": "{}"}
    messages = [
        USER,
        {"role": "assistant", "content": None, "function_call": called},
        {"role": "function", "name": "get_weather", "content": "rain"},
        {"role": "assistant", "content": None, "function_call": called},
        {"role": "function", "name": "get_weather", "content": None},
    ]

    def past(id):
        return {
            "role": "assistant",
            "content": None,
            "tool_calls": [{"id": id, "type": "function", "function": called}],
        }

    upstream_body, _ = await sent({"messages": messages})
    assert upstream_body["messages"] == [
        USER,
        past("call_function_1"),
        {"role": "tool", "tool_call_id": "call_function_1", "content": "rain"},
        past("call_function_3"),
        {"role": "tool", "tool_call_id": "call_function_3", "content": ""},
    ]


# Messages

SYSTEM, DEVELOPER = {"role": "system", "content": "Be brief."}, {"role": "developer", "content": "Be kind."}
LATE = {"role": "system", "content": "Be bold."}
ASSISTANT = {"role": "assistant", "content": "Hi"}


def parts(*texts, **more):
    return [{"type": "text", "text": text, **more} for text in texts]


IMAGE = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA", "detail": "original"}}
MOVED = "translated:messages.role"
POLICIES = [
    ({}, [SYSTEM, USER], [SYSTEM, USER], None),
    ({}, [DEVELOPER, USER], [{"role": "system", "content": "Be kind."}, USER], None),
    ({}, [SYSTEM, DEVELOPER, USER], [{"role": "system", "content": "Be brief.\n\nBe kind."}, USER], None),
    (
        {},
        [USER, LATE, ASSISTANT],
        [USER, {"role": "user", "content": "<system_message>Be bold.</system_message>"}, ASSISTANT],
        MOVED,
    ),
    (
        {},
        [USER, {"role": "system", "content": [*parts("a"), IMAGE]}],
        [USER, {"role": "user", "content": [*parts("<system_message>", "a"), IMAGE, *parts("</system_message>")]}],
        MOVED,
    ),
    ({}, [SYSTEM], [SYSTEM], None),
    ({}, [SYSTEM, LATE], [{"role": "system", "content": "Be brief.\n\nBe bold."}], None),
    ({"late_system": "keep"}, [SYSTEM, USER, LATE], [SYSTEM, USER, LATE], None),
    (
        {"late_system": "merge"},
        [SYSTEM, USER, LATE],
        [{"role": "system", "content": "Be brief.\n\nBe bold."}, USER],
        MOVED,
    ),
    ({"late_system": "merge"}, [USER, DEVELOPER], [{"role": "system", "content": "Be kind."}, USER], MOVED),
    ({"developer": "native"}, [DEVELOPER, USER], [DEVELOPER, USER], None),
    ({"developer": "native"}, [SYSTEM, DEVELOPER, USER], [SYSTEM, DEVELOPER, USER], None),
    ({"developer": "native", "late_system": "user"}, [USER, DEVELOPER], [USER, DEVELOPER], None),
]


@pytest.mark.parametrize(("roles", "given", "expected", "listed"), POLICIES)
async def test_message_of_system_or_developer_follows_the_policy_of_the_model(roles, given, expected, listed):
    upstream_body, warnings = await sent({"messages": given}, roles=roles)
    assert (upstream_body["messages"], warnings) == (expected, listed)


CONTENTS = [
    ([{"role": "user", "content": parts("a", "b")}], [{"role": "user", "content": "a\nb"}]),
    ([{"role": "system", "content": parts("a", "b")}, USER], [{"role": "system", "content": "a\nb"}, USER]),
    ([{"role": "user", "content": []}], [{"role": "user", "content": ""}]),
    (
        [{"role": "user", "content": [*parts("a", prompt_cache_breakpoint={"mode": "explicit"}), IMAGE]}],
        [{"role": "user", "content": [*parts("a"), IMAGE]}],
    ),
    (
        [{"role": "system", "content": [*parts("a"), IMAGE]}, DEVELOPER, USER],
        [{"role": "system", "content": [*parts("a"), IMAGE]}, {**DEVELOPER, "role": "system"}, USER],
    ),
    ([USER, {"role": "assistant", "content": parts("a", "b")}], [USER, {"role": "assistant", "content": "ab"}]),
    (
        [USER, {"role": "assistant", "content": [{"type": "refusal", "refusal": "No."}, {"type": "refusal"}]}],
        [USER, {"role": "assistant", "content": "No."}],
    ),
    ([USER, {"role": "assistant", "content": None, "refusal": "No."}], [USER, {"role": "assistant", "content": "No."}]),
    ([USER, {"role": "assistant", "content": "a", "refusal": None}], [USER, {"role": "assistant", "content": "a"}]),
    (
        [USER, {"role": "assistant", "content": "a", "annotations": [{"type": "url_citation"}], "parsed": {"a": 1}}, USER],
        [USER, {"role": "assistant", "content": "a"}, USER],
    ),
    ([USER, {"role": "assistant", "content": "a", "refusal": "No."}], [USER, {"role": "assistant", "content": "a\n\nNo."}]),
    (
        [USER, {"role": "assistant", "content": [*parts("a"), IMAGE], "refusal": "No."}],
        [USER, {"role": "assistant", "content": [*parts("a"), IMAGE, *parts("No.")]}],
    ),
    ([USER, {"role": "assistant"}], [USER, {"role": "assistant", "content": ""}]),
    ([USER, {"role": "assistant", "content": None, "tool_calls": []}], [USER, {"role": "assistant", "content": ""}]),
    (
        [USER, {"role": "assistant", "content": None, "tool_calls": [CALLED]}, {**ANSWERED, "content": parts("a", "b")}],
        [USER, {"role": "assistant", "content": None, "tool_calls": [CALLED]}, {**ANSWERED, "content": "a\nb"}],
    ),
    ([{**USER, "name": "Ann"}], [{**USER, "name": "Ann"}]),
]  # fmt: skip


@pytest.mark.parametrize(("given", "expected"), CONTENTS)
async def test_message_content_becomes_plain_text_or_parts_without_loss(given, expected):
    upstream_body, warnings = await sent({"messages": given})
    assert (upstream_body["messages"], warnings) == (expected, None)


REASONED = [
    ({"reasoning_content": "Hm."}, "Hm."),
    ({"reasoning": "Hm."}, "Hm."),
    ({"reasoning": "Hm.", "reasoning_content": "Hm."}, "Hm."),
    ({"reasoning_content": None, "reasoning": "Hm."}, "Hm."),
    ({"reasoning_details": [{"type": "reasoning.text", "text": "H"}, "x", {"text": "m."}, {"data": "?"}]}, "Hm."),
    ({"reasoning_details": [{"text": "other"}], "reasoning": "Hm."}, "Hm."),
    ({"reasoning_details": "x", "reasoning_content": ""}, None),
    ({"reasoning_content": ""}, None),
]


@pytest.mark.parametrize("kind", KINDS)
async def test_reasoning_of_the_past_is_sent_in_the_field_of_the_kind(kind):
    field = "reasoning" if kind == "vllm" else "reasoning_content"
    found = await all_sent([{"messages": [USER, {**ASSISTANT, **given}]} for given, _ in REASONED], kind)
    for (given, thought), (body, warnings) in zip(REASONED, found, strict=True):
        if kind == "transformers" and thought:
            assert (body["messages"][1], warnings) == (ASSISTANT, "dropped:messages.reasoning_content"), given
            continue
        lost = given.get("reasoning_details") and not thought
        assert warnings == ("dropped:messages.reasoning_details" if lost else None), given
        assert body["messages"][1] == {**ASSISTANT, **({field: thought} if thought else {})}, given


ARGUMENTS = [
    ('{"a": 1}', '{"a": 1}', None),
    ("", "{}", None),
    (" ", "{}", None),
    ('{"a": ', '{"__raw":"{\\"a\\": "}', "repaired:messages.tool_calls.function.arguments"),
    ("[1]", '{"__raw":"[1]"}', "repaired:messages.tool_calls.function.arguments"),
    ("[" * 100_000, None, "repaired:messages.tool_calls.function.arguments"),
]


@pytest.mark.parametrize(("given", "expected", "warnings"), ARGUMENTS, ids=lambda value: str(value)[:9])
async def test_tool_call_arguments_of_the_past_become_an_object(given, expected, warnings):
    called = {**CALLED, "function": {"name": "get_weather", "arguments": given}}
    upstream_body, found = await sent({"messages": [USER, {"role": "assistant", "tool_calls": [called]}, ANSWERED]})
    arguments = upstream_body["messages"][1]["tool_calls"][0]["function"]["arguments"]
    assert arguments == (expected or json.dumps({"__raw": given}, separators=(",", ":")))
    assert found == warnings


async def test_tool_call_id_of_the_conversation_is_not_used_again():
    body = completion_body(None, tool_calls=[CALLED])
    messages = [USER, {"role": "assistant", "tool_calls": [CALLED]}, ANSWERED]
    async with gateway(whole(body)) as site:
        answer = await site.chat(messages=messages, tools=[TOOL])
        (called,) = answer.json()["choices"][0]["message"]["tool_calls"]
        assert re.fullmatch(r"call_[A-Za-z0-9]{24}", called["id"])
        assert "synthesised:tool_calls.id" in answer.headers["x-gateway-warnings"]


# Strict mode

LOSSES = [
    ({"verbosity": "low"}, "vllm", "unsupported_parameter", "verbosity"),
    ({"logit_bias": {"5": 1}}, "ollama", "unsupported_parameter", "logit_bias"),
    ({"tools": [TOOL], "logprobs": True}, "lmstudio", "unsupported_parameter", "logprobs"),
    ({"top_k": 1}, "vllm", "unknown_parameter", "top_k"),
]


@pytest.mark.parametrize(("fields", "kind", "code", "param"), LOSSES)
async def test_strict_mode_refuses_a_field_that_would_be_lost(fields, kind, code, param):
    async with gateway(HELLO, backend={"kind": kind}, model={"strict": True}) as site:
        answer = await site.chat(stream=True, **fields)
        assert problem(answer) == (400, BAD, code, param)
        assert f"'{param}'" in answer.json()["error"]["message"]
        assert site.upstream.posts == []
    async with gateway(HELLO, backend={"kind": kind}) as site:
        assert problem(await site.chat(stream=True, headers={"x-gateway-strict": "1"}, **fields))[0] == 400
        assert site.upstream.posts == []
        await site.chat(stream=True, headers={"x-gateway-strict": "0"}, **fields)
        assert len(site.upstream.posts) == 1


@pytest.mark.parametrize("kind", KINDS)
async def test_strict_mode_accepts_fields_that_the_kind_honors(kind):
    async with gateway(HELLO, backend={"kind": kind}, model={"strict": True}) as site:
        fields = {"user": "u", "max_tokens": 5, "tools": [TOOL], "tool_choice": "auto", "temperature": 1, "seed": 1}
        assert (await site.chat(stream=True, **fields)).status_code == 200


async def test_strict_mode_accepts_a_repair():
    called = {**CALLED, "function": {"name": "get_weather", "arguments": "{"}}
    messages = [USER, {"role": "assistant", "tool_calls": [called]}, ANSWERED]
    async with gateway(HELLO, model={"strict": True}) as site:
        assert (await site.chat(stream=True, messages=messages)).status_code == 200


# Whole bodies, as the backend gets them

EVERYTHING = {
    "messages": [DEVELOPER, USER, {**ASSISTANT, "reasoning_content": "Hm.", "tool_calls": [CALLED]}, ANSWERED],
    "tools": BOTH,
    "tool_choice": NAMED,
    "max_completion_tokens": 9,
    "stream": True,
    "temperature": 0.5,
    "logprobs": True,
    "parallel_tool_calls": True,
    "user": "u",
    "verbosity": "high",
    "top_k": 3,
}
MESSAGES = [
    {"role": "system", "content": "Be kind."},
    USER,
    {**ASSISTANT, "tool_calls": [CALLED], "reasoning_content": "Hm."},
    ANSWERED,
]
THEIRS = [*MESSAGES[:2], {**ASSISTANT, "tool_calls": [CALLED], "reasoning": "Hm."}, ANSWERED]
IN_THE_SYSTEMS = {"role": "system", "content": "Be kind.\n\n" + IN_WORDS.format("the tool 'clock'")}
INSISTING = [IN_THE_SYSTEMS, USER, {"role": "assistant", "content": "", "tool_calls": [CALLED]}, ANSWERED]
ALWAYS = {
    "model": "theirs",
    "stream": True,
    "stream_options": {"include_usage": True},
    "temperature": 0.5,
    "top_k": 3,
}
COMMON = {**ALWAYS, "messages": MESSAGES, "logprobs": True, "parallel_tool_calls": True}
FORCED = {"tools": BOTH, "tool_choice": NAMED}
GOLDEN = {
    "openai": {**COMMON, **FORCED, "max_completion_tokens": 9, "user": "u", "verbosity": "high"},
    "vllm": {**COMMON, **FORCED, "max_completion_tokens": 9, "messages": THEIRS},
    "sglang": {**COMMON, **FORCED, "max_completion_tokens": 9},
    "lmstudio": {
        **ALWAYS, "messages": MESSAGES, "parallel_tool_calls": True, "tools": [CLOCK_TOOL], "tool_choice": "required",
        "max_tokens": 9,
    },
    "transformers": {
        "model": "theirs", "stream": True, "messages": INSISTING, "tools": [CLOCK_TOOL], "max_tokens": 9, "temperature": 0.5,
    },
    "llamacpp": {
        "model": "theirs", "stream": False, "temperature": 0.5, "top_k": 3, "messages": MESSAGES, "parallel_tool_calls": True,
        "tools": [CLOCK_TOOL], "tool_choice": "required", "max_tokens": 9, "logprobs": True, "top_logprobs": 1,
    },
}  # fmt: skip
WARNINGS = {
    "openai": "forwarded:top_k",
    "vllm": "dropped:verbosity, forwarded:top_k",
    "sglang": "dropped:verbosity, forwarded:top_k",
    "lmstudio": "dropped:logprobs, dropped:verbosity, forwarded:top_k",
    "transformers": "emulated:tool_choice, dropped:messages.reasoning_content, dropped:messages.content, "
    "dropped:logprobs, dropped:verbosity, dropped:top_k",
    "llamacpp": "emulated:logprobs, translated:logprobs, dropped:verbosity, forwarded:top_k",
}


@pytest.mark.parametrize("kind", KINDS)
async def test_request_body_is_complete_for_each_kind(kind):
    async with gateway(a_call(CLOCK_TOOL), backend={"kind": kind}, model={"upstream_model": "theirs"}) as site:
        answer = await site.chat(**EVERYTHING)
        assert site.upstream_body == GOLDEN[kind]
        assert answer.headers["x-gateway-warnings"] == WARNINGS[kind]


async def test_request_is_sent_as_json_to_the_path_of_the_backend():
    async with gateway(HELLO) as site:
        await site.chat(stream=True)
        (post,) = site.upstream.posts
        assert (post.method, post.path) == ("POST", "/v1/chat/completions")
        assert post.headers["content-type"] == "application/json"
        assert post.headers["accept-encoding"] == "identity"


@pytest.mark.parametrize("text", ["", "é ☃ 😀", "\u2028\0\x7f", '"quotes" \\ and \n lines', "x" * 100_000])
async def test_text_is_sent_and_returned_unchanged(text):
    async with gateway(whole(completion_body(text or "-"))) as site:
        answer = await site.chat(messages=[{"role": "user", "content": text}])
        assert site.upstream_body["messages"][0]["content"] == text
        assert answer.json()["choices"][0]["message"]["content"] == (text or "-")


def _tools(*named):
    return [{"type": kind, kind: {"name": name}} for kind, name in named]


@pytest.mark.parametrize(
    ("fields", "code", "param"),
    [
        ({"tools": _tools(("function", "f"), ("function", "f"))}, "invalid_value", "tools[1].function.name"),
        (
            {"tools": _tools(("function", "g"), ("function", "f"), ("custom", "f"))},
            "invalid_value",
            "tools[2].custom.name",
        ),
        ({"functions": [{"name": "f"}, {"name": "f"}]}, "invalid_value", "tools[1].function.name"),
        ({"response_format": {"type": "yaml"}}, "invalid_value", "response_format.type"),
        ({"response_format": {"type": ""}}, "invalid_value", "response_format.type"),
        ({"response_format": {"type": "json"}}, "invalid_value", "response_format.type"),
    ],
)
async def test_request_whose_meaning_is_uncertain_is_refused(fields, code, param):
    async with gateway(HELLO) as site:
        assert problem(await site.chat(**fields)) == (400, BAD, code, param)
        assert not site.upstream.posts


@pytest.mark.parametrize(
    ("body", "escape", "place"),
    [
        (b'{"user": "\\ud800"}', "\\ud800", 10),
        (b'{"a": "\\ud83d\\ude00 \\udE00"}', "\\udE00", 20),
        (b'{"a": "\\\\ud83d \\uD83Dx"}', "\\uD83D", 15),
    ],
)
async def test_lone_surrogate_is_named(body, escape, place):
    async with gateway(HELLO) as site:
        for ask in (site.chat, site.respond):
            answer = await ask(body)
            assert problem(answer)[:2] == (400, BAD)
            assert f"the lone surrogate {escape} at byte {place}." in answer.json()["error"]["message"]


async def test_strict_mode_judges_no_response():
    search = {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}
    odd = completion_body(never_seen=1)
    async with gateway(
        whole({**odd, "never_seen": 1}), model={"strict": True, "enforce": {"tool_choice": "retry"}}
    ) as site:
        for ask, tools in ((site.chat, [search]), (site.respond, [{"type": "function", "name": "f"}])):
            answer = await ask(tools=tools, tool_choice="required")
            assert "Unknown parameter" not in answer.text and "Unsupported parameter" not in answer.text
        assert len(site.upstream.posts) > 2
