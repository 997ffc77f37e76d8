"""Test that the checks of the Messages API name tests that exist: messages_checks.json has a row for each check."""

import json

import pytest

from support.durations import exists
from support.paths import TESTS

CHECKS = json.loads((TESTS / "project" / "messages_checks.json").read_text("utf-8"))


def test_messages_checks_are_numbered_and_named():
    assert [row["check"] for row in CHECKS] == [*range(1, 62)]
    assert len({row["title"] for row in CHECKS}) == len(CHECKS)


@pytest.mark.parametrize("row", CHECKS, ids=lambda row: str(row["check"]))
def test_messages_check_names_tests_that_exist(row):
    assert row["tests"] and [name for name in row["tests"] if not exists(name)] == []
