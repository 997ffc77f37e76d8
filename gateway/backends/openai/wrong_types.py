"""Mend members of a payload that have a wrong type.

Empty ones, as `usage: []`, and those that matter little are left out.  A tool call in the place of the list of calls,
as older TGI streams it, becomes a list.
"""

import re
from collections.abc import Callable
from typing import Any

from msgspec import DecodeError, ValidationError, json

from gateway.backends.openai import wire
from gateway.backends.openai.json_repair import mended
from gateway.warnings import WarningCode, Warnings

_PATH = re.compile(r" - at `\$(.+)`$")
_STEP = re.compile(r"\.(\w+)|\[(\d+)\]")
_MOST = 8  # members that are mended; each costs a further reading of the payload
_CALLS = "tool_calls"
# A response without these still answers the request.
_SPARE = frozenset(
    (
        *wire.WireUsage.__struct_fields__, "usage", "x_groq", "cached_tokens", "reasoning_tokens", "cache_write_tokens",
        "created_cache_tokens", "reasoning_content", "reasoning", "reasoning_text", "thinking", "refusal",
        "annotations", "images",
    )
)  # fmt: skip


def without_wrong_types(payload: bytes, decode: Callable[[bytes], object], ledger: Warnings) -> bytes | None:
    """Return the payload without the members that `decode` refuses; None if it has to refuse the payload.

    A member that had a value gets a warning.
    """
    fit, notes = mended(payload), list[tuple[WarningCode, str]]()
    try:
        data = json.decode(fit)
        for _ in range(_MOST):
            error = _wrong_type(fit, decode)
            if not error:
                for code, name in notes:
                    ledger.add(code, name)
                return fit
            if not _mend(data, error, notes):
                return None
            fit = json.encode(data)
    except (DecodeError, RecursionError):
        pass
    return None


def _wrong_type(payload: bytes, decode: Callable[[bytes], object]) -> str:
    """Return the error about a wrong type; "" without one."""
    try:
        decode(payload)
    except ValidationError as error:
        return str(error)
    return ""


def _mend(data: Any, error: str, notes: list[tuple[WarningCode, str]]) -> bool:  # noqa: ANN401 - decoded JSON
    """Remove or mend the member that an error names; return False if the response needs it."""
    found = _PATH.search(error)
    if not found:
        return False
    *outer, last = [name or int(place) for name, place in _STEP.findall(found[1])]
    for step in outer:
        data = data[step]
    if last == _CALLS and isinstance(data[last], dict) and "function" in data[last]:
        data[last] = [data[last]]
        notes.append(("repaired", _CALLS))
        return True
    if not _is_spare(data[last], last):
        return False
    if data.pop(last):
        notes.append(("dropped", str(last)))
    return True


def _is_spare(value: Any, name: str | int) -> bool:  # noqa: ANN401 - decoded JSON
    return not value or name in _SPARE
