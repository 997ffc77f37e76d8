"""Test the descriptions of errors."""

import pytest

from gateway.error_texts import error_advice


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
