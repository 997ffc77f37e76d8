"""Test how the balancer chooses a backend: priority groups, load, sticky keys and ejection."""

from collections import Counter
from math import sqrt
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.routing import Balancer, BalancerMember, FairQueue, Health
from gateway.routing.balancer import RendezvousRanking
from support.sampling import examples

KEYS = [f"key {number}" for number in range(300)]


class Watched(Health):
    """A Health that counts calls of `admits`."""

    looks = 0

    def admits(self, now):
        self.looks += 1
        return super().admits(now)


class Site:
    """A balancer and its members by name."""

    def __init__(self, *members, seed=1):
        self.random = Random(seed).random
        self.members = [self.member(*member) for member in members]
        self.named = {member.name: member for member in self.members}
        self.balancer = Balancer(self.members, self.random)
        self.slots = []

    def member(self, name, weight=1.0, priority=0, limit=0):
        return BalancerMember(name, weight, priority, Watched(lambda: 0.5), FairQueue(limit, 1000))

    def choose(self, key=None, tried=(), now=0.0):
        member = self.balancer.choose(now, key, tried)
        return member and member.name

    def ask(self, key=None, now=0.0):
        """Choose a member and give it a request."""
        name = self.choose(key, now=now)
        self.fill(name)
        return name

    def fill(self, name, times=1):
        for _ in range(times):
            self.slots.append(self.named[name].load.acquire("a", 1.0, self.slots.clear))

    def die(self, *names, now=0.0):
        for name in names:
            health = self.named[name].health
            for _ in range(5):
                health.record_failure(health.begin(now), now)

    def answer(self, name, poor, well=0, now=0.0):
        health = self.named[name].health
        for _ in range(poor):
            health.record_request_failure(health.begin(now), now)
        for _ in range(well):
            health.record_success(health.begin(now), now)

    def ejected(self, now=0.0):
        return [member.name for member in self.members if member.health.ejected(now)]


def many(count, weight=1.0, **fields):
    return Site(*[(f"m{number}", weight) for number in range(count)], **fields)


def test_balancer_uses_the_group_with_the_lowest_priority():
    site = Site(("c", 1, 7), ("a", 1, 0), ("b", 1, 1))
    assert site.choose() == "a"
    assert site.choose(tried={"a"}) == "b"
    site.die("a")
    assert site.choose() == "b"
    assert site.choose(tried={"a", "b"}) == "c"
    assert site.choose(tried={"a", "b", "c"}) is None
    site.die("b", "c")
    assert site.choose() is None
    assert site.choose("key") is None
    assert site.choose(now=1.0) == "a"


def test_balancer_sends_a_retry_to_a_half_open_backend_only_as_last_resort():
    site = Site(("a",), ("b",), ("c", 1, 1))
    site.die("a")
    site.fill("c", 5)
    assert {site.choose(key, now=1.0) for key in KEYS} == {"a", "b"}
    assert {site.choose(key, tried={"b"}, now=1.0) for key in KEYS} == {"c"}
    assert site.choose(tried={"b", "c"}, now=1.0) == "a"


def test_balancer_knows_when_the_first_backend_is_back():
    site = Site(("a",), ("b", 1, 1))
    site.die("a", "b")
    site.named["b"].health.pause(0.0, 5.0)
    assert site.balancer.back_in(0.25) == 0.75
    assert Balancer([], site.random).back_in(0.0) == 0.0
    assert Balancer([], site.random).choose(0.0, None, ()) is None


def test_balancer_picks_the_least_busy_backend_by_weight():
    site = Site(("a", 1), ("b", 3))
    site.fill("a", 2)
    site.fill("b", 9)
    assert [site.ask() for _ in range(3)] == ["a", "b", "b"]
    assert Counter(site.ask() for _ in range(42)) == {"a": 11, "b": 31}


@pytest.mark.parametrize("copies", [1, 10], ids=["few", "many"])
def test_balancer_splits_requests_over_idle_backends_by_weight(copies):
    weights = [1, 2, 4]
    site = Site(*[(f"{weight} {copy}", weight) for weight in weights for copy in range(copies)])
    chosen = Counter(int(site.choose()[0]) for _ in range(7000))
    for weight in weights:
        assert abs(chosen[weight] - 1000 * weight) < 4 * sqrt(1000 * weight)


def test_balancer_finds_the_only_healthy_backend_of_a_large_group():
    site = many(200)
    site.die(*[f"m{number}" for number in range(200) if number != 77])
    assert {site.choose() for _ in range(20)} == {"m77"}
    assert {site.choose(key) for key in KEYS[:20]} == {"m77"}
    site.die("m77")
    assert site.choose() is None
    assert site.choose("key") is None


def test_balancer_spreads_load_evenly_in_a_large_group():
    site = many(100)
    counts = Counter(site.ask() for _ in range(2000))
    assert max(counts.values()) <= 25
    assert min(counts.values()) >= 15


@pytest.mark.parametrize("key", [None, "key"])
@pytest.mark.parametrize(("busy", "looks"), [(0, 8), (1, 24)], ids=["idle", "full"])
def test_balancer_looks_at_few_backends_of_a_large_group(key, busy, looks):
    site = Site(*[(f"m{number}", 1, 0, 1) for number in range(1000)])
    for member in site.members:
        site.fill(member.name, busy)
    site.choose(key)
    before = sum(member.health.looks for member in site.members)
    for _ in range(100):
        site.choose(key)
    assert sum(member.health.looks for member in site.members) - before <= 100 * looks


def test_balancer_skips_full_backends_until_all_are_full():
    site = Site(("a", 1, 0, 1), ("b", 1, 0, 9), ("c", 1, 1, 1))
    site.fill("a")
    site.fill("b", 5)
    assert {site.choose() for _ in range(20)} == {"b"}
    site.fill("b", 4)
    assert site.ask() == "c"
    assert site.ask() == "a"  # all are full: the shortest queue of the first group
    assert site.choose(tried={"a", "b"}) == "c"


def test_sticky_key_returns_to_its_backend():
    site = Site(("a",), ("b",), ("c",))
    first = {key: site.choose(key) for key in KEYS}
    assert {site.choose("one") for _ in range(20)} == {site.choose("one")}
    second = {key: site.choose(key, tried={first[key]}) for key in KEYS}
    assert all(first[key] != second[key] for key in KEYS)
    site.die("a")
    assert {key: site.choose(key) for key in KEYS} == {
        key: second[key] if first[key] == "a" else first[key] for key in KEYS
    }
    assert {key: site.choose(key, now=1.0) for key in KEYS} == first


def test_sticky_key_leaves_a_backend_that_is_full_or_overloaded():
    site = Site(("a", 1, 0, 50), ("b", 1, 0, 50), ("c", 1, 0, 50))
    first = site.choose("key")
    counts = Counter(site.ask("key", now=float(second)) for second in range(60))
    assert counts[first] == max(counts.values()) > 20  # 1.5 times the mean of 20, at the end, and 2
    assert counts[first] <= 33
    assert min(counts.values()) > 0
    site.fill(first, 50 - counts[first])
    assert site.choose("key", now=100.0) != first


def test_sticky_key_stays_if_all_backends_are_full():
    site = Site(("a", 1, 0, 2), ("b", 1, 0, 2))
    own = site.choose("key")
    other = "ab".replace(own, "")
    site.fill(own, 2)
    assert site.choose("key") == other
    site.fill(other, 2)
    assert site.choose("key") == own


def test_sticky_key_goes_to_the_only_backend_that_is_not_full():
    site = Site(*[(name, 1, 0, 1) for name in "abcdef"], ("g", 1, 0, 100))
    for name in "abcdef":
        site.fill(name)
    site.fill("g", 50)
    assert {site.choose(key, now=1.0) for key in KEYS[:20]} == {"g"}


def test_sticky_key_keeps_its_order_when_few_backends_are_left():
    site, twin = many(60), many(60)
    gone = {f"m{number}" for number in range(55)}
    site.die(*gone)
    assert [site.choose(key) for key in KEYS] == [twin.choose(key, tried=gone) for key in KEYS]
    small = Site(*[(f"m{number}",) for number in range(55, 60)])
    assert [site.choose(key) for key in KEYS] == [small.choose(key) for key in KEYS]


def names(members):
    return [(f"m{number}", weight) for number, weight in enumerate(members)]


@given(st.lists(st.sampled_from([1, 2, 3, 10]), min_size=2, max_size=40), st.data())
@settings(max_examples=examples(40), deadline=None)
def test_sticky_key_moves_only_if_its_backend_is_removed(weights, data):
    members = names(weights)
    gone = data.draw(st.sampled_from(members))
    rest = [member for member in members if member != gone]
    whole, less = Site(*members), Site(*data.draw(st.permutations(rest)))
    for key in KEYS[:60]:
        before, after = whole.choose(key), less.choose(key)
        assert after == before or before == gone[0]


@given(st.lists(st.sampled_from([1, 2, 3]), min_size=2, max_size=20), st.data())
@settings(max_examples=examples(40), deadline=None)
def test_sticky_key_moves_only_to_a_backend_that_gains_weight(weights, data):
    place = data.draw(st.integers(0, len(weights) - 1))
    more = [weight + 3 * (number == place) for number, weight in enumerate(weights)]
    before, after = Site(*names(weights)), Site(*names(more))
    for key in KEYS[:60]:
        assert after.choose(key) in (before.choose(key), f"m{place}")


@pytest.mark.parametrize("dead", [None, 3])
def test_sticky_keys_are_spread_by_weight_also_after_a_failure(dead):
    weights = [1, 1, 2, 3, 4, 4]
    site = Site(*names(weights))
    keys = [f"key {number}" for number in range(14_000)]
    left = [weight for number, weight in enumerate(weights) if number != dead]
    if dead is not None:
        keys = [key for key in keys if site.choose(key) == f"m{dead}"]
        site.die(f"m{dead}")
    chosen = Counter(map(site.choose, keys))
    for number, weight in enumerate(weights):
        share = weight / sum(left) if number != dead else 0
        assert abs(chosen[f"m{number}"] - share * len(keys)) <= 4 * sqrt(share * (1 - share) * len(keys))


def test_sticky_key_order_is_the_same_in_every_process():
    ranking = RendezvousRanking([("a", 1), ("b", 2), ("c", 1), ("d", 4)])
    orders = {key: "".join("abcd"[place] for part in ranking.order(key) for place in part) for key in ("", "k", "ключ")}
    assert orders == {"": "dabc", "k": "dcab", "ключ": "bdac"}


def test_sticky_key_order_does_not_depend_on_the_cache():
    ranking = RendezvousRanking(names([1, 2, 3]))
    first = [[*ranking.order(key)] for key in KEYS]
    oldest, second = [*ranking._known][:2]
    for number in range(8192):
        next(ranking.order(f"other {number}"))
        assert oldest in ranking._known
        next(ranking.order(KEYS[0]))
    assert (len(ranking._known), second in ranking._known) == (8192, False)
    assert [[*ranking.order(key)] for key in KEYS] == first


def test_ejection_hits_a_backend_that_fails_far_more_than_others():
    site = Site(("a",), ("b",), ("c",))
    for name in "bc":
        site.answer(name, poor=2, well=8)
    site.answer("a", poor=6, well=4)
    assert site.choose() in "bc"
    assert site.ejected() == ["a"]
    assert {site.choose(key, now=0.2) for key in KEYS} == {"b", "c"}
    assert site.choose(now=0.2, tried={"b", "c"}) == "a"  # better than nobody
    assert "a" in {site.choose(key, now=1.2) for key in KEYS}
    site.answer("a", poor=11, now=1.2)
    site.choose(now=1.3)
    assert (site.ejected(3.2), site.ejected(3.4)) == (["a"], [])


def test_ejection_is_not_extended_by_late_failures():
    site = many(4)
    site.answer("m0", poor=12)
    site.choose()
    site.answer("m0", poor=12, now=0.5)
    site.choose(now=0.6)
    assert (site.ejected(0.9), site.ejected(1.0)) == (["m0"], [])


@pytest.mark.parametrize(
    ("a", "b"),
    [((9, 0), (0, 20)), ((10, 11), (0, 20)), ((10, 0), (10, 10)), ((20, 20), (10, 20))],
    ids=["few outcomes", "less than half", "all fail", "others fail half as often"],
)
def test_ejection_needs_many_failures_and_more_than_others_have(a, b):
    site = Site(("a",), ("b",))
    site.answer("a", *a)
    site.answer("b", *b)
    site.choose()
    assert site.ejected() == []


def test_ejection_takes_the_worst_and_at_most_half_of_a_group():
    site = many(5)
    for number in range(3):
        site.answer(f"m{number}", poor=10 + number, well=2)
    for number in range(3, 5):
        site.answer(f"m{number}", poor=0, well=100)
    site.choose(now=0.1)
    assert site.ejected(0.1) == ["m1", "m2"]
    site.choose(now=0.2)
    assert site.ejected(0.2) == ["m1", "m2"]


def test_ejection_spares_the_only_backend_of_a_group():
    site = Site(("a",), ("b", 1, 1))
    site.answer("a", poor=50)
    assert site.choose(now=1.0) == "a"


@given(
    st.lists(st.tuples(st.sampled_from([1, 2, 4]), st.integers(0, 2), st.integers(0, 3)), min_size=1, max_size=12),
    st.sets(st.integers(0, 11)),
    st.sets(st.integers(0, 11)),
    st.lists(st.one_of(st.none(), st.sampled_from(KEYS)), max_size=30),
)
@settings(deadline=None)
def test_balancer_picks_an_untried_backend_that_admits_requests(members, dead, tried, keys):
    site = Site(*[(f"m{number}", *member) for number, member in enumerate(members)])
    site.die(*[f"m{number}" for number in dead if number < len(members)])
    tried = {f"m{number}" for number in tried}
    for key in keys:
        left = [one for one in site.members if one.name not in tried and one.health.admits(0.0)]
        chosen = site.balancer.choose(0.0, key, tried)
        assert chosen in left if left else chosen is None
        if not left:
            continue
        room = [one for one in left if not one.load.is_full]
        assert chosen.priority == min(one.priority for one in room or left)
        assert not chosen.load.is_full or not room
        site.fill(chosen.name)
