"""Find the path in the request body of a member of the messages that were made from it."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from gateway.request import Message

_STEP = re.compile(r"\[(\d+)\]|([^.\[\]]+)")
_READ = ("input", "instructions")  # the members that become messages


def has_parts(messages: Iterable[Message]) -> bool:
    """Return True if a message has parts such as images or files, which errors may refer to."""
    return any(type(message.get("content")) is list for message in messages)


def place(body: Mapping[str, Any], messages: Sequence[Message], param: str) -> str | None:
    """Return the path in the body of the value at this path of the messages; None if the body does not have it."""
    value: Any = {"messages": messages}
    for index, name in _STEP.findall(param):
        try:
            value = value[int(index) if index else name]
        except (KeyError, IndexError, TypeError):
            return None
    found = (path for name in _READ for path in paths_of(body.get(name), name, value))
    return next(found, None) if isinstance(value, str) else None


def paths_of(inside: Any, path: str, value: str) -> Iterator[str]:  # noqa: ANN401 - decoded JSON
    """Yield the paths in a value, which stands at this path itself, where a text stands."""
    if isinstance(inside, dict):
        for name, member in inside.items():
            yield from paths_of(member, f"{path}.{name}", value)
    elif isinstance(inside, list):
        for i, element in enumerate(inside):
            yield from paths_of(element, f"{path}[{i}]", value)
    elif inside == value:
        yield path
