"""Find the models that a request names besides its `model`: fallbacks, adapters, models of tools.

Servers and other gateways read them, so they could reach a model that a key excludes.  The names of members decide:
any list of fields would lack those of the next server.
"""

import re
from collections.abc import Iterator, Mapping
from json import JSONDecoder
from typing import Any

from gateway.backends.extra_fields import FORMS
from gateway.errors import BadRequest

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
_BLANKS = " \t\r\n\ufeff"
# As lenient as any server: it reads the first value of a message, and a pair for each member of an object.
_decode = JSONDecoder(object_pairs_hook=tuple, parse_int=str, parse_float=str, strict=False).raw_decode


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


def session_models(data: bytes) -> set[str]:
    """Return the models that a client's message of a speech session names; none for a message that is not JSON.

    Some servers change the model by a message.

    Raise BadRequest for one that is nested too deeply.
    """
    if b"model" not in data.lower() and b"\\u" not in data:
        return set()
    try:
        message, _ = _decode(data.decode(errors="replace").lstrip(_BLANKS))
        return {*named_models(message)}
    except ValueError:
        return set()
    except RecursionError:
        raise BadRequest("The message is nested too deeply. Flatten it.") from None
