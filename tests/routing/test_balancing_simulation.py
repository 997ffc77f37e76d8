"""Check the balancer in a simulation of up to 1000 backends and 100,000 requests (support/routing_simulation.py)."""

from statistics import mean, pstdev

import pytest

from support.routing_simulation import BACKENDS, PHASES, RATE, REQUESTS, SERVICE, Simulation

STEADY, DYING, BACK = PHASES
pytestmark = pytest.mark.timeout(600)  # the simulation is 10 s of one core, and a machine may have more to do


@pytest.fixture(scope="module")
def done():
    return Simulation().run()


def test_simulation_ends_every_request(done):
    assert sum(phase.requests for phase in done.phases.values()) == REQUESTS
    assert all(one.member.load.total == 0 and not one.tries for one in done.backends)


@pytest.mark.parametrize("phase", PHASES)
def test_simulation_spreads_load_evenly(done, phase):
    loads = done.loads(phase)
    assert len(loads) == BACKENDS // 2 if phase == DYING else BACKENDS
    assert pstdev(loads) / mean(loads) <= 0.35
    assert max(loads) / mean(loads) <= 3.5


def test_simulation_load_matches_the_request_rate(done):
    weights = sum(one.member.weight for one in done.backends)
    assert mean(done.loads(STEADY)) == pytest.approx(RATE * SERVICE / weights, rel=0.1)


def test_simulation_keeps_sticky_keys_at_their_backends(done):
    assert done.phases[STEADY].kept / done.phases[STEADY].keyed >= 0.9


def test_simulation_keeps_sticky_keys_of_live_backends(done):
    assert done.phases[DYING].kept / done.phases[DYING].keyed >= 0.95


def test_simulation_fails_few_requests_and_only_during_the_outage(done):
    assert [done.phases[phase].failed for phase in (STEADY, BACK)] == [0, 0]
    assert [done.phases[phase].cut for phase in (STEADY, BACK)] == [0, 0]
    assert done.phases[DYING].failed / done.phases[DYING].requests <= 0.06
    assert done.phases[DYING].cut <= RATE * SERVICE / 2


def test_simulation_limits_retries_to_a_fifth_of_the_requests(done):
    assert REQUESTS < done.attempts <= 1.2 * REQUESTS + 10
    for phase in PHASES:
        assert done.phases[phase].attempts <= 1.2 * done.phases[phase].requests + 10


def test_simulation_uses_recovered_backends_within_a_minute(done):
    assert done.back_after(0.95) <= 60
    assert done.back_after(1.0) is not None


def test_simulation_table_has_a_row_for_each_phase(done):
    head, line, *rows = done.table()
    assert [row.split("|")[1].strip() for row in rows] == [*PHASES]
    assert {row.count("|") for row in (head, line, *rows)} == {head.count("|")}
