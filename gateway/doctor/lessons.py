"""Conversations that lead to calls and thoughts: each has worked examples, so that also a small model does likewise."""

from collections.abc import Sequence

from msgspec import json

from gateway.request import Message, Tool

_RED = (  # 64 × 64 pixels
    "iVBORw0KGgoAAAANSUhEUgAAAEAAAABACAIAAAAlC+aJAAAAS0lEQVR42u3PQQkAAAgAsetfWiP4FgYrsKZeS0BAQEBAQEBAQEBAQEBAQEBAQEBA"
    "QEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEDgsqnc8OJg6Ln3AAAAAElFTkSuQmCC"
)


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
    return {"role": "user", "content": text}


def one_tool_call_messages() -> tuple[Message, ...]:
    """One call is due, of get_weather."""
    return (*_lesson(Berlin=12), *_lesson(Rome=25), _asked(["Paris"]))


def two_tool_calls_messages() -> tuple[Message, ...]:
    """Two calls are due."""
    single = (*_lesson(Berlin=12), *_lesson(Rome=25))
    return (*single, *_lesson(Oslo=3, Madrid=30), *_lesson(Cairo=35, Lima=19), _asked(["London", "Paris"]))


def arithmetic_messages(*, thinking: bool) -> tuple[Message, ...]:
    """`4 + 3 = 7.` is due, after a thought if `thinking`."""
    said = [message for a, b in ((2, 2), (3, 5), (1, 6)) for message in _summed(a, b, thinking)]
    return (*said, user_message("What is 4 + 3?"))


def image_messages() -> tuple[Message, ...]:
    """A picture, of which the colour is due."""
    picture = {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{_RED}"}}
    return ({"role": "user", "content": [{"type": "text", "text": "Which colour is this? One word."}, picture]},)


def _summed(a: int, b: int, thinking: bool) -> tuple[Message, Message]:
    thought = {"reasoning_content": f"The user wants {a} + {b}. That is {a + b}."} if thinking else {}
    return user_message(f"What is {a} + {b}?"), {"role": "assistant", "content": f"{a} + {b} = {a + b}.", **thought}


def _lesson(**degrees: int) -> tuple[Message, ...]:
    """A question about one city or more, the calls, their results, the answer."""
    calls = [_call(city) for city in degrees]
    results = [
        {"role": "tool", "tool_call_id": call["id"], "content": _written({"temperature": value})}
        for call, value in zip(calls, degrees.values(), strict=True)
    ]
    told = " and ".join(f"{value} celsius in {city}" for city, value in degrees.items())
    return (
        _asked([*degrees]),
        {"role": "assistant", "content": "", "tool_calls": calls},
        *results,
        {"role": "assistant", "content": f"It is {told}."},
    )


def _asked(cities: Sequence[str]) -> Message:
    return user_message(f"What is the weather {' and '.join(f'in {city}' for city in cities)} in celsius?")


def _call(city: str) -> dict[str, object]:
    """With an id of nine letters, as some templates want it."""
    arguments = _written({"city": city, "unit": "celsius"})
    function = {"name": "get_weather", "arguments": arguments}
    return {"id": f"{city:x<9}", "type": "function", "function": function}


def _written(value: object) -> str:
    """With spaces, as models and templates write it."""
    return json.format(json.encode(value), indent=0).decode()
