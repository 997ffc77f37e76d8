"""Conversations that lead the demo's small model to tool calls and reasoning, by two or more worked examples.

At temperature 0 the responses are then the same every time, also with another rounding order (other batches, a cached
prompt).  A second tool that is not called makes the model more reliable.  `TURNS` names the conversations and their
results.
"""

import json
from collections.abc import Iterator
from typing import Any, NamedTuple

Message = dict[str, Any]

WEATHER = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "Get the current weather for a city",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string"}, "unit": {"type": "string", "enum": ["celsius", "fahrenheit"]}},
            "required": ["city", "unit"],
            "additionalProperties": False,
        },
    },
}
TIME = {
    "type": "function",
    "function": {
        "name": "get_time",
        "description": "Get the current time in a timezone",
        "parameters": {
            "type": "object",
            "properties": {"timezone": {"type": "string"}},
            "required": ["timezone"],
            "additionalProperties": False,
        },
    },
}
TOOLS = [WEATHER, TIME]


class Turn(NamedTuple):
    """A request's messages and tools, and the response."""

    messages: list[Message]
    tools: list[dict[str, Any]]
    calls: list[tuple[str, dict[str, str]]]
    content: str = ""
    thought: str = ""

    def body(self, **more: Any) -> dict[str, Any]:
        """Return the body of the request."""
        offered = {"tools": self.tools} if self.tools else {}
        return {"model": "smollm2", "messages": self.messages, "temperature": 0, "max_tokens": 120, **offered, **more}

    @property
    def raw(self) -> str:
        """The response as the model writes it."""
        thought = [f"<think>\n{self.thought}\n</think>\n\n"] if self.thought else []
        calls = [
            "<tool_call>\n" + json.dumps({"name": name, "arguments": arguments}) + "\n</tool_call>"
            for name, arguments in self.calls
        ]
        return "".join(thought) + self.content + "\n".join(calls)


def user(text: str) -> Message:
    """Return a message of the user."""
    return {"role": "user", "content": text}


def assistant(text: str, thought: str = "") -> Message:
    """Return a message of the assistant."""
    return {"role": "assistant", "content": text} | ({"reasoning_content": thought} if thought else {})


def in_celsius(city: str) -> tuple[str, dict[str, str]]:
    """Return name and arguments of a call."""
    return "get_weather", {"city": city, "unit": "celsius"}


def weather_question(*cities: str) -> Message:
    """Return a question about the weather."""
    return user(f"What is the weather {' and '.join(f'in {city}' for city in cities)} in celsius?")


def calling(*cities: str, thought: str = "") -> Message:
    """Return a message with calls for these cities."""
    calls = [
        {"id": f"call_{city}", "type": "function", "function": {"name": name, "arguments": json.dumps(arguments)}}
        for city in cities
        for name, arguments in [in_celsius(city)]
    ]
    return assistant("", thought) | {"tool_calls": calls}


def results(**degrees: int) -> list[Message]:
    """Return the results of the calls."""
    return [
        {"role": "tool", "tool_call_id": f"call_{city}", "content": json.dumps({"temperature": value})}
        for city, value in degrees.items()
    ]


def thought_of(*cities: str) -> str:
    """Return the thought before the calls."""
    times = "" if len(cities) == 1 else " twice"
    return f"The user asks about {' and '.join(cities)}. I call get_weather{times}."


def lesson(thinking: bool, **degrees: int) -> list[Message]:
    """Return an example: a question about one or two cities, the calls, their results, the final message."""
    readings = [f"{value} celsius in {city}" for city, value in degrees.items()]
    values = " and ".join(str(value) for value in degrees.values())
    after = ("The result is" if len(degrees) == 1 else "The results are") + f" {values}."
    return [
        weather_question(*degrees),
        calling(*degrees, thought=thought_of(*degrees) if thinking else ""),
        *results(**degrees),
        assistant(f"It is {' and '.join(readings)}.", after if thinking else ""),
    ]


def weather(*, thinking: bool = False, parallel: bool = False) -> list[Message]:
    """Return the examples with calls."""
    singles = lesson(thinking, Berlin=12) + lesson(thinking, Rome=25)
    return singles + (lesson(thinking, Oslo=3, Madrid=30) + lesson(thinking, Cairo=35, Lima=19) if parallel else [])


def sums() -> list[Message]:
    """Return the examples of sums."""
    rows = [(2, 2), (3, 5), (1, 6)]
    return [
        message
        for a, b in rows
        for message in (
            user(f"What is {a} + {b}?"),
            assistant(f"{a} + {b} = {a + b}.", f"The user wants {a} + {b}. That is {a + b}."),
        )
    ]


def items(messages: list[Message]) -> Iterator[Message]:
    """Yield the conversation in the items of the Responses API."""
    for message in messages:
        if thought := message.get("reasoning_content"):
            yield {"type": "reasoning", "summary": [{"type": "summary_text", "text": thought}]}
        if message["role"] == "tool":
            yield {"type": "function_call_output", "call_id": message["tool_call_id"], "output": message["content"]}
        elif message["content"]:
            yield {"role": message["role"], "content": message["content"]}
        for call in message.get("tool_calls", ()):
            yield {"type": "function_call", "call_id": call["id"], **call["function"]}


TURNS = {
    "single": Turn([*weather(), weather_question("Paris")], TOOLS, [in_celsius("Paris")]),
    "parallel": Turn(
        [*weather(parallel=True), weather_question("London", "Paris")],
        TOOLS,
        [in_celsius("London"), in_celsius("Paris")],
    ),
    "think": Turn([*sums(), user("What is 4 + 3?")], [], [], "4 + 3 = 7.", "The user wants 4 + 3. That is 7."),
    "think_then_call": Turn(
        [*weather(thinking=True), weather_question("Paris")], TOOLS, [in_celsius("Paris")], thought=thought_of("Paris")
    ),
    "think_then_calls": Turn(
        [*weather(thinking=True, parallel=True), weather_question("London", "Paris")],
        TOOLS,
        [in_celsius("London"), in_celsius("Paris")],
        thought=thought_of("London", "Paris"),
    ),
    "follow_up": Turn(
        [*weather(), weather_question("Paris"), calling("Paris"), *results(Paris=18)],
        TOOLS,
        [],
        "It is 18 celsius in Paris.",
    ),
}
