"""Test that a chunk and a request cost no more than they did: counts stay below the ceilings of the stored ones."""

import pytest

from support.costs import OTHER_PYTHON, SORTS, VERSION, ceiling, cost, judged, stored


@pytest.mark.parametrize("sort", SORTS)
def test_costs_stay_below_their_ceilings(sort):
    assert not [*judged(sort, cost(sort), stored()[sort])]


def test_costs_are_stored_for_each_sort():
    assert set(stored()) == set(SORTS)


def test_costs_above_a_ceiling_are_named():
    wanted = {"calls": 1000, "bytes": 1000}
    assert [*judged("it", {"calls": ceiling("calls", 1000), "bytes": 900}, wanted)] == []
    (dearer,) = judged("it", {"calls": 1200, "bytes": 1000}, wanted)
    assert dearer.startswith("it: calls 1200, stored 1000, ceiling 10") and dearer.endswith("make regenerate")


def test_costs_of_another_python_have_a_higher_ceiling():
    assert ceiling("calls", 1000, "2.7") - ceiling("calls", 1000, "none") == 0
    assert ceiling("calls", 1000, "2.7") == 1000 * (1 + 0.03 + OTHER_PYTHON)
    assert ceiling("calls", 3, VERSION) == 4
