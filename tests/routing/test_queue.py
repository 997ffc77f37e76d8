"""Test the queue's data structure: limit, length, fairness, weights and leaving."""

from collections import Counter

from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from gateway.routing import FairQueue
from support.sampling import examples


class Turns:
    """A turnstile and the order in which it grants slots."""

    def __init__(self, limit, length=1000):
        self.turnstile = FairQueue(limit, length)
        self.given = []

    def acquire(self, name, tenant=None, weight=1.0):
        return self.turnstile.acquire(tenant or name, weight, lambda: self.given.append(name))


def queue(turns, tenants, weights=None):
    """Return the ticket inside and those that wait, in the order of the queue."""
    held = turns.acquire("held")
    tickets = [turns.acquire(place, tenant, (weights or {}).get(tenant, 1.0)) for place, tenant in enumerate(tenants)]
    return held, tickets


def served(turns, held, tickets, times):
    """Return the places of the tickets that get the next slots, in order."""
    turns.turnstile.release(held)
    for _ in range(times - 1):
        turns.turnstile.release(tickets[turns.given[-1]])
    return turns.given


def test_queue_without_a_limit_admits_and_counts_every_request():
    turns = Turns(0, 0)
    tickets = [turns.acquire("a") for _ in range(100)]
    assert all(ticket.has_slot for ticket in tickets)
    assert (turns.turnstile.total, turns.turnstile.is_full) == (100, False)
    for ticket in tickets:
        turns.turnstile.release(ticket)
    assert (turns.turnstile.total, turns.given) == (0, [])


def test_queue_refuses_requests_beyond_its_length():
    turns = Turns(1, 1)
    assert not turns.turnstile.is_full
    first, second, third = (turns.acquire(name) for name in "abc")
    assert (first.has_slot, second.has_slot, third) == (True, False, None)
    assert (turns.turnstile.is_full, turns.turnstile.total, turns.turnstile.waiting) == (True, 2, 1)
    turns.turnstile.release(first)
    assert (first.has_slot, second.has_slot, turns.given) == (False, True, ["b"])


def test_queue_skips_a_request_that_gives_up():
    turns = Turns(1)
    first, second, third = (turns.acquire(name) for name in "abc")
    for _ in range(2):
        turns.turnstile.release(second)
    for _ in range(2):
        turns.turnstile.release(first)
    assert (turns.given, third.has_slot, turns.turnstile.total) == (["c"], True, 1)


def test_queue_is_fair_to_a_tenant_with_one_request():
    turns = Turns(1)
    held, tickets = queue(turns, [*["much"] * 50, "little"])
    assert served(turns, held, tickets, 2) == [0, 50]


def test_queue_charges_nothing_for_requests_that_gave_up():
    turns = Turns(1)
    held, tickets = queue(turns, [*["a"] * 20, "b", "a", "b"])
    for ticket in tickets[:20]:
        turns.turnstile.release(ticket)
    assert served(turns, held, tickets, 3) == [21, 20, 22]


def test_queue_gives_a_returning_tenant_no_precedence():
    turns = Turns(1)
    held, tickets = queue(turns, ["a", "b", "b"])
    turns.turnstile.release(held)
    tickets.append(turns.acquire(3, "a"))
    turns.turnstile.release(tickets[0])
    turns.turnstile.release(tickets[1])
    assert turns.given == [0, 1, 3]


def test_queue_with_new_high_priority_requests_starves_no_other():
    turns = Turns(1)
    tickets = {}
    last = turns.acquire("held")
    tickets["old"], tickets["older"] = turns.acquire("old", "b"), turns.acquire("older", "b")
    for number in range(40):
        name = f"new {number}"
        tickets[name] = turns.acquire(name, weight=4.0)
        turns.turnstile.release(last)
        last = tickets[turns.given[-1]]
    assert [turns.given.index(name) for name in ("old", "older")] == [3, 11]


def test_queue_follows_a_changed_limit():
    turns = Turns(1)
    tickets = [turns.acquire(name) for name in "abcd"]
    turns.turnstile.limit = 3
    assert ([ticket.has_slot for ticket in tickets], turns.given) == ([True, True, True, False], ["b", "c"])
    turns.turnstile.limit = 1
    assert turns.turnstile.limit == 1
    turns.turnstile.release(tickets[0])
    turns.turnstile.release(tickets[1])
    assert turns.given == ["b", "c"]
    turns.turnstile.limit = 0
    assert turns.given == ["b", "c", "d"]


def test_queue_puts_a_request_that_enters_during_a_grant_last():
    turnstile, given = FairQueue(1, 10), []
    late = []
    turnstile.acquire("a", 1.0, given.clear)
    turnstile.acquire("b", 1.0, lambda: late.append(turnstile.acquire("d", 1.0, lambda: given.append("d"))))
    turnstile.acquire("c", 1.0, lambda: given.append("c"))
    turnstile.limit = 3
    assert (given, late[0].has_slot, turnstile.is_full) == (["c"], False, True)


def test_queue_passes_on_the_slot_of_a_request_that_leaves_at_its_turn():
    turnstile, tickets = FairQueue(1, 10), {}
    for name in "abc":
        tickets[name] = turnstile.acquire(name, 1.0, lambda name=name: turnstile.release(tickets[name]))
    turnstile.release(tickets["a"])
    assert turnstile.total == 0
    assert turnstile.acquire("d", 1.0, tickets.clear).has_slot


def test_queue_keeps_no_trace_of_requests_that_gave_up():
    turns = Turns(1, 8)
    held = turns.acquire("held")
    for number in range(1000):
        turns.turnstile.release(turns.acquire(number))
        assert len(turns.turnstile._order) <= 2 * 8 + 17
    kept = [turns.acquire(name) for name in "ab"]
    for number in range(1000, 2000):
        turns.turnstile.release(turns.acquire(number))
        assert len(turns.turnstile._order) <= 2 * 8 + 17
    turns.turnstile.release(held)
    turns.turnstile.release(kept[0])
    assert turns.given == ["a", "b"]


@given(st.permutations([tenant for tenant in "abcd" for _ in range(8)]), st.integers(1, 3))
def test_queue_turns_of_waiting_tenants_differ_by_at_most_one(tenants, limit):
    turns = Turns(limit)
    inside = [turns.acquire("held") for _ in range(limit)]
    tickets = [turns.acquire(place, tenant) for place, tenant in enumerate(tenants)]
    counts = Counter(dict.fromkeys("abcd", 0))
    while max(counts.values()) < 8:
        turns.turnstile.release(inside.pop(0))
        inside.append(tickets[turns.given[-1]])
        counts[tenants[turns.given[-1]]] += 1
        assert max(counts.values()) - min(counts.values()) <= 1


@given(st.permutations([tenant for tenant in "abcd" for _ in range(40)]))
@settings(max_examples=examples(30))
def test_queue_turns_are_in_proportion_to_weights(tenants):
    weights = {"a": 4.0, "b": 2.0, "c": 1.0, "d": 1.0}
    turns = Turns(1)
    held, tickets = queue(turns, tenants, weights)
    counts = Counter(dict.fromkeys(weights, 0))
    for place in served(turns, held, tickets, 80)[:76]:
        counts[tenants[place]] += 1
        for one, other in [("a", "b"), ("a", "c"), ("b", "d"), ("c", "d")]:
            apart = counts[one] / weights[one] - counts[other] / weights[other]
            assert abs(apart) <= 1 / weights[one] + 1 / weights[other]


class Machine(RuleBasedStateMachine):
    """Compare the turnstile with a plain account after random operations."""

    def __init__(self):
        super().__init__()
        self.turnstile = FairQueue(2, 3)
        self.tickets = {}  # by number, those that have not left
        self.given = []
        self.lines = {}  # the numbers that wait, by tenant
        self.numbers = 0

    @rule(tenant=st.sampled_from("abc"), weight=st.sampled_from([1.0, 2.0, 4.0]))
    def enter(self, tenant, weight):
        number, full, waiting = self.numbers, self.turnstile.is_full, self.turnstile.waiting
        self.numbers += 1
        ticket = self.turnstile.acquire(tenant, weight, lambda: self.turn(tenant, number))
        if ticket is None:
            assert full
            assert waiting >= self.turnstile.length
            return
        assert ticket.has_slot != full
        self.tickets[number] = ticket
        if full:
            self.lines.setdefault(tenant, []).append(number)

    def turn(self, tenant, number):
        assert self.tickets[number].has_slot
        assert self.lines[tenant].pop(0) == number
        self.given.append(number)

    @precondition(lambda self: self.tickets)
    @rule(data=st.data())
    def leave(self, data):
        number = data.draw(st.sampled_from([*self.tickets]))
        ticket = self.tickets.pop(number)
        if not ticket.has_slot:
            self.lines[ticket.tenant].remove(number)
        self.turnstile.release(ticket)
        assert not ticket.has_slot

    @rule(limit=st.integers(0, 4), length=st.integers(0, 5))
    def change(self, limit, length):
        self.turnstile.limit, self.turnstile.length = limit, length

    @invariant()
    def counts_agree(self):
        inside = sum(ticket.has_slot for ticket in self.tickets.values())
        waiting = sum(map(len, self.lines.values()))
        assert (self.turnstile.active, self.turnstile.waiting) == (inside, waiting)
        assert self.turnstile.total == len(self.tickets)
        assert len(self.given) == len(set(self.given))

    @invariant()
    def requests_wait_only_if_full(self):
        assert not self.turnstile.waiting or self.turnstile.is_full

    def teardown(self):
        while self.tickets:
            number = next(number for number, ticket in self.tickets.items() if ticket.has_slot)
            self.turnstile.release(self.tickets.pop(number))
        assert self.turnstile.total == 0


class Limited(Machine):
    """The same without changes of the limit, which then holds."""

    change = None

    @invariant()
    def never_more_than_the_limit(self):
        assert self.turnstile.active <= 2
        assert self.turnstile.waiting <= 3


TestMachine, TestLimited = Machine.TestCase, Limited.TestCase
TestMachine.settings = TestLimited.settings = settings(max_examples=examples(60), stateful_step_count=40, deadline=None)
