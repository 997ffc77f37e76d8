"""Test the tarpit for wrong API keys on a fake clock: delays, slots and reports."""

from collections import Counter, OrderedDict
from ipaddress import IPv6Address

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.server.middleware.auth_throttle import LONGEST, Tarpit, client_network

FREE, FORGIVEN, PLACES, ALL_PLACES, SILENCE = 5, 20.0, 16, 256, 60.0
CLIENTS = st.sampled_from("abcd")
STEPS = st.lists(st.tuples(CLIENTS, st.sampled_from([0.0, 0.5, 7.0, 20.0, 61.0, 500.0]), st.booleans()), max_size=120)


def delays(times, tarpit=None, client="a"):
    """Yield the delays of failures at these times, while no other failure waits."""
    tarpit = tarpit or Tarpit()
    for now in times:
        yield tarpit.register_failure(client, now)
        tarpit.release(client)


def test_tarpit_delay_doubles_after_five_failures_up_to_five_seconds():
    found = list(delays([7.0] * 14))
    assert found == pytest.approx([0] * FREE + [0.1, 0.2, 0.4, 0.8, 1.6, 3.2] + [5.0] * 3)


@settings(deadline=None)
@given(st.integers(1, 500), st.floats(0, 1e6))
def test_tarpit_delay_is_zero_after_160_seconds_without_failure(failures, start):
    tarpit = Tarpit()
    assert max(delays([start] * failures, tarpit)) <= LONGEST
    assert list(delays([start + 160.1], tarpit)) == [0.0]


@settings(deadline=None)
@given(st.lists(st.floats(0, 90), max_size=60))
def test_tarpit_delay_never_grows_with_longer_gaps_between_failures(gaps):
    """The delays are at most those of the same failures all at once; one failure each 20 s has no delay."""
    times = [sum(gaps[:size]) for size in range(len(gaps))]
    assert all(slow <= fast for slow, fast in zip(delays(times), delays([0.0] * len(times)), strict=True))
    assert not any(delays([FORGIVEN * place for place in range(len(gaps))]))


@settings(deadline=None)
@given(STEPS)
def test_tarpit_agrees_with_a_plain_model(steps):
    """Two clients are remembered; each step is a failure, or else the end of the oldest delay of that client."""
    tarpit, now = Tarpit(clients=2), 0.0
    known, waiting = OrderedDict(), Counter()
    for client, passed, fails in steps:
        now += passed
        if fails:
            level, last = known.pop(client, (0.0, now))
            level = min(max(level - (now - last) / FORGIVEN, 0) + 1, 12)
            known[client] = level, now
            if len(known) > 2:
                known.popitem(last=False)
            wanted = 0 if level <= FREE else min(0.1 * 2 ** (level - FREE - 1), LONGEST)
            assert tarpit.register_failure(client, now) == pytest.approx(wanted)
            waiting[client] += 1
        elif waiting[client]:
            tarpit.release(client)
            waiting[client] -= 1
        assert [tarpit.is_full(one) for one in "abcd"] == [waiting[one] >= PLACES for one in "abcd"]
        assert tarpit.is_empty == (not any(waiting.values()))


def test_tarpit_delays_no_failure_beyond_all_its_slots():
    """More delays would take the slots of clients with right keys."""
    tarpit = Tarpit()
    for client in range(ALL_PLACES // PLACES):
        found = [tarpit.register_failure(str(client), 0.0) for _ in range(PLACES)]
        assert tarpit.is_full(str(client)) and found[-1] == LONGEST
    assert not any(tarpit.register_failure("one more", 0.0) for _ in range(PLACES))
    tarpit.release("0")
    for _ in range(PLACES):
        tarpit.release("one more")
    assert tarpit.register_failure("one more", 0.0) == LONGEST


@settings(deadline=None)
@given(st.lists(st.tuples(CLIENTS, st.floats(0, 40)), max_size=80))
def test_tarpit_reports_each_failure_once_and_each_client_once_a_minute(failures):
    tarpit, now = Tarpit(), 0.0
    reported, last = Counter(), {}
    for client, passed in failures:
        now += passed
        list(delays([now], tarpit, client))
        if count := tarpit.failures_to_log(client, now):
            assert now - last.get(client, -SILENCE) >= SILENCE
            reported[client] += count
            last[client] = now
    for client in sorted({client for client, _ in failures}):
        list(delays([now + SILENCE], tarpit, client))
        rest = tarpit.failures_to_log(client, now + SILENCE)
        assert reported[client] + rest == 1 + sum(one == client for one, _ in failures)


@pytest.mark.parametrize(
    ("address", "whose"),
    [
        ("203.0.113.7", "203.0.113.7"),
        ("::ffff:203.0.113.7", "203.0.113.7"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"),
        ("2001:DB8:1:2::", "2001:db8:1:2::/64"),
        ("fe80::1%eth0", "fe80::/64"),
        ("::1", "::/64"),
        ("", ""),
        ("no address\n" * 1000, ("no address\n" * 6)[:64]),
    ],
)
def test_client_network_is_the_address_or_its_64_prefix(address, whose):
    assert client_network(address) == whose


@settings(deadline=None)
@given(st.integers(0, 2**128 - 1), st.integers(0, 2**64 - 1))
def test_client_network_is_the_same_for_a_whole_64_prefix(address, host):
    neighbour = (address >> 64 << 64) | host
    one, other = client_network(str(IPv6Address(address))), client_network(str(IPv6Address(neighbour)))
    assert one == other or address >> 32 == 0xFFFF or neighbour >> 32 == 0xFFFF
