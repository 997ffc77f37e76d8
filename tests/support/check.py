"""Check one module in seconds: lint it, check types, run the unit and edge tests that import it.

    make check FILE=gateway/store/jobs.py        a module of the gateway, a test module, or several of either

Tests that would take longer than the budget together are left out and named.
"""

import subprocess
import sys
from pathlib import Path

from support.durations import Durations
from support.paths import ROOT, TESTS
from support.terminal import say
from support.tiers import Tier, imports_of, named_tests, tier_of

BUDGET = 12.0  # seconds of tests
PYTHON = (sys.executable, "-m")


def main(files: list[str]) -> int:
    """Check these files; return the exit code."""
    paths = [(ROOT / file).resolve() for file in files]
    if not paths or not all(path.is_file() for path in paths):
        say("make check FILE=gateway/store/jobs.py: names a module that is there")
        return 2
    tests, left = within_budget([test for path in paths for test in tests_of(path)])
    for test in left:
        say(f"left out, as it takes {seconds(test):.0f} s: {test.relative_to(ROOT)}")
    commands = [(*PYTHON, "ruff", "check", *files), (*PYTHON, "ruff", "format", "--check", *files), (*PYTHON, "mypy")]
    if tests:
        commands.append((*PYTHON, "pytest", "-q", "--tiers", "unit,edge", *map(str, tests)))
    else:
        say("no unit or edge test imports it: make test")
    return max(subprocess.run(command, check=False, cwd=ROOT).returncode for command in commands)


def tests_of(path: Path) -> list[Path]:
    """Return the test modules for a module: itself, or those that import it, else those of its package."""
    if path.is_relative_to(TESTS):
        return [path]
    name = ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
    modules = sorted(TESTS.rglob("test_*.py"))
    direct = [module for module in modules if any(_names(one, name) for one in imports_of(module))]
    return direct or [module for module in modules if module.is_relative_to(_tests_folder(path))]


def _tests_folder(path: Path) -> Path:
    """Return the folder of the tests of a package, or of the next package around it that has one."""
    folder = TESTS / path.relative_to(ROOT / "gateway").parent
    while not folder.is_dir():
        folder = folder.parent
    return folder


def _names(imported: str, module: str) -> bool:
    """Return True if a dotted name is a module, or a name in it."""
    return imported == module or imported.rpartition(".")[0] == module


def within_budget(tests: list[Path]) -> tuple[list[Path], list[Path]]:
    """Return the test modules that fit, the fastest first, and those that are left out."""
    taken, left, total = [], [], 0.0
    for test in sorted(set(tests), key=seconds):
        total += seconds(test)
        (taken if total <= BUDGET else left).append(test)
    return taken, left


def seconds(module: Path) -> float:
    """Return how long the unit and edge tests of a module take."""
    durations, name = Durations(), module.relative_to(TESTS)
    return sum(durations.seconds(f"{name}::{one}") for one in named_tests(module) if tier_of(module, one) < Tier.system)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
