"""Texts as the APIs without messages take them: one or several, each as characters or as the ids of its tokens."""

from collections.abc import Sequence
from typing import Any

from gateway.endpoints.checks import integer_between, list_of, string, string_of, wrong_type

TextInput = str | list[int]

_MOST = 2048  # texts of one request
_tokens = list_of(integer_between(0), least=1)


def check_texts(value: Any, param: str) -> None:  # noqa: ANN401 - decoded JSON
    """A check: a string, a list of them, a list of ids, or a list of such lists."""
    if isinstance(value, str):
        return
    if not isinstance(value, list):
        raise wrong_type(value, param, "one of a string or array")
    if value and _is_id(value[0]):
        _tokens(value, param)
    else:
        list_of(_text, least=1, most=_MOST)(value, param)


def check_nonempty_texts(value: Any, param: str) -> None:  # noqa: ANN401 - decoded JSON
    """The same, and none of them empty."""
    check_texts(value, param)
    for i, text in enumerate(value if isinstance(value, list) else ()):
        if isinstance(text, str):
            string_of(len(text), least=1)(text, f"{param}[{i}]")
    if isinstance(value, str):
        string_of(len(value), least=1)(value, param)


def text_list(value: Any) -> list[TextInput]:  # noqa: ANN401 - decoded JSON
    """Each text of a value that has passed a check."""
    return [value] if isinstance(value, str) or _is_id(value[0]) else value


def text_characters(all: Sequence[TextInput]) -> int:
    """Characters, where a token counts as four."""
    return sum(len(text) if isinstance(text, str) else 4 * len(text) for text in all)


def _text(value: Any, param: str) -> None:  # noqa: ANN401 - decoded JSON
    if isinstance(value, list):
        _tokens(value, param)
    else:
        string(value, param)


def _is_id(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)
