"""Test the body of /v1/responses: validation, the request that it becomes, and the fields that a Response repeats.

https://platform.openai.com/docs/api-reference/responses/create
"""

import json

import pytest

from gateway.api import responses
from gateway.api.body import decode_body
from gateway.errors import BadRequest, NotFound
from gateway.request import StoredReasoning, ToolName
from gateway.warnings import Warnings

SETTINGS = responses.ParseSettings(open=lambda _: None)
FUNCTION = {"type": "function", "name": "f", "parameters": {"type": "object", "properties": {}}, "strict": True}
FOR_THE_SERVICE = {
    "user": "u", "safety_identifier": "s", "service_tier": "flex", "prompt_cache_key": "k", "prompt_cache_retention": "24h",
    "prompt_cache_options": {"mode": "implicit"},
}  # fmt: skip
SCHEMA = {"type": "object", "properties": {"a": {"type": "string"}}}


def draft_of(settings=SETTINGS, **body):
    return responses.draft_response(decode_body(json.dumps({"model": "m", "input": "q", **body}).encode()), settings)


def parsed(settings=SETTINGS, ledger=None, **body):
    draft = draft_of(settings, **body)
    return responses.parse_response(draft, responses.InputContext(), settings, ledger or Warnings())


def backend_fields(**body):
    return parsed(**body).request.rest


def warnings_of(**body):
    ledger = Warnings()
    parsed(ledger=ledger, **body)
    return ledger.entries()


def refusal_of(settings=SETTINGS, **body):
    with pytest.raises(BadRequest) as error:
        parsed(settings, **body)
    problem = error.value.problem
    return problem.code, problem.param


def test_input_text_is_one_user_message():
    request = parsed().request
    assert request.messages == ({"role": "user", "content": "q"},)
    assert (request.model, request.tools, request.tool_choice, request.max_tokens, request.n) == (
        "m",
        (),
        None,
        None,
        1,
    )
    assert request.fresh and not request.stream and not request.shorten and request.rest == {}


def test_response_echo_has_the_defaults():
    assert parsed().echo == {
        "background": False, "conversation": None, "frequency_penalty": 0.0, "instructions": None, "max_output_tokens": None,
        "max_tool_calls": None, "metadata": {}, "parallel_tool_calls": True, "presence_penalty": 0.0,
        "previous_response_id": None, "prompt_cache_key": None, "reasoning": {"effort": None, "summary": None},
        "safety_identifier": None, "service_tier": "default", "store": True, "temperature": 1.0,
        "text": {"format": {"type": "text"}, "verbosity": "medium"}, "tool_choice": "auto", "tools": [], "top_logprobs": 0,
        "top_p": 1.0, "truncation": "disabled", "user": None,
    }  # fmt: skip


REQUESTED = {
    "instructions": "Be brief.", "max_output_tokens": 50, "max_tool_calls": 3, "metadata": {"a": "b"}, "store": False,
    "temperature": 0.5, "top_p": 0.9, "presence_penalty": 1, "frequency_penalty": -1, "truncation": "auto", "user": "u",
    "parallel_tool_calls": False, "prompt_cache_key": "k", "safety_identifier": "s", "tool_choice": "required", "top_logprobs": 2,
    "tools": [{**FUNCTION, "description": None}], "prompt_cache_options": {"mode": "implicit"}, "prompt_cache_retention": "24h",
}  # fmt: skip


def test_response_echo_repeats_the_requested_fields():
    echo = parsed(
        **REQUESTED, service_tier="flex", text={"verbosity": "low"}, reasoning={"effort": "low", "context": "auto"}
    ).echo
    assert {name: echo[name] for name in REQUESTED} == REQUESTED
    assert echo["service_tier"] == "default"  # the only tier of the gateway
    assert echo["text"] == {"format": {"type": "text"}, "verbosity": "low"}
    assert echo["reasoning"] == {"effort": "low", "summary": None, "context": "auto"}


def test_response_echo_has_the_new_name_of_the_reasoning_summary():
    found = parsed(reasoning={"generate_summary": "detailed", "summary": None})
    assert found.echo["reasoning"] == {"effort": None, "summary": "detailed"}
    assert found.carrier == "summary"


@pytest.mark.parametrize(
    ("body", "wanted"),
    [
        ({"temperature": 0.5, "top_p": 0.1, "presence_penalty": 1}, {"temperature": 0.5, "top_p": 0.1, "presence_penalty": 1}),
        ({"frequency_penalty": 1, "parallel_tool_calls": False}, {"frequency_penalty": 1, "parallel_tool_calls": False}),
        ({"reasoning": {"effort": "low", "summary": "auto"}}, {"reasoning_effort": "low"}),
        ({"reasoning": {"effort": None}}, {}),
        ({"text": {"format": {"type": "text"}}}, {}),
        ({"text": {"verbosity": "low", "format": None}}, {"verbosity": "low"}),
        ({"text": {"format": {"type": "json_object"}}}, {"response_format": {"type": "json_object"}}),
        (
            {"text": {"format": {"type": "json_schema", "name": "n", "schema": SCHEMA, "strict": True, "description": None}}},
            {"response_format": {"type": "json_schema", "json_schema": {"name": "n", "schema": SCHEMA, "strict": True}}},
        ),
        ({"top_logprobs": 2}, {"logprobs": True, "top_logprobs": 2}),
        ({"include": ["message.output_text.logprobs"]}, {"logprobs": True}),
        ({"top_logprobs": 0}, {}),
        ({"top_k": 5, "chat_template_kwargs": {"a": 1}, "stop": ["x"]}, {"top_k": 5, "chat_template_kwargs": {"a": 1}, "stop": ["x"]}),
        ({"metadata": {"a": "b"}, "store": True, "client_metadata": {}}, {}),
        ({"include": [], "stream": False, "personality": "p", "max_tool_calls": 1}, {}),
        (FOR_THE_SERVICE, FOR_THE_SERVICE),
        ({"prompt_cache_options": {"ttl": "30m", "prewarm": False}}, {"prompt_cache_options": {"ttl": "30m"}}),
        ({"temperature": None, "unknown": None}, {}),
    ],
)  # fmt: skip
def test_field_is_translated_for_the_backend(body, wanted):
    assert backend_fields(**body) == wanted


def test_request_has_token_limit_tool_choice_stream_and_truncation():
    request = parsed(
        max_output_tokens=16,
        stream=True,
        tools=[FUNCTION],
        tool_choice={"type": "function", "name": "f"},
        truncation="auto",
    ).request
    assert (request.max_tokens, request.stream, request.tool_choice, request.shorten) == (16, True, ToolName("f"), True)
    assert [tool.name for tool in request.tools] == ["f"]


def test_instructions_come_first():
    request = parsed(
        instructions="Be brief.", input=[{"role": "developer", "content": "d"}, {"role": "user", "content": "q"}]
    ).request
    assert [message["role"] for message in request.messages] == ["system", "developer", "user"]


def test_input_item_may_change_settings_and_add_tools():
    update = {
        "type": "configuration_update",
        "reasoning": {"effort": "high"},
        "text": {"format": {"type": "json_object"}},
    }
    brought = {"type": "additional_tools", "role": "developer", "tools": [FUNCTION]}
    found = parsed(
        input=[{"role": "user", "content": "q"}, update, brought],
        reasoning={"effort": "low"},
        text={"verbosity": "low"},
    )
    assert found.request.rest == {
        "reasoning_effort": "high", "verbosity": "low", "response_format": {"type": "json_object"},
    }  # fmt: skip
    assert [tool.name for tool in found.request.tools] == ["f"]
    assert found.echo["tools"] == []


def test_input_item_setting_is_validated():
    update = {"type": "configuration_update", "reasoning": {"effort": "huge"}}
    code, param = refusal_of(input=[{"role": "user", "content": "q"}, update])
    assert code == "invalid_value" and param.startswith("input")


def test_sealed_reasoning_is_opened_with_the_configured_function():
    opened = responses.ParseSettings(open=lambda text: StoredReasoning(text[::-1]))
    items = [
        {"role": "user", "content": "q"},
        {"type": "reasoning", "id": "r", "summary": [], "encrypted_content": "cba"},
    ]
    items += [{"role": "assistant", "content": "a"}]
    assert parsed(opened, input=items).request.messages[-1]["reasoning_content"] == "abc"


@pytest.mark.parametrize(
    ("body", "previous", "conversation", "references"),
    [
        ({}, None, None, set()),
        ({"previous_response_id": "resp_1"}, "resp_1", None, set()),
        ({"conversation": "conv_1"}, None, "conv_1", set()),
        ({"conversation": {"id": "conv_1"}, "input": []}, None, "conv_1", set()),
        (
            {"input": [{"id": "a"}, {"type": "item_reference", "id": "b"}, {"id": "c", "role": "user"}, 5, {"id": 5}]},
            None,
            None,
            {"a", "b"},
        ),
    ],
)
def test_request_lists_the_ids_to_look_up(body, previous, conversation, references):
    found = draft_of(**body)
    assert (found.previous, found.conversation, found.references) == (previous, conversation, references)


def test_previous_items_come_first_and_references_are_replaced():
    draft = draft_of(input=[{"id": "a"}, {"type": "item_reference", "id": "b"}])
    items = {name: {"type": "message", "id": name, "role": "user", "content": name} for name in "ab"}
    context = responses.InputContext([{"role": "assistant", "content": "before"}], items)
    messages = responses.parse_response(draft, context, SETTINGS, Warnings()).request.messages
    assert [message["content"] for message in messages] == ["before", "a", "b"]
    with pytest.raises(NotFound) as error:
        responses.parse_response(draft, responses.InputContext(items={"a": items["a"]}), SETTINGS, Warnings())
    assert (error.value.problem.status, error.value.problem.param) == (404, "input[1]")


@pytest.mark.parametrize(
    ("body", "stored", "echoed"),
    [
        ({}, True, None),
        ({"store": False}, False, None),
        ({"store": False, "conversation": "conv_1"}, True, {"id": "conv_1"}),
    ],
)
def test_response_is_stored_by_default_or_for_a_conversation(body, stored, echoed):
    found = parsed(**body)
    assert (found.stored, found.echo["conversation"]) == (stored, echoed)


@pytest.mark.parametrize(
    ("body", "carrier", "sealed", "logprobs", "obfuscation"),
    [
        ({}, None, False, False, False),
        ({"include": ["reasoning.content"], "reasoning": {"summary": "auto"}}, "text", False, False, False),
        ({"reasoning": {"summary": "auto"}}, "summary", False, False, False),
        ({"store": False}, None, True, False, False),
        ({"include": ["reasoning.encrypted_content", "message.output_text.logprobs"]}, None, True, True, False),
        ({"stream": True, "stream_options": {"include_obfuscation": True}}, None, False, False, True),
        ({"stream": True, "stream_options": {}}, None, False, False, False),
    ],
)
def test_encoder_options_come_from_the_request(body, carrier, sealed, logprobs, obfuscation):
    found = parsed(**body)
    assert (found.carrier, found.sealed, found.logprobs, found.obfuscation) == (carrier, sealed, logprobs, obfuscation)


@pytest.mark.parametrize(
    ("body", "entries"),
    [
        ({}, []),
        ({"store": True}, []),
        ({"context_management": [{"type": "compaction"}]}, ["dropped:context_management"]),
        ({"moderation": {"model": "x"}, "access_programs": {}}, ["dropped:access_programs", "dropped:moderation"]),
        (
            {"prompt_cache_options": {"mode": "implicit", "comparison_response_id": "resp_1"}},
            ["dropped:prompt_cache_options.comparison_response_id"],
        ),
        ({"image": {"context_compression": "enabled"}}, ["dropped:image.context_compression"]),
        ({"image": {"context_compression": "auto"}, "reasoning": {"mode": "standard"}}, []),
        ({"image": {"context_compression": "disabled", "detail": 5}}, ["dropped:image.detail"]),
        ({"background_options": {"completion_window": "soonest"}}, []),
        ({"background": True, "background_options": {"completion_window": "8h"}}, []),
        ({"background_options": {"continuation_id": "c"}}, ["dropped:background_options.continuation_id"]),
        ({"reasoning": {"mode": "pro"}}, ["dropped:reasoning.mode"]),
        ({"max_tokens": 5, "n": 2, "messages": []}, ["dropped:max_tokens", "dropped:n", "dropped:messages"]),
        ({"stream_id": "s"}, ["dropped:stream_id"]),
    ],
)  # fmt: skip
def test_warning_names_a_field_that_is_dropped(body, entries):
    assert warnings_of(**body) == entries


@pytest.mark.parametrize(
    ("body", "background", "streamed", "stream"),
    [
        ({}, False, False, False),
        ({"stream": True, "background": False, "store": False}, False, True, True),
        ({"background": True}, True, False, True),
        ({"background": True, "stream": True, "store": True}, True, True, True),
        ({"background": True, "stream": False, "conversation": "conv_1"}, True, False, True),
    ],
)
def test_background_request_is_always_a_stream_internally(body, background, streamed, stream):
    found = parsed(**body)
    assert (found.background, found.streamed, found.request.stream) == (background, streamed, stream)
    assert found.echo["background"] is background


PREWARM = {"prompt_cache_options": {"prewarm": True}}


@pytest.mark.parametrize(
    ("body", "generates", "entries"),
    [
        ({}, True, []),
        ({"generate": True, "prompt_cache_options": {"prewarm": False}}, True, []),
        ({"generate": False}, False, ["emulated:generate"]),
        ({"generate": True, **PREWARM}, False, ["emulated:prompt_cache_options.prewarm"]),
        ({"generate": False, **PREWARM}, False, ["emulated:prompt_cache_options.prewarm"]),
    ],
)
def test_prewarm_request_generates_nothing(body, generates, entries):
    assert parsed(**body).request.generates is generates and warnings_of(**body) == entries


def test_prewarm_request_may_have_an_empty_input():
    """A client opens its session with it, before the first message; the backend needs a message."""
    assert [message["content"] for message in parsed(generate=False, input=[]).request.messages] == [""]


def test_prewarm_request_is_not_compacted():
    managed = {"context_management": [{"type": "compaction", "compact_threshold": 5}]}
    assert parsed(**managed).compact_above == 5
    assert parsed(generate=False, **managed).compact_above is None


@pytest.mark.parametrize(
    ("body", "code", "param"),
    [
        ({"model": None}, "missing_required_parameter", "model"),
        ({"input": None}, "missing_required_parameter", "input"),
        ({"input": []}, "missing_required_parameter", "input"),
        ({"input": 5}, "invalid_type", "input"),
        ({"input": ["q"]}, "invalid_type", "input[0]"),
        ({"instructions": {}}, "invalid_type", "instructions"),
        ({"max_output_tokens": 15}, "integer_below_min_value", "max_output_tokens"),
        ({"max_output_tokens": 0}, "integer_below_min_value", "max_output_tokens"),
        ({"max_tool_calls": 0}, "integer_below_min_value", "max_tool_calls"),
        ({"temperature": 3}, "decimal_above_max_value", "temperature"),
        ({"top_p": "x"}, "invalid_type", "top_p"),
        ({"top_logprobs": 21}, "integer_above_max_value", "top_logprobs"),
        ({"include": ["everything"]}, "invalid_value", "include[0]"),
        ({"metadata": {"a": 1}}, "invalid_type", "metadata.a"),
        ({"metadata": {str(i): "" for i in range(17)}}, "object_above_max_properties", "metadata"),
        ({"reasoning": {"effort": "huge"}}, "invalid_value", "reasoning.effort"),
        ({"reasoning": {"summary": "x"}}, "invalid_value", "reasoning.summary"),
        ({"reasoning": {"context": "x"}}, "invalid_value", "reasoning.context"),
        ({"text": {"format": {"type": "grammar"}}}, "invalid_value", "text.format.type"),
        ({"text": {"format": {"type": "json_schema", "name": "n"}}}, "missing_required_parameter", "text.format.schema"),
        ({"text": {"format": {"type": "json_schema", "schema": {}}}}, "missing_required_parameter", "text.format.name"),
        ({"text": {"verbosity": "x"}}, "invalid_value", "text.verbosity"),
        ({"truncation": "x"}, "invalid_value", "truncation"),
        ({"moderation": {"policy": {"input": {"mode": "block"}}}}, "unsupported_value", "moderation"),
        ({"safety_identifier": "x" * 129}, "string_above_max_length", "safety_identifier"),
        ({"stream_options": {"include_obfuscation": True}}, None, "stream_options"),
        ({"stream": True, "stream_options": {"include_obfuscation": 1}}, "invalid_type", "stream_options.include_obfuscation"),
        ({"tool_choice": 5}, "invalid_type", "tool_choice"),
        ({"tool_choice": {}}, "missing_required_parameter", "tool_choice.type"),
        ({"tools": [{}]}, "missing_required_parameter", "tools[0].type"),
        ({"previous_response_id": 1}, "invalid_type", "previous_response_id"),
        ({"previous_response_id": ""}, "empty_string", "previous_response_id"),
        ({"conversation": 1}, "invalid_type", "conversation"),
        ({"conversation": ""}, "empty_string", "conversation"),
        ({"conversation": {"id": ""}}, "empty_string", "conversation.id"),
        ({"conversation": {}}, "missing_required_parameter", "conversation.id"),
        ({"conversation": "conv_1", "previous_response_id": "resp_1"}, "mutually_exclusive_parameters", None),
        ({"background": True, "store": False}, None, "background"),
        ({"background": True, "store": False, "conversation": "conv_1"}, None, "background"),
        ({"background": True, "stream_options": {"include_obfuscation": True}}, None, "stream_options"),
        ({"background": 1}, "invalid_type", "background"),
        ({"prompt": {"id": "p"}}, "unsupported_parameter", "prompt"),
    ],
)  # fmt: skip
def test_request_not_allowed_by_the_api_is_refused(body, code, param):
    assert refusal_of(**body) == (code, param)


def test_config_sets_the_minimum_of_output_tokens():
    assert (
        parsed(responses.ParseSettings(lambda _: None, min_output_tokens=1), max_output_tokens=1).request.max_tokens
        == 1
    )


def test_request_body_that_is_not_an_object_is_refused():
    for raw, param in ((b"[]", "body"), (b"{", None)):
        with pytest.raises(BadRequest) as error:
            decode_body(raw)
        assert error.value.problem.param == param


@pytest.mark.parametrize(
    ("body", "code", "param"),
    [
        ({"background_options": "soonest"}, "invalid_type", "background_options"),
        ({"background_options": {"completion_window": "5m"}}, "invalid_value", "background_options.completion_window"),
        ({"background_options": {"completion_window": "2h"}}, "invalid_value", "background_options.completion_window"),
        (
            {"background": True, "stream": True, "background_options": {"completion_window": "8h"}},
            "invalid_value",
            "background_options.completion_window",
        ),
        (
            {"background": True, "background_options": {"until": "noon"}},
            "unknown_parameter",
            "background_options.until",
        ),
    ],
)
def test_background_options_that_cannot_be_kept_are_refused(body, code, param):
    with pytest.raises(BadRequest) as refused:
        parsed(**body)
    assert (refused.value.problem.code, refused.value.problem.param) == (code, param)
