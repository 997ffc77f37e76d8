"""Test the circuit breaker of a backend, its memory of outcomes, and the budget for retries."""

from math import inf, isclose

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from gateway.routing import AttemptToken, Health, RetryBudget
from support.sampling import examples


def steady():
    """Return the random number that means no jitter."""
    return 0.5


def healthy():
    return Health(steady)


def fail(health, now, times=5):
    for _ in range(times):
        health.record_failure(health.begin(now), now)


def open_circuit(now=0.0):
    health = healthy()
    fail(health, now)
    return health


def test_circuit_opens_with_the_fifth_failure_in_a_row():
    health = healthy()
    fail(health, 0.0, 4)
    health.record_success(health.begin(0.0), 0.0)
    fail(health, 0.0, 4)
    assert (health.state(0.0), health.admits(0.0)) == ("closed", True)
    fail(health, 0.0, 1)
    assert (health.state(0.0), health.admits(0.0), health.back_in(0.0)) == ("open", False, 1.0)


def test_circuit_admits_one_trial_after_the_pause():
    health = open_circuit()
    assert (health.state(1.0), health.admits(1.0), health.back_in(1.0)) == ("half_open", True, 0.0)
    trial = health.begin(1.0)
    assert (health.state(1.0), health.admits(1.0), health.back_in(1.0)) == ("half_open", False, 2.0)
    health.record_success(trial, 1.5)
    assert (health.state(1.5), health.admits(1.5), health.share) == ("closed", True, 0.0)


def test_circuit_pause_doubles_up_to_thirty_seconds_until_a_success():
    health, now, pauses = open_circuit(), 0.0, []
    for _ in range(8):
        pauses.append(health.back_in(now))
        now += pauses[-1]
        health.record_failure(health.begin(now), now)
    assert pauses == [1, 2, 4, 8, 16, 30, 30, 30]
    now += 30
    health.record_success(health.begin(now), now)
    fail(health, now)
    assert health.back_in(now) == 1


@pytest.mark.parametrize(("drawn", "pause"), [(0.0, 0.8), (0.25, 0.9), (0.9999999, 1.2)])
def test_circuit_pause_has_a_jitter_of_a_fifth(drawn, pause):
    health = Health(lambda: drawn)
    fail(health, 0.0)
    assert isclose(health.back_in(0.0), pause, rel_tol=1e-6)


def test_trial_that_is_dropped_makes_room_for_another():
    health = open_circuit()
    first = health.begin(1.0)
    health.record_no_outcome(first)
    assert health.admits(1.0)
    second = health.begin(1.0)
    health.record_failure(first, 1.0)
    assert not health.admits(1.0)
    health.record_success(second, 1.0)
    assert health.state(1.0) == "closed"


def test_trial_that_is_slow_allows_a_second_one():
    health = open_circuit(5)
    first = health.begin(6)
    assert not health.admits(7.9) and health.back_in(7.9) == pytest.approx(0.1)
    assert health.admits(8)
    second = health.begin(8)
    assert not health.admits(9) and health.is_current(first) and health.is_current(second)
    health.record_success(first, 9)
    assert health.state(9) == "closed" and health.admits(9)


def test_trial_that_is_slow_counts_after_another_was_dropped():
    health = open_circuit()
    first = health.begin(1)
    second = health.begin(3)
    health.record_no_outcome(second)
    assert health.is_current(first) and health.back_in(3) == 2
    third = health.begin(5)
    health.record_request_failure(third, 5.5)
    health.record_success(first, 6)
    assert health.state(6) == "closed" and health.admits(6)


def test_trial_may_begin_after_all_others_were_dropped():
    health = open_circuit()
    for trial in (health.begin(1), health.begin(3)):
        health.record_no_outcome(trial)
    assert health.admits(3)
    last = health.begin(3)
    assert not health.admits(4)
    health.record_no_outcome(last)
    assert health.admits(4)


def test_trial_with_a_poor_outcome_leaves_the_circuit_half_open():
    health = open_circuit()
    health.record_request_failure(health.begin(1.0), 1.0)
    assert (health.state(1.0), health.admits(1.0)) == ("half_open", True)


def test_attempt_that_began_before_the_circuit_opened_is_ignored():
    health = healthy()
    good, bad, poor, left = (health.begin(0.0) for _ in range(4))
    fail(health, 0.0)
    trial = health.begin(1.0)
    before = health.weight(1.0)
    health.record_success(good, 1.0)
    health.record_failure(bad, 1.0)
    health.record_request_failure(poor, 1.0)
    health.record_no_outcome(left)
    assert (health.state(1.0), health.admits(1.0), health.weight(1.0)) == ("half_open", False, before)
    assert not health.is_current(good)
    assert health.is_current(trial)


def test_attempt_that_the_circuit_does_not_admit_is_no_trial():
    health = open_circuit()
    health.record_success(health.begin(0.5), 0.5)
    assert health.state(0.5) == "open"
    health.begin(1.0)
    health.record_success(health.begin(1.0), 1.0)
    assert not health.admits(1.0)


def test_attempt_with_a_poor_outcome_is_a_failure_but_opens_no_circuit():
    health = healthy()
    for _ in range(20):
        health.record_request_failure(health.begin(0.0), 0.0)
    assert (health.state(0.0), health.share, health.weight(0.0)) == ("closed", 1.0, 20.0)


def test_attempt_that_breaks_off_after_its_begin_is_a_failure():
    health = healthy()
    attempt = health.begin(0.0)
    health.record_success(attempt, 0.0)
    health.record_failure(attempt, 0.0)
    assert health.share == 0.5


def test_backend_rests_for_a_minute_at_most_without_a_failure():
    health = healthy()
    attempt = health.begin(0.0)
    health.record_no_outcome(attempt)
    health.pause(0.0, 20.0)
    health.pause(0.0, 3.0)
    assert (health.admits(19.0), health.back_in(0.0), health.admits(20.0)) == (False, 20.0, True)
    health.pause(20.0, 3600.0)
    assert health.back_in(20.0) == 60.0
    assert (health.state(20.0), health.weight(20.0)) == ("closed", 0.0)


def test_probe_success_ends_the_pause_and_leaves_the_circuit_half_open():
    health = open_circuit()
    health.record_probe(0.1, succeeded=True)
    assert (health.state(0.1), health.admits(0.1)) == ("half_open", True)
    trial = health.begin(0.1)
    health.record_probe(0.2, succeeded=True)
    health.record_probe(0.2, succeeded=False)
    assert not health.admits(0.2)
    health.record_success(trial, 0.3)
    assert health.state(0.3) == "closed"


def test_probe_failures_open_the_circuit_and_keep_it_open():
    health = healthy()
    health.record_probe(0.0, succeeded=True)
    for _ in range(5):
        assert health.state(0.0) == "closed"
        health.record_probe(0.0, succeeded=False)
    health.record_probe(0.5, succeeded=False)
    assert (health.state(0.5), health.back_in(0.5)) == ("open", 0.5)
    health.record_probe(1.0, succeeded=False)
    assert (health.state(1.0), health.back_in(1.0)) == ("open", 2.0)


def test_health_counts_an_outcome_half_after_ten_seconds():
    health = healthy()
    assert (health.share, health.weight(0.0)) == (0.0, 0.0)
    for _ in range(3):
        health.record_request_failure(health.begin(0.0), 0.0)
    assert (health.share, health.weight(10.0), health.weight(20.0)) == (1.0, 1.5, 0.75)
    health.record_success(health.begin(20.0), 20.0)
    assert isclose(health.share, 0.75 / 1.75)
    assert health.weight(1e6) == 0.0


def test_ejection_lasts_longer_each_time_unless_the_last_was_long_ago():
    health = healthy()
    health.record_request_failure(health.begin(0.0), 0.0)
    health.eject(0.0)
    assert (health.ejected(0.9), health.ejected(1.0), health.admits(0.0), health.share) == (True, False, True, 0.0)
    health.eject(10.0)
    assert (health.ejected(11.9), health.ejected(12.0)) == (True, False)
    health.eject(100.0)
    assert (health.ejected(100.9), health.ejected(101.0)) == (True, False)


class Machine(RuleBasedStateMachine):
    """Random operations: a trial has two seconds for itself, and state and times agree."""

    def __init__(self):
        super().__init__()
        self.health = Health(steady)
        self.now = 0.0
        self.attempts = []
        self.trials = set()
        self.begun = -inf  # the last of them

    @rule(seconds=st.floats(0.0, 40.0))
    def wait(self, seconds):
        self.now += seconds

    @rule()
    def wait_until_it_admits(self):
        self.now += self.health.back_in(self.now) + 1e-6
        assert self.health.admits(self.now) or any(map(self.health.is_current, self.trials))

    @precondition(lambda self: self.health.admits(self.now))
    @rule()
    def begin(self):
        state = self.health.state(self.now)
        attempt = self.health.begin(self.now)
        assert self.health.is_current(attempt)
        self.attempts.append(attempt)
        if state == "half_open":
            self.trials.add(attempt)
            self.begun = self.now

    @precondition(lambda self: not self.health.admits(self.now) and self.health.state(self.now) != "closed")
    @rule()
    def force(self):
        attempt = self.health.begin(self.now)
        assert not self.health.is_current(attempt)
        self.attempts.append(attempt)

    @precondition(lambda self: self.attempts)
    @rule(data=st.data(), outcome=st.sampled_from(["success", "failure", "request_failure", "no_outcome"]))
    def end(self, data, outcome):
        attempt = self.attempts.pop(data.draw(st.integers(0, len(self.attempts) - 1)))
        before, stands = self.health.state(self.now), self.health.is_current(attempt)
        if outcome == "no_outcome":
            self.health.record_no_outcome(attempt)
        else:
            getattr(self.health, f"record_{outcome}")(attempt, self.now)
        after = self.health.state(self.now)
        if not stands:
            assert after == before
        elif attempt in self.trials:
            assert after == {"success": "closed", "failure": "open"}.get(outcome, "half_open")
        self.trials.discard(attempt)

    @rule(times=st.integers(1, 6))
    def fail(self, times):
        for _ in range(times):
            attempt = self.health.begin(self.now)
            self.health.record_failure(attempt, self.now)

    @rule(well=st.booleans())
    def probe(self, well):
        before = self.health.state(self.now)
        self.health.record_probe(self.now, succeeded=well)
        after = self.health.state(self.now)
        allowed = {("open", "half_open")} if well else {("closed", "open"), ("half_open", "open")}
        assert before == after or (before, after) in allowed

    @rule(seconds=st.floats(0.0, 100.0))
    def pause(self, seconds):
        before = self.health.state(self.now)
        self.health.pause(self.now, seconds)
        assert self.health.state(self.now) == before

    @invariant()
    def a_trial_has_time_for_itself(self):
        if any(map(self.health.is_current, self.trials)):
            assert self.now - self.begun >= 2 or not self.health.admits(self.now)
            assert self.health.state(self.now) == "half_open"

    @invariant()
    def state_and_times_agree(self):
        assert self.health.admits(self.now) == (self.health.back_in(self.now) == 0.0)
        assert self.health.back_in(self.now) <= 60.001
        assert not (self.health.state(self.now) == "open" and self.health.admits(self.now))
        assert 0.0 <= self.health.share <= 1.0
        assert self.health.weight(self.now) >= 0.0
        assert not self.health.is_current(AttemptToken(0))


TestMachine = Machine.TestCase
TestMachine.settings = settings(max_examples=examples(100), stateful_step_count=40, deadline=None)


def spent(budget):
    """Spend all retries and return their number."""
    count = 0
    while budget.spend_retry():
        count += 1
    return count


def test_retry_budget_grants_ten_and_one_for_each_fifth_request():
    budget = RetryBudget()
    assert spent(budget) == 10
    for _ in range(4):
        budget.count_first_attempt()
    assert not budget.spend_retry()
    budget.count_first_attempt()
    assert spent(budget) == 1


def test_retry_budget_saves_at_most_ten():
    budget = RetryBudget()
    for _ in range(10_000):
        budget.count_first_attempt()
    assert spent(budget) == 10


@given(st.lists(st.booleans(), max_size=400))
def test_retry_budget_never_exceeds_ten_and_a_fifth_of_the_requests(retried):
    budget, firsts, retries = RetryBudget(), 0, 0
    for again in retried:
        if again:
            retries += budget.spend_retry()
        else:
            budget.count_first_attempt()
            firsts += 1
        assert retries <= 10 + 0.2 * firsts
