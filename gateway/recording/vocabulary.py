"""The words that a text keeps where its contents are taken out: by these it is parsed, and failures are told apart."""

import re
from collections.abc import Iterator
from functools import cache
from typing import Any

from gateway.formats import FORMATS
from gateway.formats.markers import END_TOKENS

_WORD = re.compile(r"[^\W\d]{2,}")
_PROSE = re.compile(r"get_weather|Paris|(?i:it is sunny|let me see)|city|days")  # of the formats' examples
_SAID = (  # by servers that cannot answer, and in JSON and calls
    "maximum context prompt length longer exceeds exceeded exceed available model number tokens token input window "
    "size overflow greater requested inputs must less have limit reduce messages failed parse tools requires jinja "
    "not supported missing tool unable generate parser function initialize samplers invalid json schema grammar found "
    "does exist loaded loading such unknown server pinned overloaded only than too long n_keep n_ctx max_model_len "
    "max_length max_tokens max_completion_tokens max_new_tokens max_seq_len completion requested passed output "
    "input_ids type data signature thinking redacted_thinking true false null True False None"
)


@cache
def markup_words() -> frozenset[str]:
    """Return the words that models and servers write as markup."""
    rows = FORMATS.values()
    signs = " ".join([*END_TOKENS, *(sign for row in rows for sign in (*row.signs, *row.first))])
    examples = _PROSE.sub(" ", " ".join(row.example for row in rows))
    return frozenset(_WORD.findall(f"{signs} {examples} {_SAID}")) | {*END_TOKENS}


def names_in_request(body: Any) -> Iterator[str]:  # noqa: ANN401 - decoded JSON
    """The names in a request: of tools, of what they are called with, and the values that these may have."""
    if isinstance(body, list):
        for one in body:
            yield from names_in_request(one)
    elif isinstance(body, dict):
        for name, value in body.items():
            if name in ("properties", "$defs", "definitions") and isinstance(value, dict):
                yield from value
            elif name in ("name", "server_label") and isinstance(value, str) and "role" not in body:
                yield value
            elif name == "enum" and isinstance(value, list):
                yield from (one for one in value if isinstance(one, str))
            yield from names_in_request(value)
