"""Find the models that a request names besides its `model`: fallbacks, adapters, models of tools.

Servers and other gateways read them, so they could reach a model that a key excludes.  The names of members decide:
any list of fields would lack those of the next server.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from gateway.backends.extra_fields import FORMS

# In any letters: a server in Go ignores their case.
_NAMES_MODELS = re.compile("model|fallback|adapter|(?<![a-z])(?:lora|route)s?(?![a-z])").search
# What the model reads: nothing in it is a setting.
_CONTENT = frozenset(
    ("data_1", "data_2", "documents", "input", "instructions", "items", "messages", "prompt", "queries", "query",
     "suffix", "system", "text_1", "text_2", "texts")
)  # fmt: skip
# Objects whose members the client names, and texts.
_OF_THE_CLIENT = FORMS | {
    "arguments",
    "chat_template_kwargs",
    "client_metadata",
    "content",
    "fallback_credit_token",
    "function",
    "input_schema",
    "item",
    "messages",
    "metadata",
    "output_config",
    "output_format",
    "parameters",
    "text",
    "variables",
}


def models_in_fields(fields: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield the models that the fields of a body name besides `model`, each behind the field."""
    for field, value in fields.items():
        if field != "model" and field not in _CONTENT:
            for model in named_models({field: value}):
                yield field, model


def named_models(value: Any) -> Iterator[str]:  # noqa: ANN401 - decoded JSON
    """Yield the models in a value: all texts and numbers below a member that names models.

    An object may be a tuple of pairs.
    """
    left = [(value, False)]
    while left:
        one, is_name = left.pop()
        if isinstance(one, list):
            left += [(each, is_name) for each in one]
        elif isinstance(one, dict | tuple):
            pairs = one.items() if isinstance(one, dict) else one
            for name, inner in pairs:
                if name not in _OF_THE_CLIENT:
                    left.append((inner, is_name or bool(_NAMES_MODELS(name.casefold()))))
        elif is_name and one != "" and isinstance(one, str | int | float) and not isinstance(one, bool):
            yield str(one)
