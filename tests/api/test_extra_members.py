"""Test that values of a member are merged as OpenAI's SDKs merge deltas, at a cost that does not grow."""

from functools import reduce

from hypothesis import given
from hypothesis import strategies as st
from msgspec import Raw, json

from gateway.api.extra_members import DELTAS, LISTS, add_value, members

SCALARS = st.none() | st.integers(0, 2) | st.sampled_from(["", "a", "bc"])
VALUES = st.recursive(
    SCALARS, lambda some: st.lists(some, max_size=2) | st.dictionaries(st.sampled_from("xy"), some, max_size=2)
)


def merged(before, more):
    """Merge two deltas."""
    if isinstance(before, dict) and isinstance(more, dict):
        return before | {name: merged(before[name], value) if name in before else value for name, value in more.items()}
    both = any(isinstance(before, kind) and isinstance(more, kind) for kind in (str, list))
    return before + more if both else more


def continued(before, more):
    """Continue a list, and replace anything else."""
    return before + more if isinstance(before, list) and isinstance(more, list) else more


def collected(values, continuing):
    found = {}
    for value in values:
        add_value(found, "m", Raw(json.encode(value)), continuing)
    return found


@given(st.lists(VALUES, min_size=1, max_size=6))
def test_members_are_the_fold_of_their_values(values):
    for continuing, fold in ((DELTAS, merged), (LISTS, continued)):
        found = members(collected(values, continuing))
        assert json.decode(found["m"]) == reduce(fold, values)


def test_value_that_is_alone_stays_as_it_came():
    raw = Raw(b'{"a": 1.50}')
    values = {}
    add_value(values, "m", raw)
    assert members(values) == {"m": raw}


def test_values_that_replace_one_another_do_not_pile_up():
    assert [*map(len, collected([*range(100)], DELTAS).values())] == [1]
    assert [*map(len, collected([{"n": n} for n in range(100)], LISTS).values())] == [1]
