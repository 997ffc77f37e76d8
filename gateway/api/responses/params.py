"""Define and check the parameters of a response."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

from msgspec import Struct

from gateway.api.chat import schema
from gateway.api.validation import (
    ParamCheck,
    boolean,
    check_metadata,
    check_moderation,
    integer_between,
    list_of,
    number_between,
    object_,
    object_of,
    one_of,
    string,
    string_of,
    wrong_type,
)
from gateway.errors import BadRequest
from gateway.request import ApprovedToolCall, Request, StoredReasoning, ToolName

Carrier = Literal["summary", "text", "both", "hidden"]
_INCLUDES = (
    "file_search_call.results",
    "web_search_call.results",
    "web_search_call.action.sources",
    "message.input_image.image_url",
    "computer_call_output.output.image_url",
    "code_interpreter_call.outputs",
    "reasoning.encrypted_content",
    "message.output_text.logprobs",
    "reasoning.content",  # the gateway's own value: reasoning as text rather than as a summary
)
INCLUDE = list_of(one_of(*_INCLUDES))
_EFFORTS = ("none", "minimal", "low", "medium", "high", "xhigh", "max")
_SUMMARY = one_of("auto", "concise", "detailed")
# Parameters that the gateway rejects, with the message for each.
_UNSUPPORTED = {
    "prompt": "'prompt' is not supported: the gateway stores no prompts. Send its text as 'instructions' or 'input'.",
}
_NOT_STORED = "'background' requires 'store': true, because clients read background responses from the store."
_EXCLUSIVE = (
    "Mutually exclusive parameters: Ensure you are only providing one of: 'previous_response_id' or 'conversation'."
)
# Completion windows of background responses.  The gateway starts all responses at once.
_WINDOWS = ("2h", "8h")
_WINDOW = "background_options.completion_window"
_STORED = string_of(512, least=1)  # an id; a response with an empty one would silently lose its history
_MANAGED = object_of({"type": one_of("compaction")}, {"compact_threshold": integer_between(1)})
REASONING = object_of(
    {},
    {
        "effort": one_of(*_EFFORTS),
        "summary": _SUMMARY,
        "generate_summary": _SUMMARY,
        "context": one_of("auto", "current_turn", "all_turns"),
        "mode": one_of("standard", "pro"),
    },
)
REQUIRED: dict[str, ParamCheck] = {"model": string}
# Fields of a chat completion that have another form in a response.
OTHER_FORMS = frozenset(
    ("messages", "n", "functions", "function_call", "max_tokens", "max_completion_tokens", "modalities", "audio")
)


class BuiltinToolParams(Struct, frozen=True):
    """The built-in tools that run at the gateway.

    definitions: of the tools, secrets included.
    lists: the tools that MCP servers listed before, by server label.
    approved: tool calls that may be made now.
    max_calls: the maximum of tool calls; None if the client set none.
    max_uses: the maximum of calls of some tools together; beyond it, the model is told that a call failed.
    pauses: the client goes on with another request at the operator's limits.
    cited: annotations of earlier answers in the input.
    """

    definitions: tuple[dict[str, Any], ...] = ()
    lists: Mapping[str, list[dict[str, Any]]] = {}
    approved: tuple[ApprovedToolCall, ...] = ()
    max_calls: int | None = None
    max_uses: Mapping[frozenset[ToolName], int] = {}
    pauses: bool = False
    cited: Sequence[Any] = ()


class ResponseParams(Struct, frozen=True, kw_only=True):
    """The parsed body of a response.

    echo: all fields of the Response object that only repeat the request.
    stored: the response is stored, or added to a conversation.
    background: the response goes on without a connection.
    streamed: the client receives the events as they come.
    compact_above: a prompt of more tokens is compacted first; None: never.
    carrier: the members of a reasoning item that show the reasoning; None: the client named none.
    sealed: reasoning items carry the reasoning in `encrypted_content`.
    include: optional members of items that the client wants to see.
    logprobs: the text comes with log-probabilities.
    obfuscation: padding hides the lengths of deltas.
    """

    request: Request
    hosted: BuiltinToolParams = BuiltinToolParams()
    echo: dict[str, Any]
    stored: bool = False
    background: bool = False
    streamed: bool = False
    compact_above: int | None = None
    carrier: Literal["summary", "text"] | None = None
    sealed: bool = False
    include: frozenset[str] = frozenset()
    logprobs: bool = False
    obfuscation: bool = False


class ResponseHead(Struct, frozen=True):
    """The members that are the same in all of a response.  `created` in Unix seconds; `model` as the client named it.

    carrier: the members that carry the model's reasoning, as the operator configured it.
    events_sent: the number of events that the client has already received from the start.
    """

    id: str
    created: int
    model: str
    carrier: Carrier = "summary"
    events_sent: int = 0


class EncoderInputs(Struct, frozen=True):
    """The functions that an encoder needs, because it is pure.

    new_id: returns a new id with a prefix.
    now: returns the time in Unix seconds.
    seal: encrypts reasoning for `encrypted_content`.
    pad: returns the padding of a delta.
    """

    new_id: Callable[[str], str]
    now: Callable[[], int]
    seal: Callable[[StoredReasoning], str]
    pad: Callable[[], str]


def _text_or_items(value: Any, param: str) -> None:  # noqa: ANN401 - decoded JSON
    if not isinstance(value, str | list):
        raise wrong_type(value, param, "one of a string or array of objects")


def _conversation(value: Any, param: str) -> None:  # noqa: ANN401 - decoded JSON
    (_STORED if isinstance(value, str) else object_of({"id": _STORED}))(value, param)


def _tool_choice(value: Any, param: str) -> None:  # noqa: ANN401 - decoded JSON
    if not isinstance(value, str):
        object_of({"type": string})(value, param)


def _format(value: Any, param: str) -> None:  # noqa: ANN401 - decoded JSON
    object_of({"type": one_of("text", "json_object", "json_schema")})(value, param)
    if value["type"] == "json_schema":
        object_of({"name": string_of(64), "schema": object_}, {"strict": boolean, "description": string})(value, param)


TEXT = object_of({}, {"format": _format, "verbosity": one_of("low", "medium", "high")})
OPTIONAL: dict[str, ParamCheck] = {
    "access_programs": object_,
    "background": boolean,
    "background_options": object_of({}, {"completion_window": one_of("soonest", *_WINDOWS), "continuation_id": string}),
    "client_metadata": object_,
    "context_management": list_of(_MANAGED),
    "conversation": _conversation,
    "frequency_penalty": number_between(-2, 2),
    "generate": boolean,
    "image": object_,
    "include": INCLUDE,
    "input": _text_or_items,
    "instructions": _text_or_items,
    "max_output_tokens": integer_between(1),
    "max_tool_calls": integer_between(1),
    "metadata": check_metadata,
    "moderation": check_moderation,
    "parallel_tool_calls": boolean,
    "personality": string,
    "presence_penalty": number_between(-2, 2),
    "previous_response_id": _STORED,
    "prompt_cache_key": string,
    "prompt_cache_options": object_,
    "prompt_cache_retention": string,
    "reasoning": REASONING,
    "safety_identifier": string_of(128),
    "service_tier": string,
    "store": boolean,
    "stream": boolean,
    "stream_id": string,
    "stream_options": object_of({}, {"include_obfuscation": boolean}),
    "temperature": number_between(0, 2),
    "text": TEXT,
    "tool_choice": _tool_choice,
    "tools": list_of(object_, most=128),
    "top_logprobs": integer_between(0, 20),
    "top_p": number_between(0, 1),
    "truncation": one_of("auto", "disabled"),
    "user": string,
}


_OF_CHAT = {name: check for name, check in schema.OPTIONAL.items() if name not in OTHER_FORMS}  # go to the backend
_check = object_of(REQUIRED, {**_OF_CHAT, **OPTIONAL})
KNOWN = frozenset((*REQUIRED, *OPTIONAL, *_UNSUPPORTED))


def check_params(body: dict[str, Any], min_output_tokens: int) -> None:
    """Raise BadRequest for parameters that the API does not allow, or that the gateway does not support."""
    _check(body, "")
    for name, message in _UNSUPPORTED.items():
        if body.get(name):
            raise BadRequest(message, code="unsupported_parameter", param=name)
    if body.get("background") and body.get("store") is False:
        raise BadRequest(_NOT_STORED, param="background")
    _check_background(body)
    if "previous_response_id" in body and "conversation" in body:
        raise BadRequest(_EXCLUSIVE, code="mutually_exclusive_parameters")
    if "max_output_tokens" in body:
        integer_between(min_output_tokens)(body["max_output_tokens"], "max_output_tokens")


def _check_background(body: dict[str, Any]) -> None:
    """Raise BadRequest for options of a background response that do not fit this request."""
    options = body.get("background_options") or {}
    if unknown := options.keys() - {"completion_window", "continuation_id"}:
        param = f"background_options.{min(unknown)}"
        raise BadRequest(f"Unknown parameter: '{param}'.", code="unknown_parameter", param=param)
    window = options.get("completion_window")
    if window in _WINDOWS and (not body.get("background") or body.get("stream")):
        message = f"'{_WINDOW}' of '{window}' requires 'background': true and 'stream': false."
        raise BadRequest(message, code="invalid_value", param=_WINDOW)
