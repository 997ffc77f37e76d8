"""Test that warnings and errors are described in words: each code, frequent subjects, and what is not known."""

from typing import get_args

import pytest

from gateway.code_texts import CODES, ENTRIES, WarningDetail, code_title, describe, error_advice
from gateway.warnings import WarningCode


def test_warning_texts_describe_each_code():
    assert [*CODES] == [*get_args(WarningCode)]
    assert {entry.partition(":")[0] for entry in ENTRIES} <= {*CODES}
    for code, text in CODES.items():
        assert text.title.count("{}") == 1 and text.severity in ("warn", "info")
        assert text.meaning.endswith(".") and text.action.endswith(".")
        assert "{" not in code_title(code)


@pytest.mark.parametrize(
    ("entry", "title", "severity"),
    [
        ("dropped:tools.strict", "tools.strict left out", "warn"),
        ("unread:tool_calls=pythonic", "tool call not read", "warn"),
        ("repaired:tool_calls.function.arguments", "arguments repaired", "warn"),
        ("repaired:connection", "connection opened again", "info"),
        ("estimated:usage.reasoning_tokens", "reasoning tokens estimated", "info"),
        ("forwarded:+40", "40 more passed on", "info"),
        ("dropped:{0.x}", "{0.x} left out", "warn"),
    ],
)
def test_warning_is_described_in_words(entry, title, severity):
    found = describe(entry)
    assert (found.entry, found.title, found.severity) == (entry, title, severity)
    assert found.link == f"/docs/warnings#{found.code}" and entry.startswith(f"{found.code}:")


def test_warning_of_an_unknown_code_is_described_by_itself():
    assert describe("moved:stop") == WarningDetail(
        "moved:stop", "moved", "moved:stop", "warn", "This version of the gateway does not know the code.", "",
        "/docs/warnings",
    )  # fmt: skip


def test_warning_title_of_a_code_names_no_subject():
    assert code_title("dropped") == "Parts left out"


@pytest.mark.parametrize(
    ("status", "code", "words"),
    [
        (503, "model_loading", "loads the model"),
        (502, "own_code", "its log says why"),
        (400, "own_code", "breaks a rule"),
    ],
)
def test_error_advice_is_about_the_code_or_the_sort_of_error(status, code, words):
    assert words in error_advice(status, code)
