"""Define the parameters of a chat completion and their checks."""

from typing import Any

from gateway.api.validation import (
    ParamCheck,
    array,
    boolean,
    check_exclusive,
    check_metadata,
    check_moderation,
    check_stop,
    integer_between,
    list_of,
    number_between,
    object_,
    object_of,
    one_of,
    string,
    string_of,
    too_many_members,
    wrong_type,
)
from gateway.errors import BadRequest
from gateway.request import are_text_only

_BIASES = 1024  # entries of `logit_bias`
_BIASED = 32  # characters of a token's id in an error
_bias = number_between(-100, 100)

ROLES = ("developer", "system", "user", "assistant", "tool", "function")


def _modalities(value: Any, param: str) -> None:  # noqa: ANN401 - decoded JSON
    list_of(one_of("text", "audio"))(value, param)
    if "audio" in value:
        raise BadRequest("Audio output is not supported. Request only 'text'.", code="unsupported_value", param=param)


_FILE = object_of({}, {"file_data": string, "file_url": string, "file_id": string, "filename": string})


def _file(value: Any, param: str) -> None:  # noqa: ANN401 - decoded JSON
    _FILE(value, param)
    check_exclusive(value, param, ("file_data", "file_url", "file_id"))


_ANY_PART = object_of({"type": string})
_PARTS: dict[str, ParamCheck] = {
    "text": object_of({"text": string}),
    "image_url": object_of({"image_url": object_of({"url": string})}),
    "input_audio": object_of({"input_audio": object_of({"data": string, "format": string})}),
    "file": object_of({"file": _file}),
}


def _part(value: Any, param: str) -> None:  # noqa: ANN401 - decoded JSON
    _ANY_PART(value, param)
    if each := _PARTS.get(value["type"]):
        each(value, param)


_parts = list_of(_part)


def _content(value: Any, param: str) -> None:  # noqa: ANN401 - decoded JSON
    if isinstance(value, str):
        return
    if not isinstance(value, list):
        raise wrong_type(value, param, "one of a string or array of objects")
    _parts(value, param)


_FUNCTION = object_of({"name": string}, {"description": string, "parameters": object_, "strict": boolean})
_CUSTOM = object_of({"name": string}, {"description": string, "format": object_})
_CALLED = object_of({"name": string, "arguments": string})
_CALLABLE = one_of("function", "custom")
_ANY_TOOL = object_of({"type": _CALLABLE})
_TOOLS: dict[str, ParamCheck] = {
    "function": object_of({"function": _FUNCTION}),
    "custom": object_of({"custom": _CUSTOM}),
}
_ANY_CALL = object_of({"id": string, "type": _CALLABLE})
_CALLS: dict[str, ParamCheck] = {
    "function": object_of({"function": _CALLED}),
    "custom": object_of({"custom": object_of({"name": string, "input": string})}),
}


def _tool(value: Any, param: str) -> None:  # noqa: ANN401 - decoded JSON
    _ANY_TOOL(value, param)
    _TOOLS[value["type"]](value, param)


def _call(value: Any, param: str) -> None:  # noqa: ANN401 - decoded JSON
    _ANY_CALL(value, param)
    _CALLS[value["type"]](value, param)


_BY_ROLE: dict[str, ParamCheck] = {
    **dict.fromkeys(("developer", "system", "user"), object_of({"content": _content}, {"name": string})),
    "assistant": object_of({}, {"content": _content, "refusal": string, "name": string}),
    "tool": object_of({"content": _content, "tool_call_id": string}),
    "function": object_of({"name": string}, {"content": _content}),
}


_ANY_MESSAGE = object_of({"role": one_of(*ROLES)}, {"tool_calls": list_of(_call), "function_call": _CALLED})


def _message(value: Any, param: str) -> None:  # noqa: ANN401 - decoded JSON
    if are_text_only((value,)):
        return
    _ANY_MESSAGE(value, param)
    _BY_ROLE[value["role"]](value, param)


# Messages that a model only reads: the chat template knows their roles.
READ_MESSAGES: ParamCheck = list_of(object_of({"role": string}, {"content": _content}), least=1)


def _tool_choice(value: Any, param: str) -> None:  # noqa: ANN401 - decoded JSON
    if isinstance(value, str):
        one_of("none", "auto", "required")(value, param)
        return
    object_of({"type": one_of("function", "custom", "allowed_tools")})(value, param)
    named = object_of({"name": string})
    allowed = object_of({"mode": one_of("auto", "required"), "tools": list_of(object_)})
    object_of({value["type"]: allowed if value["type"] == "allowed_tools" else named})(value, param)


def _function_call(value: Any, param: str) -> None:  # noqa: ANN401 - decoded JSON
    if isinstance(value, str):
        one_of("none", "auto")(value, param)
    else:
        object_of({"name": string})(value, param)


def check_logit_bias(value: Any, param: str) -> None:  # noqa: ANN401 - decoded JSON
    """Check the biases of tokens: numbers from -100 to 100, or llama.cpp's `false`, which forbids a token."""
    object_(value, param)
    if len(value) > _BIASES:
        raise too_many_members(value, param, _BIASES)
    for token, bias in value.items():
        if bias is not False:
            _bias(bias, f"{param}.{token[:_BIASED]}")


_FORMATS = one_of("text", "json_object", "json_schema", "structural_tag")  # the last one is vLLM's and SGLang's


_SCHEMED = ("json_object", "json_schema")  # types of formats that may have a schema beside them


def _response_format(value: Any, param: str) -> None:  # noqa: ANN401 - decoded JSON
    object_of({"type": _FORMATS})(value, param)
    if _has_schema_beside(value):
        object_(value["schema"], f"{param}.schema")
    elif value["type"] == "json_schema":
        object_of({"json_schema": object_of({"name": string_of(64)}, {"schema": object_})})(value, param)


def _has_schema_beside(format: dict[str, Any]) -> bool:
    """Return True for a format whose schema is not inside `json_schema`, as llama.cpp documents it."""
    return format["type"] in _SCHEMED and format.get("json_schema") is None and format.get("schema") is not None


def usual_format(fields: dict[str, Any]) -> None:
    """Put a schema beside the type of the checked response format into `json_schema`, where all servers read it."""
    format = fields["response_format"]
    if _has_schema_beside(format):
        fields["response_format"] = {
            "type": "json_schema",
            "json_schema": {"name": "answer", "schema": format["schema"]},
        }


REQUIRED: dict[str, ParamCheck] = {"model": string, "messages": list_of(_message, least=1)}
OPTIONAL: dict[str, ParamCheck] = {
    "audio": object_,
    "frequency_penalty": number_between(-2, 2),
    "function_call": _function_call,
    "functions": list_of(_FUNCTION, least=1, most=128),
    "logit_bias": check_logit_bias,
    "logprobs": boolean,
    "max_completion_tokens": integer_between(1),
    "max_tokens": integer_between(1),
    "metadata": check_metadata,
    "modalities": _modalities,
    "moderation": check_moderation,
    "n": integer_between(1, 128),
    "parallel_tool_calls": boolean,
    "prediction": object_,
    "presence_penalty": number_between(-2, 2),
    "prompt_cache_key": string,
    "prompt_cache_options": object_,
    "prompt_cache_retention": string,
    "reasoning_effort": one_of("none", "minimal", "low", "medium", "high", "xhigh", "max"),
    "response_format": _response_format,
    "safety_identifier": string_of(128),
    "seed": integer_between(),
    "service_tier": string,
    "stop": check_stop,
    "store": boolean,
    "stream": boolean,
    "stream_options": object_of({}, {"include_usage": boolean, "include_obfuscation": boolean}),
    "temperature": number_between(0, 2),
    "tool_choice": _tool_choice,
    "tools": list_of(_tool, most=128),
    "top_logprobs": integer_between(0, 20),
    "top_p": number_between(0, 1),
    "user": string,
    "verbosity": one_of("low", "medium", "high"),
    "web_search_options": object_,
}

body = object_of(REQUIRED, OPTIONAL)
check_optional = object_of({}, OPTIONAL)
besides_messages = object_of({"model": string, "messages": array}, OPTIONAL)
KNOWN = frozenset(REQUIRED) | frozenset(OPTIONAL)
