"""A chunk and a request cost what they did: counts are held to the stored ones, in both directions."""

import pytest

from support.costs import SORTS, cost, judged, stored


@pytest.mark.parametrize("sort", SORTS)
def test_it_costs_what_it_did(sort):
    assert not [*judged(sort, cost(sort), stored()[sort])]


def test_all_sorts_are_stored_and_nothing_else():
    assert set(stored()) == set(SORTS)


def test_what_is_cheaper_has_to_be_stored_and_what_is_dearer_is_said():
    wanted = {"calls": 100, "bytes": 1000}
    assert [*judged("it", {"calls": 110, "bytes": 900}, wanted)] == []
    cheaper, dearer = judged("it", {"calls": 89, "bytes": 1101}, wanted)
    assert cheaper == "it: calls 89, stored 100: cheaper, which is to be stored; `make costs` stores what is so now."
    assert dearer == "it: bytes 1101, stored 1000: dearer; `make costs` stores what is so now."
