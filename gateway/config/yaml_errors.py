"""Explain the errors of the YAML parser in words."""

import re
from collections.abc import Callable

from ruamel.yaml.error import MarkedYAMLError

_STAR = "put a text that begins with * in quotes"
_COLON = "a colon where no key can be; check the indentation, or put a text with a colon in quotes"
# Patterns of the parser's own texts, each with the explanation of the match and the line where the construct begins.
_EXPLANATIONS: tuple[tuple[str, Callable[[re.Match[str], int], str]], ...] = (
    (r"found character '\\t'", lambda _, __: "a tab; indent with spaces"),
    (r"character '(.)' that cannot start", lambda found, _: f"a text cannot begin with {found[1]}; put it in quotes"),
    (r"scanning an alias", lambda _, __: f"* stands for an alias; {_STAR}"),
    (r"undefined alias '(.+)'", lambda found, _: f"the alias *{found[1]} is unknown; {_STAR}"),
    (r"mapping values are not allowed", lambda _, __: _COLON),
    (r"could not find expected ':'", lambda _, line: f"line {line} has no colon; write `key: value`"),
    (r"scanning a quoted scalar", lambda _, line: f"the quote that opens in line {line} is not closed"),
    (r"parsing a flow", lambda _, line: f"the bracket that opens in line {line} is not closed, or a comma is missing"),
    (r"expected <block end>", lambda _, line: f"the indentation does not match the lines from line {line} on"),
    (r"another document", lambda _, __: "a second document begins; remove the line ---"),
    (r"expected '<document start>'", lambda _, __: "the text goes on after its end; write `key: value` lines only"),
)  # fmt: skip


def explain_yaml_error(error: MarkedYAMLError) -> tuple[int | None, str]:
    """Return the line of a syntax error, and its explanation."""
    mark, begin = error.problem_mark or error.context_mark, error.context_mark or error.problem_mark
    text = ", ".join(part for part in (error.context, error.problem) if part)
    found = ((re.search(pattern, text), explain) for pattern, explain in _EXPLANATIONS)
    said = next((explain(match, begin.line + 1) for match, explain in found if match and begin), text)
    return mark and mark.line + 1, said
