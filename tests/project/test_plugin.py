"""Test that the controller of a run gets the outcome of each test from the workers."""

import json
import os
import re
import subprocess
import sys
from textwrap import dedent

from support.paths import TESTS

MODULE = dedent(
    """
    import pytest

    @pytest.fixture
    def broken():
        raise ValueError

    @pytest.fixture
    def unclean():
        yield
        raise ValueError

    def test_passes(): ...
    def test_fails(): assert False
    def test_has_a_broken_fixture(broken): ...
    def test_has_an_unclean_fixture(unclean): ...
    """
)
OUTCOMES = {
    "test_passes": "passed",
    "test_fails": "failed",
    "test_has_a_broken_fixture": "failed",
    "test_has_an_unclean_fixture": "failed",
}


def test_worker_reports_the_outcome_of_each_test(tmp_path):
    file, outcomes, junit = tmp_path / "test_it.py", tmp_path / "outcomes.json", tmp_path / "junit.xml"
    file.write_text(MODULE)
    options = ["-n", "1", "--tiers", "unit", "--outcomes-file", str(outcomes), "--junitxml", str(junit)]
    run = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "support.plugin", "-p", "no:cacheprovider", *options, str(file)],
        check=False,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(TESTS.parent), str(TESTS)])},
        capture_output=True,
        text=True,
        cwd=tmp_path,
    )
    found = json.loads(outcomes.read_text())
    assert {nodeid.partition("::")[2]: outcome for nodeid, outcome in found.items()} == OUTCOMES, run.stdout
    assert "1 failed, 2 passed, 2 errors" in run.stdout, run.stdout
    assert {*re.findall(r'<testcase .*? name="(\w+)"', junit.read_text())} == OUTCOMES.keys()
