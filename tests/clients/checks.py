"""What the Python clients share: the conversations, what an answer must be, and one printed line for each check.

A client is a script that names its ways to ask; each way is tried with some conversations on all models, or, with
CLIENTS_CHECKS=each in the environment, each check on one of them in turn.
"""

import asyncio
import json
import os
import sys
import textwrap
import traceback
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from inspect import iscoroutinefunction
from itertools import repeat
from pathlib import Path
from typing import Any, NamedTuple, NoReturn, TypeVar

BASE_URL = os.environ["CLIENTS_URL"]
ROOT_URL = BASE_URL.removesuffix("/v1")  # for clients that add it themselves
FACTS = json.loads(Path(os.environ["CLIENTS_FACTS"]).read_text("utf-8"))  # see serve.py
MODELS: list[str] = FACTS["models"]
SIGNATURE: str = FACTS["signature"]  # of a thinking block, at its beginning
EXTRA: dict[str, Any] = FACTS["extra"]  # fields that keep the responses the same each time
MESSAGE_EXTRA: dict[str, Any] = FACTS[
    "message_extra"
]  # the same of the Messages API, whose clients know no temperature
ALL_TURNS: Any = {"context": "all_turns"}
WHOLE = ("think", "single")
STREAMED = ("think", "think_then_calls")
WEATHER = '{"temperature": 18}'  # in Paris, as in the conversation `follow_up`

Message = dict[str, Any]
Call = tuple[str, dict[str, str]]


class Turn(NamedTuple):
    """A conversation and the answer to it; see worked_examples.py and serve.py."""

    messages: list[Message]
    tagged: list[Message]
    tools: list[dict[str, Any]]
    calls: list[Call]
    content: str
    thought: str

    def body(self, model: str, **more: Any) -> dict[str, Any]:
        """For a client that takes what is sent."""
        offered = {"tools": self.tools} if self.tools else {}
        common = {"model": model, "messages": self.messages, "temperature": 0, "max_tokens": 120, "extra_body": EXTRA}
        return common | offered | more

    def response(self, model: str, **more: Any) -> dict[str, Any]:
        """The same, asking for a response: with the thoughts of all turns, as it else has those of the last one."""
        tools = [{"type": "function", "strict": False, **tool["function"]} for tool in self.tools]
        offered: dict[str, Any] = {"tools": tools} if tools else {}
        common = {"model": model, "input": items(self.messages), "temperature": 0, "max_output_tokens": 120}
        return common | {"store": False, "reasoning": ALL_TURNS, "extra_body": EXTRA} | offered | more

    def message(self, model: str, **more: Any) -> dict[str, Any]:
        """Return the body of a message."""
        functions = [tool["function"] for tool in self.tools]
        tools = [
            {"name": each["name"], "description": each["description"], "input_schema": each["parameters"]}
            for each in functions
        ]
        offered: dict[str, Any] = {"tools": tools} if tools else {}
        common = {"model": model, "messages": to_messages_api(self.messages), "max_tokens": 120}
        return common | {"extra_body": MESSAGE_EXTRA} | offered | more


class Answer(NamedTuple):
    """What the client says that the model said; a thought of None is one that this client never tells."""

    content: str | None
    calls: list[Call]
    finish: str | None
    usage: tuple[int, int]
    thought: str | None = None


def items(messages: list[Message]) -> list[dict[str, Any]]:
    """A conversation as the items of the Responses API."""
    return [item for number, message in enumerate(messages) for item in _split(message, number)]


def _split(message: Message, number: int) -> Iterator[dict[str, Any]]:
    if thought := message.get("reasoning_content"):
        yield {"type": "reasoning", "id": f"r{number}", "summary": [{"type": "summary_text", "text": thought}]}
    if message["role"] == "tool":
        yield {"type": "function_call_output", "call_id": message["tool_call_id"], "output": message["content"]}
    elif message["role"] == "user":
        yield {"role": "user", "content": message["content"]}
    elif message["content"]:
        text = {"type": "output_text", "text": message["content"], "annotations": []}
        yield {"type": "message", "id": f"m{number}", "role": "assistant", "status": "completed", "content": [text]}
    for call in message.get("tool_calls", ()):
        yield {"type": "function_call", "call_id": call["id"], **call["function"]}


def to_messages_api(messages: list[Message]) -> list[Message]:
    """Return a conversation as the messages of the Messages API, with the results of parallel calls in one."""
    converted_messages: list[Message] = []
    for message in messages:
        if message["role"] == "user":
            converted_messages.append(message)
        elif message["role"] == "assistant":
            converted_messages.append({"role": "assistant", "content": [*_blocks(message)]})
        else:
            result = {"type": "tool_result", "tool_use_id": message["tool_call_id"], "content": message["content"]}
            if converted_messages[-1]["role"] != "user":
                converted_messages.append({"role": "user", "content": []})
            converted_messages[-1]["content"].append(result)
    return converted_messages


def _blocks(message: Message) -> Iterator[Message]:
    if thought := message.get("reasoning_content"):
        yield {"type": "thinking", "thinking": thought, "signature": "of another service"}
    if message["content"]:
        yield {"type": "text", "text": message["content"]}
    for call in message.get("tool_calls", ()):
        function = call["function"]
        yield {
            "type": "tool_use",
            "id": call["id"],
            "name": function["name"],
            "input": json.loads(function["arguments"]),
        }


Way = Callable[[str, Turn], Answer | Awaitable[Answer]]
Loop = Callable[[str], Awaitable[None] | None]
Check = Callable[[str], Awaitable[None]]
T = TypeVar("T")


def _turn(row: dict[str, Any]) -> Turn:
    return Turn(**row | {"calls": [(name, arguments) for name, arguments in row["calls"]]})


TURNS = {name: _turn(row) for name, row in FACTS["turns"].items()}


def run(
    client: str, ways: Mapping[Way, Iterable[str]], loops: Iterable[Loop] = (), models: Sequence[str] = MODELS
) -> NoReturn:
    """Ends the process, well only if there were checks and all passed."""
    counts: dict[str, tuple[int, int]] = {}
    checks: dict[str, Check] = {
        f"{way.__name__} · {name}": partial(_compare, way, name, counts)
        for way, names in ways.items()
        for name in names
    }
    checks |= {loop.__name__: partial(_value, loop) for loop in loops}
    sys.exit(not (checks and asyncio.run(_all(client, checks, models))))


async def _all(client: str, checks: Mapping[str, Check], models: Sequence[str]) -> bool:
    """All models at a time, as each has a core to itself; in one event loop, as some clients cache connections."""
    step = len(models) if os.environ.get("CLIENTS_CHECKS") == "each" else 1
    shares = [dict([*checks.items()][place % step :: step]) for place in range(len(models))]
    return all(await asyncio.gather(*map(_in_turn, repeat(client), models, shares)))


async def _in_turn(client: str, model: str, checks: Mapping[str, Check]) -> bool:
    errors = []
    for label, check in checks.items():
        (error,) = await asyncio.gather(check(model), return_exceptions=True)
        say("ok  " if error is None else "FAIL", f"{client} · {model} · {label}")
        if error is not None:
            errors.append(error)
            say(textwrap.indent("".join(traceback.format_exception(error)), "     ").rstrip())
    return not errors


async def _compare(way: Way, name: str, counts: dict[str, tuple[int, int]], model: str) -> None:
    """The same answer whoever asks and parses, and in this client the same counts."""
    turn = TURNS[name]
    answer = await _value(way, model, turn)
    thought = None if answer.thought is None else answer.thought.strip()
    assert (answer.content or "", answer.calls) == (turn.content, turn.calls), answer
    assert thought in {None, turn.thought}, answer
    assert answer.finish == ("tool_calls" if turn.calls else "stop"), answer
    assert min(answer.usage) > 5, answer
    assert counts.setdefault(name, answer.usage) == answer.usage, f"{answer.usage}, before {counts[name]}"


async def _value(function: Callable[..., T | Awaitable[T]], *args: Any) -> T:
    """A blocking function gets a thread."""
    if iscoroutinefunction(function):
        return await function(*args)
    return await asyncio.to_thread(function, *args)


def say(*words: str) -> None:
    sys.stdout.write(" ".join(words) + "\n")
    sys.stdout.flush()
