"""What a thousand backends and a hundred thousand requests come to (simulation.py)."""

from statistics import mean, pstdev

import pytest

from support.routing_simulation import BACKENDS, PHASES, RATE, REQUESTS, SERVICE, Simulation

STEADY, DYING, BACK = PHASES


@pytest.fixture(scope="module")
def done():
    return Simulation().run()


def test_every_request_has_come_to_an_end(done):
    assert sum(phase.requests for phase in done.phases.values()) == REQUESTS
    assert all(one.member.load.running == 0 and not one.tries for one in done.backends)


@pytest.mark.parametrize("phase", PHASES)
def test_nobody_has_far_more_to_do_than_others(done, phase):
    loads = done.loads(phase)
    assert len(loads) == BACKENDS // 2 if phase == DYING else BACKENDS
    assert pstdev(loads) / mean(loads) <= 0.35
    assert max(loads) / mean(loads) <= 3.5


def test_the_load_is_what_was_asked_for(done):
    weights = sum(one.member.weight for one in done.backends)
    assert mean(done.loads(STEADY)) == pytest.approx(RATE * SERVICE / weights, rel=0.1)


def test_keys_stay_at_their_backends(done):
    assert done.phases[STEADY].kept / done.phases[STEADY].keyed >= 0.9


def test_keys_of_backends_that_live_stay_when_others_die(done):
    assert done.phases[DYING].kept / done.phases[DYING].keyed >= 0.95


def test_few_clients_are_told_of_the_deaths_and_none_of_anything_else(done):
    assert [done.phases[phase].failed for phase in (STEADY, BACK)] == [0, 0]
    assert [done.phases[phase].cut for phase in (STEADY, BACK)] == [0, 0]
    assert done.phases[DYING].failed / done.phases[DYING].requests <= 0.06
    assert done.phases[DYING].cut <= RATE * SERVICE / 2


def test_retries_make_no_storm(done):
    assert REQUESTS < done.attempts <= 1.2 * REQUESTS + 10
    for phase in PHASES:
        assert done.phases[phase].attempts <= 1.2 * done.phases[phase].requests + 10


def test_within_a_minute_of_their_return_they_answer_again(done):
    assert done.back_after(0.95) <= 60
    assert done.back_after(1.0) is not None


def test_the_table_has_a_row_for_each_phase(done):
    head, line, *rows = done.table()
    assert [row.split("|")[1].strip() for row in rows] == [*PHASES]
    assert {row.count("|") for row in (head, line, *rows)} == {head.count("|")}
