"""Lint the tests for causes of instability: waits by time, fixed ports, clocks, and sets whose order shows.

    python -m support.rules        prints file:line: the fault; part of `make lint`

A line with `# steady: REASON` is exempt, as is a module of EXEMPT.
"""

import ast
import sys
from collections.abc import Iterator

from support.paths import ROOT, TESTS

# Programs, and modules whose purpose is to wait or to measure.
EXEMPT = (
    "clients/",
    "conformance/",
    "engines/",
    "soak/",
    "replicas/",
    "browser/",
    "support/wait.py",
    "support/mutants.py",
)
CLOCKS = {"time.time", "time.time_ns", "datetime.now", "datetime.datetime.now", "datetime.utcnow", "date.today"}
SERVERS = {"create_server", "start_server", "bind", "listen"}
MARK = "# steady:"


def violations(source: str) -> Iterator[tuple[int, str]]:
    """Yield the line and the text of each fault in a module."""
    exempt = {number for number, line in enumerate(source.splitlines(), 1) if MARK in line}
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Call):
            for fault in faults(node):
                if node.lineno not in exempt:
                    yield node.lineno, fault


def faults(call: ast.Call) -> Iterator[str]:
    """Yield the faults of a call."""
    name = ast.unparse(call.func)
    last = name.rpartition(".")[2]
    if last == "sleep" and call.args and not _is(call.args[0], 0):
        yield "sleeps: wait for a condition with support.wait.until"
    if name in CLOCKS:
        yield f"reads a wall clock: {name}; give the code under test a clock, or bracket with support.wait.now"
    if last in SERVERS and any(_fixed_port(one) for one in call.args):
        yield "binds a fixed port: use 0 and ask which it became"
    if last == "parametrize" and len(call.args) > 1 and _unordered(call.args[1]):
        yield "has the order of a set in its ids: sort it"


def _is(node: ast.expr, value: object) -> bool:
    return isinstance(node, ast.Constant) and node.value == value


def _fixed_port(node: ast.expr) -> bool:
    parts = node.elts if isinstance(node, ast.Tuple) else [node]
    return any(isinstance(one, ast.Constant) and type(one.value) is int and one.value >= 1024 for one in parts)


def _unordered(node: ast.expr) -> bool:
    called = isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in ("set", "frozenset")
    return called or isinstance(node, ast.Set | ast.SetComp)


def main() -> int:
    """Lint all tests."""
    found = [
        f"{path.relative_to(ROOT)}:{line}: {fault}"
        for path in sorted(TESTS.rglob("*.py"))
        if not str(path.relative_to(TESTS)).startswith(EXEMPT)
        for line, fault in violations(path.read_text("utf-8"))
    ]
    sys.stdout.writelines(f"{line}\n" for line in found)
    return bool(found)


if __name__ == "__main__":
    sys.exit(main())
