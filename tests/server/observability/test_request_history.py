"""Test the counts of the last hour: by minutes, bounded, and added up over workers."""

import pytest

from gateway.server.observability import minute_counts, telemetry
from gateway.server.observability.minute_counts import BackendMinute, MinuteCounts, latency_step, percentile
from gateway.server.observability.snapshot import FailureInfo
from gateway.server.observability.telemetry import RequestHistory
from support.overview import seen


def failure(time):
    return FailureInfo(time, 502, "upstream_error", None)


def test_history_counts_requests_in_the_minute_of_their_end():
    history = RequestHistory()
    history.add(seen(arrived=119.0, duration=2.0, output_tokens=5, ledger={"forwarded": 2}), failed=False)
    history.add(seen(arrived=121.0, duration=0.0, output_tokens=7, ledger={"forwarded": 1}), failed=False)
    history.add(seen(arrived=60.0, first_content=None, backend="", streamed=False), failed=False)
    late, early = history.minutes(3599.0)
    assert (early.number, early.requests, early.first_tokens, early.backends) == (1, 1, {}, {})
    step = latency_step(0.0)
    assert late == MinuteCounts(2, 2, 0, 12, {step: 2}, {"up": BackendMinute(2, 0, {step: 2})}, {("forwarded", "m"): 3})


def test_history_counts_the_first_token_of_a_stream_without_a_backend():
    history = RequestHistory()
    history.add(seen(backend="", first_content=1.0), failed=False)
    (minute,) = history.minutes(100.0)
    assert minute.first_tokens == {latency_step(1.0): 1} and minute.backends == {}


def test_history_groups_equal_errors_with_the_time_of_the_last():
    history = RequestHistory()
    for arrived in (61.0, 63.0, 62.0):
        history.add(seen(arrived=arrived, status=502, error="upstream_lost", message="Gone."), failed=True)
    history.add(seen(arrived=64.0, status=429), failed=True)
    (minute,) = history.minutes(100.0)
    assert minute.errors == 4
    assert minute.groups == {
        (502, "upstream_lost", "Gone.", "m", "up"): (3, 63.0),
        (429, "", "", "m", "up"): (1, 64.0),
    }


def test_history_counts_failed_attempts_of_a_backend():
    history = RequestHistory()
    history.failed("up", failure(60.0))
    history.failed("up", failure(61.0))
    (minute,) = history.minutes(100.0)
    assert minute.backends == {"up": BackendMinute(0, 2, {})} and minute.requests == 0


def test_history_is_bounded(monkeypatch):
    monkeypatch.setattr(telemetry, "_MAX_GROUPS", 2)
    monkeypatch.setattr(telemetry, "MINUTES", 3)
    history = RequestHistory()
    for number in range(4):
        history.add(
            seen(arrived=60.0, status=502, error=f"e{number}", ledger={"dropped": 1}, model=f"m{number}"), failed=True
        )
    (minute,) = history.minutes(100.0)
    assert minute.groups == {
        (502, "e0", "", "m0", "up"): (1, 60.0), (502, "e1", "", "m1", "up"): (1, 60.0), (0, "", "", "", ""): (2, 60.0),
    }  # fmt: skip
    assert minute.warnings == {("dropped", "m0"): 1, ("dropped", "m1"): 1, ("dropped", ""): 2}
    for number in (2, 3, 4):
        history.add(seen(arrived=60.0 * number), failed=False)
    assert [one.number for one in history.minutes(240.0)] == [2, 3, 4]
    assert [one.number for one in history.minutes(330.0)] == [3, 4], "older minutes are not shown"


def test_history_of_workers_adds_up():
    groups = [
        {(502, "a", "", "m", "up"): (1, 5.0)},
        {(502, "a", "", "m", "up"): (2, 3.0), (429, "b", "", "", ""): (1, 1.0)},
    ]
    assert minute_counts.sum_groups(groups) == {(502, "a", "", "m", "up"): (3, 5.0), (429, "b", "", "", ""): (1, 1.0)}
    assert minute_counts.sum_counts([{1: 2}, {1: 3, 2: 1}]) == {1: 5, 2: 1}
    assert minute_counts.sum_counts([]) == {}


@pytest.mark.parametrize(("share", "expected"), [(0.5, 0.4), (0.95, 2.0), (1.0, 2.0)])
def test_history_percentile_is_close(share, expected):
    counts = minute_counts.sum_counts({latency_step(seconds): 1} for seconds in (0.1, 0.4, 0.4, 2.0))
    assert percentile(counts, share) == pytest.approx(expected, rel=0.03)


def test_history_percentile_of_nothing_is_unknown():
    assert percentile({}, 0.5) is None
