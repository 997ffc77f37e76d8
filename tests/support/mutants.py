"""Change the gateway in random places, and see whether the tests notice.

    make mutants ARGS="--count 40 --seed 1"

Each mutant changes one place in a line of gateway/ that tests cover.  The tests of `make test` that cover the line run
first, the fastest first, up to the first failure.  If all pass, the tests that only `make test-all` runs are tried.  A
mutant that they alone notice is named, and so is one that survives both.  The map of lines to tests is made once, by
`make test-all ARGS=--contexts` or `make mutants ARGS=--map`.  All results are in build/mutants, so an interrupted call
can continue.
"""

import argparse
import ast
import copy
import json
import os
import random
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from coverage import CoverageData

from support.durations import Durations
from support.paths import ROOT
from support.terminal import say

FOLDER = ROOT / "build" / "mutants"
MAP, RESULTS, TREE = FOLDER / "map.coverage", FOLDER / "results.json", FOLDER / "tree"
MAX_TESTS = 100  # of those that cover a line, the fastest
EVERYDAY = "unit,edge,smoke"  # the tiers of `make test`
NONE_SELECTED = 5  # pytest's exit code
MAX_SECONDS = 75.0  # for one mutant in one set of tests
COPIED = (
    "config",
    "deploy",
    "docs",
    "gateway",
    "tests",
    "bench",
    "pyproject.toml",
    "README.md",
    "Makefile",
    "Dockerfile",
)
_SWAPS = {
    ast.Eq: ast.NotEq, ast.NotEq: ast.Eq, ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt,
    ast.In: ast.NotIn, ast.NotIn: ast.In, ast.Is: ast.IsNot, ast.IsNot: ast.Is,
    ast.And: ast.Or, ast.Or: ast.And, ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Add,
}  # fmt: skip


class Mutant(NamedTuple):
    """One change: the file below the root, the line, and the node's place in a walk of the tree."""

    file: str
    line: int
    node: int
    what: str


def main() -> int:
    """Run the command."""
    options = _parser().parse_args()
    FOLDER.mkdir(parents=True, exist_ok=True)
    if options.map or not MAP.exists():
        make_map()
    results = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    data = CoverageData(str(MAP))
    data.read()
    _copy_tree()
    for mutant in chosen(data, options.count, options.seed):
        key = f"{mutant.file}:{mutant.line} {mutant.what}"
        if key not in results:
            results[key] = outcome(mutant, data)
            RESULTS.write_text(json.dumps(results, indent=1) + "\n")
        say(f"{results[key]}  {key}")
    return report(results)


def report(results: dict[str, str]) -> int:
    """Print the sums, with the mutants that `make test` does not notice.  Status 1: the whole suite notices more."""
    missed = [key for key, result in results.items() if result.startswith("system")]
    survived = [key for key, result in results.items() if result.startswith("survived")]
    say(f"{len(results)} mutants: {len(results) - len(missed) - len(survived)} noticed by make test, ")
    say(f"{len(missed)} by make test-all alone, {len(survived)} by no test")
    return bool(missed)


# Mutants


def chosen(data: CoverageData, count: int, seed: int) -> list[Mutant]:
    """Return `count` mutants in covered lines, the same for the same map and seed."""
    possible = [
        mutant for file in sorted(data.measured_files()) for mutant in _mutants_of(Path(file), covered(data, file))
    ]
    return random.Random(seed).sample(possible, min(count, len(possible)))


def covered(data: CoverageData, file: str) -> dict[int, list[str]]:
    """Return the covered lines, each with the tests that cover it."""
    lines = {line: [test for test in tests if test] for line, tests in data.contexts_by_lineno(file).items()}
    return {line: tests for line, tests in lines.items() if tests}


def _mutants_of(file: Path, lines: dict[int, list[str]]) -> Iterator[Mutant]:
    if file.suffix != ".py" or not file.exists() or not file.is_relative_to(ROOT / "gateway"):
        return
    for number, node in enumerate(ast.walk(ast.parse(file.read_bytes()))):
        if getattr(node, "lineno", 0) in lines and (change := next(changes(node), None)):
            yield Mutant(str(file.relative_to(ROOT)), node.lineno, number, change[0])


def changes(node: ast.AST) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield how to change a node, if that makes sense: a description, and its attributes after the change."""
    match node:
        case ast.Compare(ops=[operator]) if type(operator) in _SWAPS:
            yield _swap(operator, "ops", [_SWAPS[type(operator)]()])
        case ast.BoolOp(op=operator) | ast.BinOp(op=operator) | ast.AugAssign(op=operator) if type(operator) in _SWAPS:
            yield _swap(operator, "op", _SWAPS[type(operator)]())
        case ast.If(test=test) | ast.IfExp(test=test) | ast.While(test=test):
            yield ("not the condition", {"test": ast.UnaryOp(ast.Not(), test)})
        case ast.Constant(value=bool(value)):
            yield (f"{value} -> {not value}", {"value": not value})
        case ast.Constant(value=int(value)):
            yield (f"{value} -> {value + 1}", {"value": value + 1})
        case ast.Return(value=ast.expr()):
            yield ("return None", {"value": ast.Constant(None)})
        case ast.Expr(value=ast.Call() | ast.Await() as value):
            yield (f"leave out {ast.unparse(value)[:40]}", {"value": ast.Constant(None)})


def _swap(operator: ast.AST, member: str, new: Any) -> tuple[str, dict[str, Any]]:
    name = type(new[0] if isinstance(new, list) else new).__name__
    return f"{type(operator).__name__} -> {name}", {member: new}


def mutated(source: str, mutant: Mutant) -> str:
    """Return the source with the change."""
    tree = copy.deepcopy(ast.parse(source))
    node = [*ast.walk(tree)][mutant.node]
    for member, value in next(changes(node))[1].items():
        setattr(node, member, value)
    return ast.unparse(ast.fix_missing_locations(tree))


# Runs


def outcome(mutant: Mutant, data: CoverageData) -> str:
    """Try a mutant with the tests that cover its line: those of `make test`, then the others."""
    tests = covered(data, str(ROOT / mutant.file))[mutant.line]
    tests = sorted(tests, key=Durations().seconds)[:MAX_TESTS]
    file = TREE / mutant.file
    source = file.read_text()
    try:
        file.write_text(mutated(source, mutant))
        if fails(tests, EVERYDAY):
            return "noticed by make test"
        if fails(tests, "system"):
            return "system tests alone"
        return f"survived {len(tests)} tests"
    finally:
        file.write_text(source)


def fails(tests: list[str], tiers: str) -> bool:
    """Return True if one of these tests fails in the copy, within a bounded time: a mutant that hangs shows, too."""
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-x",
        "-p",
        "no:cacheprovider",
        "--timeout",
        "60",
        "--tiers",
        tiers,
    ]
    environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1"}
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    try:
        done = subprocess.run([*command, *tests], check=False, cwd=TREE, env=environment, timeout=MAX_SECONDS, **quiet)
    except subprocess.TimeoutExpired:
        return True
    return done.returncode not in (0, NONE_SELECTED)


def make_map() -> None:
    """Run all tests once, each as a context of coverage."""
    began = time.monotonic()
    environment = {**os.environ, "COVERAGE_FILE": str(MAP)}
    run = ["coverage", "run", "-m", "pytest", "-q", "--contexts", "-n", "2", "--dist", "worksteal"]
    for arguments in (run, ["coverage", "combine", "--quiet"]):
        subprocess.run([sys.executable, "-m", *arguments], check=False, cwd=ROOT, env=environment)
    say(f"map: {time.monotonic() - began:.0f} s")


def _copy_tree() -> None:
    shutil.rmtree(TREE, ignore_errors=True)
    TREE.mkdir(parents=True)
    for name in COPIED:
        source = ROOT / name
        if source.is_dir():
            shutil.copytree(source, TREE / name, ignore=shutil.ignore_patterns("__pycache__", "build", "found"))
        else:
            shutil.copy(source, TREE / name)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="make mutants", description=__doc__.splitlines()[0])
    parser.add_argument("--count", type=int, default=40)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--map", action="store_true", help="make the map of lines to tests anew")
    return parser


if __name__ == "__main__":
    sys.exit(main())
