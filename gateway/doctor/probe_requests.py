"""Build the requests of probes, and their bodies.

A probe drops no field, so the response shows what the server ignores.  The conversations contain worked examples, so
that small models call tools and think as well.
"""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

from msgspec import Struct, json
from msgspec.structs import replace

from gateway.api.chat.schema import KNOWN
from gateway.backends import Kind
from gateway.backends.dialects import DIALECTS
from gateway.backends.field_rules import PASSED, EmulatedRule
from gateway.backends.openai.messages import MessagePolicy
from gateway.backends.openai.request_body import BodyTarget
from gateway.request import Message, Request, Tool, ToolChoice, ToolName
from gateway.warnings import Warnings

_RED = (  # 64 × 64 pixels
    "iVBORw0KGgoAAAANSUhEUgAAAEAAAABACAIAAAAlC+aJAAAAS0lEQVR42u3PQQkAAAgAsetfWiP4FgYrsKZeS0BAQEBAQEBAQEBAQEBAQEBAQEBA"
    "QEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEDgsqnc8OJg6Ln3AAAAAElFTkSuQmCC"
)

_TOKENS = 512  # of a response, thoughts included
_FEW_TOKENS = 256  # of a response that has to end in a tool call: a server may let a model generate text until then
_SENT_TO_ALL = ("logprobs", "n", "parallel_tool_calls", "response_format", "stop", "tool_choice", "top_logprobs")
_COLOURS = ("blue", "green")
_SCHEMA = {
    "type": "object",
    "properties": {"colour": {"type": "string", "enum": [*_COLOURS]}, "number": {"type": "integer"}},
    "required": ["colour", "number"],
    "additionalProperties": False,
}


def _tool(name: str, description: str, **properties: object) -> Tool:
    parameters = {"type": "object", "properties": properties, "required": [*properties], "additionalProperties": False}
    return Tool(name, {"name": name, "description": description, "parameters": parameters})


TOOLS = (
    _tool(
        "get_weather",
        "Get the current weather for a city",
        city={"type": "string"},
        unit={"type": "string", "enum": ["celsius", "fahrenheit"]},
    ),
    _tool("get_time", "Get the current time in a timezone", timezone={"type": "string"}),
)


def user_message(text: str) -> Message:
    """Return a user message."""
    return {"role": "user", "content": text}


def one_tool_call_messages() -> tuple[Message, ...]:
    """Return a conversation in which one call of get_weather is due."""
    return (*_lesson(Berlin=12), *_lesson(Rome=25), _weather_question(["Paris"]))


def two_tool_calls_messages() -> tuple[Message, ...]:
    """Return a conversation in which two tool calls are due."""
    single = (*_lesson(Berlin=12), *_lesson(Rome=25))
    return (*single, *_lesson(Oslo=3, Madrid=30), *_lesson(Cairo=35, Lima=19), _weather_question(["London", "Paris"]))


def arithmetic_messages(*, thinking: bool) -> tuple[Message, ...]:
    """Return a conversation in which `4 + 3 = 7.` is due, after a thought if `thinking`."""
    items = [message for a, b in ((2, 2), (3, 5), (1, 6)) for message in _summed(a, b, thinking)]
    return (*items, user_message("What is 4 + 3?"))


def image_messages() -> tuple[Message, ...]:
    """Return a conversation with a red image, in which its color is due."""
    picture = {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{_RED}"}}
    return ({"role": "user", "content": [{"type": "text", "text": "Which colour is this? One word."}, picture]},)


def _summed(a: int, b: int, thinking: bool) -> tuple[Message, Message]:
    thought = {"reasoning_content": f"The user wants {a} + {b}. That is {a + b}."} if thinking else {}
    return user_message(f"What is {a} + {b}?"), {"role": "assistant", "content": f"{a} + {b} = {a + b}.", **thought}


def _lesson(**degrees: int) -> tuple[Message, ...]:
    """Return an example: a message about one or more cities, the tool calls, their results, the final message."""
    calls = [_call(city) for city in degrees]
    results = [
        {"role": "tool", "tool_call_id": call["id"], "content": _written({"temperature": value})}
        for call, value in zip(calls, degrees.values(), strict=True)
    ]
    text = " and ".join(f"{value} celsius in {city}" for city, value in degrees.items())
    return (
        _weather_question([*degrees]),
        {"role": "assistant", "content": "", "tool_calls": calls},
        *results,
        {"role": "assistant", "content": f"It is {text}."},
    )


def _weather_question(cities: Sequence[str]) -> Message:
    return user_message(f"What is the weather {' and '.join(f'in {city}' for city in cities)} in celsius?")


def _call(city: str) -> dict[str, object]:
    """Return a tool call with an id of nine letters, as some chat templates require."""
    arguments = _written({"city": city, "unit": "celsius"})
    function = {"name": "get_weather", "arguments": arguments}
    return {"id": f"{city:x<9}", "type": "function", "function": function}


def _written(value: object) -> str:
    """Encode as JSON with spaces, as models and chat templates write it."""
    return json.format(json.encode(value), indent=0).decode()


class ProbeRequest(Struct, frozen=True):
    """A probe.  request: without a model name.

    offers_forbidden_tools: the request has tools, and none may be called.
    is_abandoned: the client disconnects before the response ends.
    """

    request: Request
    offers_forbidden_tools: bool = False
    is_abandoned: bool = False


def _request(
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


_PLAIN = _request(arithmetic_messages(thinking=False))
_WEATHER = _request(one_tool_call_messages(), tools=TOOLS)
_WEATHERS = _request(two_tool_calls_messages(), tools=TOOLS)
_NO_NEED = _request(arithmetic_messages(thinking=False), tools=TOOLS, choice="required")
_STREAMED = replace(_PLAIN, stream=True)

# In the order in which they are sent; if the first fails, the others are skipped.
PROBE_REQUESTS: Mapping[str, ProbeRequest] = MappingProxyType(
    {
        "plain": ProbeRequest(_PLAIN),
        "streamed": ProbeRequest(_STREAMED),
        "endless": ProbeRequest(
            _request((user_message("Count from 1 to 1000, one number a line."),), stream=True), is_abandoned=True
        ),
        "after": ProbeRequest(_STREAMED),
        "thinking": ProbeRequest(_request(arithmetic_messages(thinking=True), stream=True)),
        "tools": ProbeRequest(_WEATHER),
        "tools_streamed": ProbeRequest(replace(_WEATHER, stream=True)),
        "parallel": ProbeRequest(replace(_WEATHERS, stream=True)),
        "one_call": ProbeRequest(replace(_WEATHERS, rest={**_WEATHERS.rest, "parallel_tool_calls": False})),
        "required": ProbeRequest(replace(_NO_NEED, max_tokens=_FEW_TOKENS)),
        "named": ProbeRequest(replace(_WEATHER, tool_choice=ToolName("get_time"))),
        "none": ProbeRequest(_WEATHER, offers_forbidden_tools=True),
        "schema": ProbeRequest(replace(_PLAIN, rest={**_PLAIN.rest, "response_format": _format(_SCHEMA)})),
        "stopped": ProbeRequest(replace(_PLAIN, rest={**_PLAIN.rest, "stop": ["="]})),
        "twice": ProbeRequest(replace(_PLAIN, n=2, rest={"temperature": 1})),
        "chances": ProbeRequest(replace(_PLAIN, rest={**_PLAIN.rest, "logprobs": True, "top_logprobs": 2})),
        "image": ProbeRequest(_request(image_messages())),
    }
)


def matches_probe_schema(value: object) -> bool:
    """Return True if decoded JSON matches the schema of the probe `schema`."""
    match value:
        case {"colour": colour, "number": int(), **others}:
            return colour in _COLOURS and not others
    return False


def build_probe_body(
    probe: ProbeRequest, model: str, kind: Kind, special: bool, ledger: Warnings
) -> tuple[Request, bytes]:
    """Return the request of a probe, and its body for this kind of server.

    special: the model's tool call tags are special tokens, as far as is known.
    """
    if kind.dialect == "openai":
        kind = replace(kind, fields={**kind.fields, **dict.fromkeys(_SENT_TO_ALL, PASSED)})
    if probe.offers_forbidden_tools:  # sends tools that may not be called, even where they would be left out
        kind = replace(kind, refuses_tools=True)
    request = replace(probe.request, model=model)
    if request.is_tool_forced and isinstance(kind.fields["tool_choice"], EmulatedRule):
        ledger.add("unenforced", "tool_choice")
    policy = MessagePolicy(reasoning=kind.reasoning, continues=kind.continues, lists=kind.lists)
    target = BodyTarget(model, kind, policy, parsed_here=probe.offers_forbidden_tools, special=special)
    return request, DIALECTS[kind.dialect].body(request, target, KNOWN, ledger)


def omitted_fields(ledger: Warnings) -> frozenset[str]:
    """Return the fields that a probe's body leaves out."""
    items = (entry.partition(":") for entry in ledger.entries())
    return frozenset(field for code, _, field in items if code in ("dropped", "unenforced"))
