"""Find the error codes and the warnings in the source of the gateway."""

import ast
from collections.abc import Iterator
from functools import cache

from support.paths import ROOT


@cache
def _calls() -> tuple[ast.Call, ...]:
    modules = sorted((ROOT / "gateway").rglob("*.py"))
    return tuple(
        node for module in modules for node in ast.walk(ast.parse(module.read_bytes())) if isinstance(node, ast.Call)
    )


def error_codes() -> set[str]:
    """Return the codes that calls name as `code=…`, or as the third argument of a Problem."""
    return {code for call in _calls() for argument in _code_arguments(call) for code in _texts(argument)}


def warnings() -> dict[str, set[str]]:
    """Return the subjects of each code, from calls like `ledger.add("dropped", "tools.mcp")`."""
    found: dict[str, set[str]] = {}
    for call in _calls():
        if isinstance(call.func, ast.Attribute) and call.func.attr in ("add", "_warn") and len(call.args) == 2:
            for code in _texts(call.args[0]):
                found.setdefault(code, set()).update(_texts(call.args[1]))
    return found


def _code_arguments(call: ast.Call) -> Iterator[ast.expr]:
    yield from (keyword.value for keyword in call.keywords if keyword.arg == "code")
    if isinstance(call.func, ast.Name) and call.func.id == "Problem" and len(call.args) > 2:
        yield call.args[2]


def _texts(node: ast.expr) -> Iterator[str]:
    """Yield the texts that an expression may be, as far as they are literals."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        yield node.value
    elif isinstance(node, ast.IfExp):
        yield from (*_texts(node.body), *_texts(node.orelse))
