"""Define and check the parameters of a message, and those that its encoder needs."""

from typing import Any

from msgspec import Struct

from gateway.api.chat import schema
from gateway.api.responses.params import BuiltinToolParams
from gateway.api.validation import (
    ParamCheck,
    array,
    boolean,
    check_stop,
    integer_between,
    list_of,
    number_between,
    object_,
    object_of,
    one_of,
    string,
    wrong_type,
)
from gateway.request import Request

THINKS = ("enabled", "adaptive", "between_tools")
_DISPLAYS = ("summarized", "updates", "omitted")
# Members without an effect on a local model.
IDLE = frozenset(
    ("cache_control", "service_tier", "speed", "inference_geo", "user_profile_id", "workspace_id", "diagnostics")
)
# Members for features that the gateway lacks.
UNDONE = frozenset(("container", "fallbacks", "task_budget"))
# Members of a chat completion with another name in a message, or without a place.
_OF_CHAT = frozenset(
    ("audio", "function_call", "functions", "logprobs", "max_completion_tokens", "modalities", "n", "store",
     "stream_options", "top_logprobs")
)  # fmt: skip


class MessageParams(Struct, frozen=True, kw_only=True):
    """The parsed parameters of a message.

    hosted: the tools that run at the gateway.
    sticky: the client's own name for requests that should reach the same backend; None: none.
    stop_sequences: the client's stop sequences.
    shows_thinking: thinking blocks have their text, not only their signature.
    """

    request: Request
    hosted: BuiltinToolParams = BuiltinToolParams()
    sticky: str | None = None
    stop_sequences: frozenset[str] = frozenset()
    shows_thinking: bool = True


class MessageHead(Struct, frozen=True):
    """The members that are the same in all of a message.  `model` as the client named it.

    request_id: for an error amid the stream.
    input_tokens: an estimate for the beginning, before the backend has counted.
    window: the context length of the model in tokens; None: unknown.
    hidden: the operator hides all reasoning.
    """

    id: str
    model: str
    request_id: str = ""
    input_tokens: int = 0
    window: int | None = None
    hidden: bool = False


def _text_or_blocks(value: Any, param: str) -> None:  # noqa: ANN401 - decoded JSON
    if not isinstance(value, str | list):
        raise wrong_type(value, param, "one of a string or array of objects")


def _stop_sequences(value: Any, param: str) -> None:  # noqa: ANN401 - decoded JSON
    array(value, param)
    check_stop(value, param)


_MESSAGE = object_of({"role": one_of("user", "assistant", "system"), "content": _text_or_blocks})
_FORMAT = object_of({"type": one_of("json_schema"), "schema": object_})
_SERVER = object_of(
    {"name": string, "url": string},
    {"authorization_token": string, "tool_configuration": object_of({}, {"allowed_tools": list_of(string)})},
)
_REQUIRED: dict[str, ParamCheck] = {"model": string, "messages": list_of(_MESSAGE, least=1)}
_LIMIT: dict[str, ParamCheck] = {"max_tokens": integer_between(0)}
_OPTIONAL: dict[str, ParamCheck] = {
    "context_management": object_of({}, {"edits": list_of(object_of({"type": string}))}),
    "mcp_servers": list_of(_SERVER),
    "metadata": object_of({}, {"user_id": string}),
    "output_config": object_of({}, {"effort": one_of("low", "medium", "high", "xhigh", "max"), "format": _FORMAT}),
    "output_format": _FORMAT,
    "stop_sequences": _stop_sequences,
    "stream": boolean,
    "system": _text_or_blocks,
    "temperature": number_between(0, 2),
    "thinking": object_of(
        {"type": one_of(*THINKS, "disabled")},
        {"budget_tokens": integer_between(), "display": one_of(*_DISPLAYS)},
    ),
    "thread": object_,
    "tool_choice": object_of({"type": one_of("auto", "any", "tool", "none")}, {"disable_parallel_tool_use": boolean}),
    "tools": array,
    "top_k": integer_between(0),
    "top_p": number_between(0, 1),
}
_check = object_of({**_REQUIRED, **_LIMIT}, _OPTIONAL)
_check_counted = object_of(_REQUIRED, {**_OPTIONAL, **_LIMIT})
_KNOWN = frozenset((*_REQUIRED, *_LIMIT, *_OPTIONAL, *IDLE, *UNDONE))


def check_params(body: dict[str, Any], *, counts: bool) -> None:
    """Raise BadRequest for invalid parameters.  counts: the prompt is only counted, so no limit is needed."""
    (_check_counted if counts else _check)(body, "")


def further_fields(body: dict[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """Return the members that the API lacks, and the names of those that have no place in a message.

    Raise BadRequest for an invalid member of a chat completion.
    """
    unknown = {name: value for name, value in body.items() if name not in _KNOWN}
    fields = {name: value for name, value in unknown.items() if name not in _OF_CHAT}
    schema.check_optional(fields, "")
    if "response_format" in fields:
        schema.usual_format(fields)
    return fields, [name for name in unknown if name in _OF_CHAT]
