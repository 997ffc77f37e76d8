"""Test that a chunk and a request cost no more than they did: counts stay below the ceilings of the stored ones."""

import asyncio

import pytest

from support.costs import OTHER_PYTHON, RESPONSE_BODY, SORTS, VERSION, ceiling, cost, judged, stored
from support.edge_costs import stored_cost
from support.format_events import untraced


@pytest.mark.parametrize("sort", SORTS)
def test_costs_stay_below_their_ceilings(sort):
    assert not [*judged(sort, cost(sort), stored()[sort])]


def test_costs_are_stored_for_each_sort():
    assert set(stored()) == set(SORTS)


def test_request_with_a_stored_key_and_usage_takes_at_most_3_percent_more_calls():
    plain, team = cost("request: chat"), cost("request: chat, stored key and usage")
    assert plain["calls"] < team["calls"] <= 1.03 * plain["calls"]


@pytest.mark.parametrize("what", ["text", "thought"])
def test_chunk_of_a_message_costs_no_more_than_one_of_a_response(what):
    found, wanted = cost(f"chunk: messages, {what}"), cost(f"chunk: responses, {what}")
    assert found["calls"] <= wanted["calls"] and found["bytes"] <= 1.5 * wanted["bytes"]


@untraced
def test_stored_response_takes_few_more_calls_than_another(tmp_path):
    """Count calls in all threads; a statement per trip through SQLAlchemy takes 1.8 times as many."""
    kept, other = (
        asyncio.run(stored_cost(RESPONSE_BODY | {"store": store}, f"sqlite:///{tmp_path}/a.db"))
        for store in (True, False)
    )
    assert other < kept <= 1.4 * other


def test_costs_above_a_ceiling_are_named():
    wanted = {"calls": 1000, "bytes": 1000}
    assert [*judged("it", {"calls": ceiling("calls", 1000), "bytes": 900}, wanted)] == []
    (dearer,) = judged("it", {"calls": 1200, "bytes": 1000}, wanted)
    assert dearer.startswith("it: calls 1200, stored 1000, ceiling 10") and dearer.endswith("make regenerate")


def test_costs_of_another_python_have_a_higher_ceiling():
    assert ceiling("calls", 1000, "2.7") - ceiling("calls", 1000, "none") == 0
    assert ceiling("calls", 1000, "2.7") == 1000 * (1 + 0.03 + OTHER_PYTHON)
    assert ceiling("calls", 3, VERSION) == 4
    assert ceiling("writes", 3, VERSION) == ceiling("writes", 3, "2.7") == 3
