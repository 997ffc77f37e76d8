"""Collect the values of members that no event interprets.  A value costs the same whatever came before it."""

from collections.abc import Mapping, Sequence
from itertools import chain
from typing import Any

from msgspec import Raw, json

LISTS, DELTAS = b"[", b'[{"'  # the first characters of values that continue the value before: a choice's, a message's

Values = dict[str, list[Raw]]  # by the name of the member; several values make one


def add_value(values: Values, name: str, value: Raw, continuing: bytes = LISTS) -> None:
    """Add a value of a member.  A value that does not continue the one before replaces it."""
    before, kind = values.get(name), _kind(value)
    if before and kind in continuing and kind == _kind(before[-1]):
        before.append(value)
    else:
        values[name] = [value]


def members(values: Mapping[str, Sequence[Raw]]) -> dict[str, Raw]:
    """Return the members, each with its values merged as OpenAI's SDKs merge deltas."""
    return {
        name: parts[0] if len(parts) == 1 else Raw(json.encode(_merged([json.decode(part) for part in parts])))
        for name, parts in values.items()
    }


def _kind(value: Raw) -> bytes:
    return bytes(memoryview(value)[:1])


def _merged(parts: Sequence[Any]) -> Any:  # noqa: ANN401 - decoded JSON
    """Return texts and lists in a row, and objects member by member; anything else replaces what came before."""
    kind = type(parts[-1])
    if kind not in (str, list, dict):
        return parts[-1]
    other = [i for i, part in enumerate(parts) if type(part) is not kind]
    alike = parts[other[-1] + 1 :] if other else parts
    if kind is str:
        return "".join(alike)
    if kind is list:
        return [*chain.from_iterable(alike)]
    columns: dict[str, list[Any]] = {}
    for name, value in chain.from_iterable(part.items() for part in alike):
        columns.setdefault(name, []).append(value)
    return {name: _merged(column) for name, column in columns.items()}
