"""Resolve the name that a model wrote to an offered tool."""

import re
from collections.abc import Iterable, Mapping
from typing import Any

_COUNTER, _TAG = re.compile(r":\d+$"), re.compile(r"<[|/]")


def resolve(name: str, tools: Mapping[str, Any]) -> str:
    """Return the offered tool that a name means; the name itself if no tool or several match.

    These differences do not count:

    - letter case, `-` for `_`, blanks around the name
    - a counter `:0`, a prefix up to the last `.` or `:`
    - a special token `<|…` or a closing tag `</…` with all text behind it
    """
    if name in tools or not tools:
        return name
    plain = _COUNTER.sub("", _TAG.split(name, maxsplit=1)[0].strip())
    for form in (plain, re.split("[.:]", plain)[-1]):
        found = [tool for tool in tools if _key(tool) == _key(form)]
        if len(found) == 1:
            return found[0]
    return name


def arguments_behind(name: str, tools: Mapping[str, Any]) -> str:
    """Return the JSON behind a tag in the name of an offered tool; "" without one.

    A server whose parser lost a call of Kimi K2 sends `f:0<|tool_call_argument_begin|>{…}` as the name.
    """
    _, *rest = _TAG.split(name, maxsplit=1)
    begin = rest[0].find("{") if rest else -1
    return rest[0][begin:] if begin >= 0 and resolve(name, tools) in tools else ""


def certain(name: str, tools: Iterable[str]) -> bool:
    """Return True if a name is that of a tool and not the beginning of another tool's name."""
    return [tool for tool in tools if tool.startswith(name)] == [name]


def _key(name: str) -> str:
    return name.casefold().replace("-", "_")
