"""Which offered tool a model meant by a name that it wrote."""

import re
from collections.abc import Iterable, Mapping
from typing import Any

_COUNTER = re.compile(r":\d+$")


def resolve(name: str, tools: Mapping[str, Any]) -> str:
    """Return the offered tool that a name means, or the name itself if that is not exactly one.

    Letter case, `-` for `_`, blanks around it, a counter `:0`, a prefix up to the last `.` or `:`, and a special token
    `<|…` with all that follows make no difference.
    """
    if name in tools or not tools:
        return name
    plain = _COUNTER.sub("", name.partition("<|")[0].strip())
    for form in (plain, re.split("[.:]", plain)[-1]):
        found = [tool for tool in tools if _key(tool) == _key(form)]
        if len(found) == 1:
            return found[0]
    return name


def certain(name: str, tools: Iterable[str]) -> bool:
    """Return whether a name is a tool's, and not the beginning of another tool's name."""
    return [tool for tool in tools if tool.startswith(name)] == [name]


def _key(name: str) -> str:
    return name.casefold().replace("-", "_")
