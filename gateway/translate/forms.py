"""Whether a text is what a `response_format` wants it to be."""

from collections.abc import Mapping
from typing import Any

import jsonschema_rs
from msgspec import DecodeError, json

from gateway.backends.extensions import response_format
from gateway.request import Request

_LONGEST = 300  # characters of a reason


class Form:
    """Of one `response_format`.  `judged`: its schema is one; else a text has to be JSON, and that is all."""

    def __init__(self, form: Mapping[str, Any]) -> None:
        schema = (form.get("json_schema") or {}).get("schema") or {}
        if form["type"] == "json_object":
            schema = {"type": "object"}
        self._is_object = schema.get("type") == "object"
        self.judged = True
        try:
            self._validator = jsonschema_rs.validator_for(schema, offline=True)
        except ValueError:
            self._validator, self.judged = jsonschema_rs.validator_for({}), False

    def misfit(self, text: str) -> str | None:
        """Why it does not fit; None if it does."""
        try:
            error = next(self._validator.iter_errors(json.decode(text)), None)
        except (DecodeError, RecursionError):
            return "it is no JSON"
        return error.message[:_LONGEST] if error else None

    def begins(self, text: str) -> bool:
        """True if a text that was cut may be the beginning of one that fits, as far as its first character tells."""
        return not text or not self._is_object or text.startswith("{")


def form(request: Request) -> Form | None:
    """That of the answer to a request; None if it may have any."""
    wanted = response_format(request) or {}
    return Form(wanted) if wanted.get("type") in ("json_object", "json_schema") else None
