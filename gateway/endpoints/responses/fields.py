"""The parameters of a response and what each may be (`spec.md` B1, B6, B7)."""

from typing import Any

from gateway.endpoints.body import metadata, moderation
from gateway.endpoints.checks import (
    Check,
    array,
    boolean,
    decimal,
    fields,
    integer,
    list_of,
    object_,
    one_of,
    short,
    string,
    wrong_type,
)
from gateway.errors import BadRequest

_INCLUDES = (
    "file_search_call.results",
    "web_search_call.results",
    "web_search_call.action.sources",
    "message.input_image.image_url",
    "computer_call_output.output.image_url",
    "code_interpreter_call.outputs",
    "reasoning.encrypted_content",
    "message.output_text.logprobs",
    "reasoning.content",  # the gateway's own: reasoning as text rather than as a summary
)
_EFFORTS = ("none", "minimal", "low", "medium", "high", "xhigh", "max")
_SUMMARY = one_of("auto", "concise", "detailed")
_STATELESS = "'{}' is not supported: this gateway does not store responses. Send the whole input with each request."
# What needs something to be kept from one request to the next; each says so instead of doing something else.
_NOT_KEPT = {
    "previous_response_id": _STATELESS,
    "conversation": _STATELESS,
    "background": "'{}' is not supported: this gateway does not store responses. Wait for the answer, or stream it.",
    "prompt": "'{}' is not supported: this gateway stores no prompts. Send its text as 'instructions' or 'input'.",
}


def _text_or_items(value: Any, param: str) -> None:  # noqa: ANN401 - decoded JSON
    if not isinstance(value, str | list):
        raise wrong_type(value, param, "one of a string or array of objects")


def _tool_choice(value: Any, param: str) -> None:  # noqa: ANN401 - decoded JSON
    if not isinstance(value, str):
        fields({"type": string})(value, param)


def _format(value: Any, param: str) -> None:  # noqa: ANN401 - decoded JSON
    fields({"type": one_of("text", "json_object", "json_schema")})(value, param)
    if value["type"] == "json_schema":
        fields({"name": short(64), "schema": object_}, {"strict": boolean, "description": string})(value, param)


REASONING = fields(
    {},
    {
        "effort": one_of(*_EFFORTS),
        "summary": _SUMMARY,
        "generate_summary": _SUMMARY,
        "context": one_of("auto", "current_turn", "all_turns"),
        "mode": one_of("standard", "pro"),
    },
)
TEXT = fields({}, {"format": _format, "verbosity": one_of("low", "medium", "high")})
REQUIRED: dict[str, Check] = {"model": string}
OPTIONAL: dict[str, Check] = {
    "access_programs": object_,
    "background": boolean,
    "client_metadata": object_,
    "context_management": array,
    "frequency_penalty": decimal(-2, 2),
    "generate": boolean,
    "image": object_,
    "include": list_of(one_of(*_INCLUDES)),
    "input": _text_or_items,
    "instructions": _text_or_items,
    "max_output_tokens": integer(1),
    "max_tool_calls": integer(1),
    "metadata": metadata,
    "moderation": moderation,
    "parallel_tool_calls": boolean,
    "personality": string,
    "presence_penalty": decimal(-2, 2),
    "prompt_cache_key": string,
    "prompt_cache_options": object_,
    "prompt_cache_retention": string,
    "reasoning": REASONING,
    "safety_identifier": short(128),
    "service_tier": string,
    "store": boolean,
    "stream": boolean,
    "stream_id": string,
    "stream_options": fields({}, {"include_obfuscation": boolean}),
    "temperature": decimal(0, 2),
    "text": TEXT,
    "tool_choice": _tool_choice,
    "tools": list_of(object_, most=128),
    "top_logprobs": integer(0, 20),
    "top_p": decimal(0, 1),
    "truncation": one_of("auto", "disabled"),
    "user": string,
}

_check = fields(REQUIRED, OPTIONAL)
KNOWN = frozenset((*REQUIRED, *OPTIONAL, *_NOT_KEPT))


def check(body: dict[str, Any], min_output_tokens: int) -> None:
    """Raise BadRequest for what the API does not allow, or what needs responses to be stored."""
    _check(body, "")
    for name, message in _NOT_KEPT.items():
        if body.get(name):
            raise BadRequest(message.format(name), code="unsupported_parameter", param=name)
    if "max_output_tokens" in body:
        integer(min_output_tokens)(body["max_output_tokens"], "max_output_tokens")
