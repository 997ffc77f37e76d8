"""Check a text against `response_format` and similar fields."""

from typing import TYPE_CHECKING, Any

from msgspec import DecodeError, json

from gateway.backends.extensions import FORMS, requested_response_format, text_form
from gateway.request import Request
from gateway.translate.effort import compile_budget, is_affordable

if TYPE_CHECKING:
    from jsonschema_rs import Validator

_LONGEST = 300  # characters of a reason
_MOST = 30_000  # schemas in places, of what is judged: a tenth of a second to count them
_FEW = 2_000  # the same for a reason, as a hundred times as much is done for one
_MOST_STEPS = 2_000  # back in a text, for a pattern that cannot do without


class FormatValidator:
    """A field's demand on a text: JSON with this schema, or a text with it.

    judged: the schema is one; else every JSON fits, or every text.
    """

    def __init__(self, schema: dict[str, Any], field: str = "response_format", *, is_json: bool = True) -> None:
        self.field, self.is_json = field, is_json
        self._is_object = schema.get("type") == "object"
        self._schema: dict[str, Any] = schema
        self.judged = True
        try:
            self._validator = _validator(schema, compile_budget(schema))
        except ValueError:
            self._schema, self._validator, self.judged = {}, _validator({}, 1), False

    def misfit(self, text: str) -> str | None:
        """Why it does not fit; None if it does."""
        try:
            value = json.decode(text) if self.is_json else text
            if not is_affordable(self._schema, value, _MOST):
                return "it takes too long to be judged"
            if self._validator.is_valid(value):
                return None
            if not is_affordable(self._schema, value, _FEW):
                return "it is not what its schema says"
            error = next(self._validator.iter_errors(value))
        except (DecodeError, RecursionError):
            return "it is no JSON"
        return error.message[:_LONGEST]

    def begins(self, text: str) -> bool:
        """True if a text that was cut may be the beginning of one that fits, as far as its first character tells."""
        return not text or not self._is_object or text.startswith("{")


def format_validator(request: Request) -> FormatValidator | None:
    """Return the validator of the response to a request; None if it may have any form."""
    if FORMS.isdisjoint(request.rest):
        return None
    wanted = requested_response_format(request) or {}
    if wanted.get("type") == "json_object":
        return FormatValidator({"type": "object"})
    if wanted.get("type") == "json_schema":
        return FormatValidator((wanted.get("json_schema") or {}).get("schema") or {})
    if found := text_form(request):
        field, schema = found
        return FormatValidator(schema, field, is_json=False)
    return None


def _validator(schema: dict[str, Any], room: int) -> "Validator":
    """room: bytes that a pattern may be compiled to.  Raises ValueError for what is no schema, or too much of one."""
    import jsonschema_rs  # noqa: PLC0415 - 3 MB

    if not room:
        raise ValueError("too much")
    patterns = jsonschema_rs.FancyRegexOptions(backtrack_limit=_MOST_STEPS, size_limit=room, dfa_size_limit=room)
    return jsonschema_rs.validator_for(schema, offline=True, pattern_options=patterns)
