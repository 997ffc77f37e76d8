"""Build the requests of probes, and their bodies.

In the dialect in which the gateway would ask, but with nothing left out that a kind of server is known not to do: that
it does not is to be seen.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from gateway.backends import Kind
from gateway.backends.dialects import DIALECTS
from gateway.backends.openai.body import BodyTarget
from gateway.backends.openai.messages import MessagePolicy
from gateway.backends.verdicts import PASSED, EmulatedRule
from gateway.doctor import lessons
from gateway.endpoints.chat.fields import KNOWN
from gateway.ledger import Warnings
from gateway.request import Message, Request, Tool, ToolChoice, ToolName

_TOKENS = 512  # of an answer, thoughts included
_FEW_TOKENS = 256  # of one that has to end in a call: a server may let a model talk on until it does
_ASKED_OF_ALL = ("logprobs", "n", "parallel_tool_calls", "response_format", "stop", "tool_choice", "top_logprobs")
_COLOURS = ("blue", "green")
_SCHEMA = {
    "type": "object",
    "properties": {"colour": {"type": "string", "enum": [*_COLOURS]}, "number": {"type": "integer"}},
    "required": ["colour", "number"],
    "additionalProperties": False,
}


class ProbeRequest(Struct, frozen=True):
    """request: without the name of a model.

    shown: the tools are to be seen, and none may be called.
    left: the probe ends before the response does.
    """

    request: Request
    shown: bool = False
    left: bool = False


def _ask(
    messages: tuple[Message, ...],
    *,
    tools: tuple[Tool, ...] = (),
    choice: ToolChoice | None = None,
    stream: bool = False,
    n: int = 1,
    **rest: object,
) -> Request:
    return Request(
        model="",
        messages=messages,
        tools=tools,
        tool_choice=choice,
        max_tokens=_TOKENS,
        n=n,
        stream=stream,
        rest={"temperature": 0, **rest},
    )


def _format(schema: Mapping[str, Any]) -> Mapping[str, Any]:
    return {"type": "json_schema", "json_schema": {"name": "answer", "strict": True, "schema": schema}}


_PLAIN = _ask(lessons.arithmetic_messages(thinking=False))
_WEATHER = _ask(lessons.one_tool_call_messages(), tools=lessons.TOOLS)
_WEATHERS = _ask(lessons.two_tool_calls_messages(), tools=lessons.TOOLS)
_NO_NEED = _ask(lessons.arithmetic_messages(thinking=False), tools=lessons.TOOLS, choice="required")
_STREAMED = replace(_PLAIN, stream=True)

# In the order in which they are asked; if the first gets no answer, no other is.
QUESTIONS: Mapping[str, ProbeRequest] = MappingProxyType(
    {
        "plain": ProbeRequest(_PLAIN),
        "streamed": ProbeRequest(_STREAMED),
        "endless": ProbeRequest(
            _ask((lessons.user_message("Count from 1 to 1000, one number a line."),), stream=True), left=True
        ),
        "after": ProbeRequest(_STREAMED),
        "thinking": ProbeRequest(_ask(lessons.arithmetic_messages(thinking=True), stream=True)),
        "tools": ProbeRequest(_WEATHER),
        "tools_streamed": ProbeRequest(replace(_WEATHER, stream=True)),
        "parallel": ProbeRequest(replace(_WEATHERS, stream=True)),
        "one_call": ProbeRequest(replace(_WEATHERS, rest={**_WEATHERS.rest, "parallel_tool_calls": False})),
        "required": ProbeRequest(replace(_NO_NEED, max_tokens=_FEW_TOKENS)),
        "named": ProbeRequest(replace(_WEATHER, tool_choice=ToolName("get_time"))),
        "none": ProbeRequest(_WEATHER, shown=True),
        "schema": ProbeRequest(replace(_PLAIN, rest={**_PLAIN.rest, "response_format": _format(_SCHEMA)})),
        "stopped": ProbeRequest(replace(_PLAIN, rest={**_PLAIN.rest, "stop": ["="]})),
        "twice": ProbeRequest(replace(_PLAIN, n=2, rest={"temperature": 1})),
        "chances": ProbeRequest(replace(_PLAIN, rest={**_PLAIN.rest, "logprobs": True, "top_logprobs": 2})),
        "image": ProbeRequest(_ask(lessons.image_messages())),
    }
)


def matches_probe_schema(value: object) -> bool:
    """True if decoded JSON is what the question `schema` asks for."""
    match value:
        case {"colour": colour, "number": int(), **others}:
            return colour in _COLOURS and not others
    return False


def build_probe_body(
    question: ProbeRequest, model: str, kind: Kind, special: bool, ledger: Warnings
) -> tuple[Request, bytes]:
    """The request, and the body for it.

    special: the tags of the model's calls are special tokens, as far as is known.
    """
    if kind.dialect == "openai":
        kind = replace(kind, fields={**kind.fields, **dict.fromkeys(_ASKED_OF_ALL, PASSED)})
    if question.shown:  # tools that nobody may call are sent where they would be refused else
        kind = replace(kind, refuses_tools=True)
    request = replace(question.request, model=model)
    if request.forced and isinstance(kind.fields["tool_choice"], EmulatedRule):
        ledger.note("unenforced", "tool_choice")
    policy = MessagePolicy(reasoning=kind.reasoning, continues=kind.continues)
    target = BodyTarget(model, kind, policy, parsed_here=question.shown, special=special)
    return request, DIALECTS[kind.dialect].body(request, target, KNOWN, ledger)


def omitted_fields(ledger: Warnings) -> frozenset[str]:
    """The fields that the body for a question does not have."""
    told = (entry.partition(":") for entry in ledger.entries())
    return frozenset(field for code, _, field in told if code in ("dropped", "unenforced"))
