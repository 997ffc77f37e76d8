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


def certain(name: str, tools: Iterable[str]) -> bool:
    """Return True if a name is that of a tool and not the beginning of another tool's name."""
    return [tool for tool in tools if tool.startswith(name)] == [name]


def _key(name: str) -> str:
    return name.casefold().replace("-", "_")
