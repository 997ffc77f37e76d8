"""Test that docs/explanation/guarantees.md names tests for each promise, and that these exist."""

import json
import re

import pytest

from support.durations import exists
from support.paths import ROOT, TESTS

PAGE = (ROOT / "docs/explanation/guarantees.md").read_text("utf-8")
NAMED = re.findall(r"`([\w/]+\.(?:py|json)::[^`]+)`", PAGE)


@pytest.mark.parametrize("name", sorted(set(NAMED)))
def test_guarantee_names_a_test_that_exists(name):
    path, row = name.split("::")
    if path.endswith(".py"):
        assert exists(name)
    else:
        assert row in {case["what"] for case in json.loads((TESTS / path).read_text("utf-8"))}


def test_guarantee_names_at_least_one_test():
    promises = [part for part in re.split(r"\n(?=- |\n)", PAGE) if part.startswith("- ")]
    assert promises and [promise for promise in promises if not re.search(r"\n  Tests: `", promise)] == []
    assert PAGE.count("::") == len(NAMED)
