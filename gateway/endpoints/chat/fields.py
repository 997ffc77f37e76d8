"""The parameters of a chat completion and what each may be (`spec.md` A1, A2)."""

from typing import Any

from gateway.endpoints.body import metadata, moderation, stop
from gateway.endpoints.checks import (
    ParamCheck,
    array,
    boolean,
    check_exclusive,
    decimal,
    fields,
    integer,
    list_of,
    object_,
    one_of,
    short,
    string,
    too_many_members,
    wrong_type,
)
from gateway.errors import BadRequest
from gateway.request import plain

_BIASES = 1024  # tokens that a model can be steered to or away from

ROLES = ("developer", "system", "user", "assistant", "tool", "function")


def _modalities(value: Any, param: str) -> None:  # noqa: ANN401 - decoded JSON
    list_of(one_of("text", "audio"))(value, param)
    if "audio" in value:
        raise BadRequest("Audio output is not supported: ask for 'text' only.", code="unsupported_value", param=param)


_FILE = fields({}, {"file_data": string, "file_url": string, "file_id": string, "filename": string})


def _file(value: Any, param: str) -> None:  # noqa: ANN401 - decoded JSON
    _FILE(value, param)
    check_exclusive(value, param, ("file_data", "file_url"))


_ANY_PART = fields({"type": string})
_PARTS: dict[str, ParamCheck] = {
    "text": fields({"text": string}),
    "image_url": fields({"image_url": fields({"url": string})}),
    "input_audio": fields({"input_audio": fields({"data": string, "format": string})}),
    "file": fields({"file": _file}),
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


_FUNCTION = fields({"name": string}, {"description": string, "parameters": object_, "strict": boolean})
_CUSTOM = fields({"name": string}, {"description": string, "format": object_})
_CALLED = fields({"name": string, "arguments": string})
_CALLABLE = one_of("function", "custom")
_ANY_TOOL = fields({"type": _CALLABLE})
_TOOLS: dict[str, ParamCheck] = {"function": fields({"function": _FUNCTION}), "custom": fields({"custom": _CUSTOM})}
_ANY_CALL = fields({"id": string, "type": _CALLABLE})
_CALLS: dict[str, ParamCheck] = {
    "function": fields({"function": _CALLED}),
    "custom": fields({"custom": fields({"name": string, "input": string})}),
}


def _tool(value: Any, param: str) -> None:  # noqa: ANN401 - decoded JSON
    _ANY_TOOL(value, param)
    _TOOLS[value["type"]](value, param)


def _call(value: Any, param: str) -> None:  # noqa: ANN401 - decoded JSON
    _ANY_CALL(value, param)
    _CALLS[value["type"]](value, param)


_BY_ROLE: dict[str, ParamCheck] = {
    **dict.fromkeys(("developer", "system", "user"), fields({"content": _content}, {"name": string})),
    "assistant": fields({}, {"content": _content, "refusal": string, "name": string}),
    "tool": fields({"content": _content, "tool_call_id": string}),
    "function": fields({"name": string}, {"content": _content}),
}


_ANY_MESSAGE = fields({"role": one_of(*ROLES)}, {"tool_calls": list_of(_call), "function_call": _CALLED})


def _message(value: Any, param: str) -> None:  # noqa: ANN401 - decoded JSON
    if plain((value,)):
        return
    _ANY_MESSAGE(value, param)
    _BY_ROLE[value["role"]](value, param)


def _tool_choice(value: Any, param: str) -> None:  # noqa: ANN401 - decoded JSON
    if isinstance(value, str):
        one_of("none", "auto", "required")(value, param)
        return
    fields({"type": one_of("function", "custom", "allowed_tools")})(value, param)
    named = fields({"name": string})
    allowed = fields({"mode": one_of("auto", "required"), "tools": list_of(object_)})
    fields({value["type"]: allowed if value["type"] == "allowed_tools" else named})(value, param)


def _function_call(value: Any, param: str) -> None:  # noqa: ANN401 - decoded JSON
    if isinstance(value, str):
        one_of("none", "auto")(value, param)
    else:
        fields({"name": string})(value, param)


def _logit_bias(value: Any, param: str) -> None:  # noqa: ANN401 - decoded JSON
    object_(value, param)
    if len(value) > _BIASES:
        raise too_many_members(value, param, _BIASES)


_FORMATS = one_of("text", "json_object", "json_schema", "structural_tag")  # the last one is of vLLM and SGLang


def _response_format(value: Any, param: str) -> None:  # noqa: ANN401 - decoded JSON
    fields({"type": _FORMATS})(value, param)
    if value["type"] == "json_schema":
        fields({"json_schema": fields({"name": short(64)}, {"schema": object_})})(value, param)


REQUIRED: dict[str, ParamCheck] = {"model": string, "messages": list_of(_message, least=1)}
OPTIONAL: dict[str, ParamCheck] = {
    "audio": object_,
    "frequency_penalty": decimal(-2, 2),
    "function_call": _function_call,
    "functions": list_of(_FUNCTION, least=1, most=128),
    "logit_bias": _logit_bias,
    "logprobs": boolean,
    "max_completion_tokens": integer(1),
    "max_tokens": integer(1),
    "metadata": metadata,
    "modalities": _modalities,
    "moderation": moderation,
    "n": integer(1, 128),
    "parallel_tool_calls": boolean,
    "prediction": object_,
    "presence_penalty": decimal(-2, 2),
    "prompt_cache_key": string,
    "prompt_cache_options": object_,
    "prompt_cache_retention": string,
    "reasoning_effort": one_of("none", "minimal", "low", "medium", "high", "xhigh", "max"),
    "response_format": _response_format,
    "safety_identifier": short(128),
    "seed": integer(),
    "service_tier": string,
    "stop": stop,
    "store": boolean,
    "stream": boolean,
    "stream_options": fields({}, {"include_usage": boolean, "include_obfuscation": boolean}),
    "temperature": decimal(0, 2),
    "tool_choice": _tool_choice,
    "tools": list_of(_tool, most=128),
    "top_logprobs": integer(0, 20),
    "top_p": decimal(0, 1),
    "user": string,
    "verbosity": one_of("low", "medium", "high"),
    "web_search_options": object_,
}

body = fields(REQUIRED, OPTIONAL)
besides_messages = fields({"model": string, "messages": array}, OPTIONAL)
KNOWN = frozenset(REQUIRED) | frozenset(OPTIONAL)
