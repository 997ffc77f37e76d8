"""Find the differences between two configurations, or between two versions of a key, without secrets."""

import json
from collections.abc import Iterator, Mapping
from typing import Any

from pydantic import BaseModel, SecretStr, TypeAdapter

MAX_CHANGES = 100  # of a difference
_LONG = 300  # characters of a value
_ANY: TypeAdapter[Any] = TypeAdapter(Any)
_ABSENT = object()


def differences(before: BaseModel, after: BaseModel) -> list[dict[str, Any]]:
    """Return the changed settings, at most 100 and one that counts the others.

    Each has its `path`, and `from` and `to`: null without the setting.  One with a secret has `secret` instead.
    """
    found = [*_compared("", before, after)]
    if len(found) <= MAX_CHANGES:
        return found
    return [*found[:MAX_CHANGES], {"more": len(found) - MAX_CHANGES}]


def change_text(change: Mapping[str, Any]) -> str:
    """Return a change for people."""
    if "more" in change:
        return f"{change['more']} more"
    if "secret" in change:
        return f"{change['path']} {change['secret']}"
    return f"{change['path']}: {_text(change['from'])} → {_text(change['to'])}"


def _compared(path: str, before: object, after: object) -> Iterator[dict[str, Any]]:
    if before == after:
        return
    old, new = _members(before), _members(after)
    if old is None or new is None:
        yield _change(path, before, after)
        return
    for name in old | new:
        yield from _compared(_joined(path, name), old.get(name, _ABSENT), new.get(name, _ABSENT))


def _members(value: object) -> dict[str, object] | None:
    """Return the parts that are compared one by one; None for a value that is compared as a whole."""
    if isinstance(value, BaseModel):
        fields = type(value).model_fields.items()
        return {field.serialization_alias or name: getattr(value, name) for name, field in fields}
    if isinstance(value, dict):
        return {str(name): part for name, part in value.items()}
    if isinstance(value, tuple) and all(isinstance(getattr(part, "name", None), str) for part in value):
        return {f"[{part.name}]": part for part in value}
    return None


def _joined(path: str, name: str) -> str:
    return path + name if name.startswith("[") or not path else f"{path}.{name}"


def _change(path: str, before: object, after: object) -> dict[str, Any]:
    if _has_secret(before) or _has_secret(after):
        return {"path": path, "secret": _verb(before, after)}
    return {"path": path, "from": _shown(before), "to": _shown(after)}


def _has_secret(value: object) -> bool:
    """Return True for a secret, or several.  A section or mapping masks its secrets itself."""
    return isinstance(value, SecretStr) or (isinstance(value, tuple) and any(map(_has_secret, value)))


def _verb(before: object, after: object) -> str:
    empty = (None, _ABSENT, ())
    return "added" if before in empty else "removed" if after in empty else "changed"


def _shown(value: object) -> object:
    """Return a value as JSON; secrets in it are masked, and a long one is cut."""
    if value is _ABSENT:
        return None
    data = _ANY.dump_python(value, mode="json", exclude_defaults=True, by_alias=True)
    text = _text(data)
    return data if len(text) <= _LONG else f"{text[:_LONG]}…"


def _text(data: object) -> str:
    """Return a text as it is, unless it is empty; anything else as JSON."""
    return data if data and isinstance(data, str) else json.dumps(data, ensure_ascii=False)
