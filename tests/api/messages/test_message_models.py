"""Test the list of models in Anthropic's shape.

https://platform.claude.com/docs/en/api/models-list
"""

import pytest

from gateway.api.messages import ModelSummary, error_message, model_page
from gateway.errors import BadRequest

MODELS = [ModelSummary(name, window) for name, window in (("a", 4096), ("b", None), ("c", 8192))]


def page(*arguments, **options):
    listed = model_page(MODELS, *arguments, **options)
    return [model["id"] for model in listed["data"]], listed["has_more"], listed["first_id"], listed["last_id"]


def test_model_has_all_members():
    assert model_page(MODELS[:1])["data"] == [
        {
            "type": "model", "id": "a", "display_name": "a", "created_at": "2026-01-01T00:00:00Z",
            "max_input_tokens": 4096, "max_tokens": None, "lifecycle": "active", "capabilities": None,
        }
    ]  # fmt: skip


PAGES = {
    "all": ({}, (["a", "b", "c"], False, "a", "c")),
    "limit": ({"limit": "2"}, (["a", "b"], True, "a", "b")),
    "after": ({"after_id": "a"}, (["b", "c"], False, "b", "c")),
    "after, with a limit": ({"limit": "1", "after_id": "a"}, (["b"], True, "b", "b")),
    "after the last": ({"after_id": "c"}, ([], False, None, None)),
    "after an unknown one": ({"after_id": "x"}, ([], False, None, None)),
    "before": ({"before_id": "c"}, (["a", "b"], False, "a", "b")),
    "before, with a limit": ({"limit": "1", "before_id": "c"}, (["b"], True, "b", "b")),
    "before an unknown one": ({"before_id": "x"}, ([], False, None, None)),
    "the largest limit": ({"limit": "1000"}, (["a", "b", "c"], False, "a", "c")),
}


@pytest.mark.parametrize("options, wanted", PAGES.values(), ids=PAGES)
def test_models_are_listed_page_by_page(options, wanted):
    assert page(**options) == wanted


def test_empty_list():
    assert model_page([]) == {"data": [], "has_more": False, "first_id": None, "last_id": None}


def test_twenty_models_are_a_page():
    listed = model_page([ModelSummary(f"m{i}") for i in range(21)])
    assert (len(listed["data"]), listed["has_more"]) == (20, True)


@pytest.mark.parametrize("limit", ["0", "1001", "-1", "x", "", "²", "99999"])
def test_limit_is_refused(limit):
    with pytest.raises(BadRequest) as caught:
        model_page(MODELS, limit)
    assert error_message(caught.value.problem) == "limit: Input should be between 1 and 1000"
