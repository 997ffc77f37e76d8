"""Paths in the checkout."""

from pathlib import Path

ROOT = Path(__file__).parents[2]
TESTS = ROOT / "tests"
PROGRAMS = TESTS / "support" / "programs"  # scripts that tests start as processes
