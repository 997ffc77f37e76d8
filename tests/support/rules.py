"""Lint the tests for causes of instability, and the gateway, tests and benchmarks for names that are no terms.

    python -m support.rules        prints file:line: the fault; part of `make lint`

Causes of instability are waits by time, fixed ports, clocks, and sets whose order shows.  A line with
`# steady: REASON` may have one, as may a module of EXEMPT.
"""

import ast
import sys
from collections.abc import Collection, Iterator
from pathlib import Path

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
# Verbs as names, or as words of names.  The page Architecture has the terms: request, response, event, warning, …
RETIRED = {"said", "told", "asked", "asks", "says", "heard", "spoken", "tells", "crowd"}
# By module: the names that users and their files know, so that they stay.
PUBLIC = {
    "gateway/events.py": {"asked"},  # recordings have this member
    "gateway/replay/runner.py": {"said"},  # `gateway replay` prints this name
    "gateway/server/admin/overview_model.py": {"heard"},  # `/admin/overview` returns this member
    "gateway/server/observability/snapshot.py": {"asked"},  # `/admin/overview` returns this member
}


def violations(source: str) -> Iterator[tuple[int, str]]:
    """Yield the line and the text of each fault in a module."""
    exempt = {number for number, line in enumerate(source.splitlines(), 1) if MARK in line}
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Call):
            for fault in faults(node):
                if node.lineno not in exempt:
                    yield node.lineno, fault


def retired_names(source: str, public: Collection[str] = ()) -> Iterator[tuple[int, str]]:
    """Yield the line and the text of each definition of a name with a word that is no term, unless it is public.

    Names of test functions are sentences, and may have verbs.
    """
    for node in ast.walk(ast.parse(source)):
        match node:
            case (
                ast.Name(id=name, ctx=ast.Store())
                | ast.Attribute(attr=name, ctx=ast.Store())
                | ast.arg(arg=name)
                | ast.FunctionDef(name=name)
                | ast.AsyncFunctionDef(name=name)
                | ast.ClassDef(name=name)
                | ast.ExceptHandler(name=str(name))
                | ast.MatchAs(name=str(name))
                | ast.alias(asname=str(name))
            ) if name not in public and _is_retired(name):
                yield node.lineno, f"names a thing {name!r}: use a term of docs/explanation/architecture.md"


def _is_retired(name: str) -> bool:
    return not name.startswith("test_") and not RETIRED.isdisjoint(name.lower().split("_"))


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


def faults_of(path: Path) -> Iterator[tuple[int, str]]:
    """Yield the faults of a module."""
    source = path.read_text("utf-8")
    yield from retired_names(source, PUBLIC.get(str(path.relative_to(ROOT)), ()))
    if path.is_relative_to(TESTS) and not str(path.relative_to(TESTS)).startswith(EXEMPT):
        yield from violations(source)


def main() -> int:
    """Lint the gateway, all tests and benchmarks."""
    found = [
        f"{path.relative_to(ROOT)}:{line}: {fault}"
        for folder in (ROOT / "bench", ROOT / "gateway", TESTS)
        for path in sorted(folder.rglob("*.py"))
        for line, fault in faults_of(path)
    ]
    sys.stdout.writelines(f"{line}\n" for line in found)
    return bool(found)


if __name__ == "__main__":
    sys.exit(main())
