"""Fit JSON schemas to the subset that Anthropic's API can enforce."""

from collections.abc import Mapping
from typing import Any

# Keywords that the API refuses.  The gateway still checks the response against the whole schema.
_REFUSED = frozenset(
    ("exclusiveMaximum", "exclusiveMinimum", "maxItems", "maxLength", "maxProperties", "maximum", "minLength",
     "minProperties", "minimum", "multipleOf", "patternProperties", "propertyNames", "uniqueItems")
)  # fmt: skip
_LISTS = ("allOf", "anyOf", "oneOf", "prefixItems")
_MAPS = ("properties", "$defs", "definitions")
_LEAST_ITEMS = (0, 1)  # values of `minItems` that the API takes


def fitting_schema(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return a schema without keywords that the API refuses; its objects have no other members than those named."""
    made = {name: _inner(name, value) for name, value in schema.items() if name not in _REFUSED}
    if made.get("minItems", 0) not in _LEAST_ITEMS:
        del made["minItems"]
    if made.get("type") == "object" or "properties" in made:
        made["additionalProperties"] = False
    return made


def _inner(name: str, value: Any) -> Any:  # noqa: ANN401 - decoded JSON
    if name in _MAPS and isinstance(value, dict):
        return {key: _fitting(one) for key, one in value.items()}
    if name in _LISTS and isinstance(value, list):
        return [_fitting(one) for one in value]
    return _fitting(value) if name == "items" else value


def _fitting(value: Any) -> Any:  # noqa: ANN401 - decoded JSON
    return fitting_schema(value) if isinstance(value, dict) else value
