"""Whether a text is what a `response_format` wants it to be."""

from collections.abc import Mapping
from typing import Any

import jsonschema_rs
from msgspec import DecodeError, json

_LONGEST = 300  # characters of a reason


def misfit(text: str, form: Mapping[str, Any]) -> str | None:
    """Why it does not fit; None if it does, or if that cannot be told as the schema is none."""
    try:
        said = json.decode(text)
    except (DecodeError, RecursionError):
        return "it is no JSON"
    if form["type"] == "json_object" and not isinstance(said, dict):
        return "it is no object"
    try:
        validator = jsonschema_rs.validator_for(_schema(form), offline=True)
        error = next(validator.iter_errors(said), None)
    except ValueError:
        return None
    return error.message[:_LONGEST] if error else None


def begins(text: str, form: Mapping[str, Any]) -> bool:
    """True if a text that was cut may be the beginning of one that fits, as far as its first character tells."""
    is_object = form["type"] == "json_object" or _schema(form).get("type") == "object"
    return not text or not is_object or text.startswith("{")


def _schema(form: Mapping[str, Any]) -> dict[str, Any]:
    return (form.get("json_schema") or {}).get("schema") or {}
