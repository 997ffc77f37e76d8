"""Test the view of the last hour, and the states of backends that follow from it."""

import pytest

from gateway.server.admin import hour
from gateway.server.admin.hour import BackendHourView, ErrorGroupView, WarningCountView, backend_hour, hour_view
from gateway.server.admin.overview import backend_state
from gateway.server.observability.minute_counts import BackendMinute, MinuteCounts, latency_step
from gateway.server.observability.snapshot import BackendCondition, FailureInfo

NOW = 60 * 1000 + 30.0
FIRST = latency_step(0.4)


def test_hour_has_sixty_minutes_and_their_sums_over_workers():
    one = MinuteCounts(1000, 3, 1, 30, {FIRST: 2})
    other = MinuteCounts(1000, 1, 0, 5, {latency_step(2.0): 1})
    view = hour_view([one, other, MinuteCounts(941, 2), MinuteCounts(940, 9), MinuteCounts(1001, 9)], NOW)
    assert [minute.time for minute in view.minutes] == [60 * number for number in range(941, 1001)]
    last = view.minutes[-1]
    assert (last.requests, last.errors, last.output_tokens) == (4, 1, 35)
    assert last.first_token_median == pytest.approx(0.4, rel=0.03) and last.first_token_p95 == pytest.approx(
        2, rel=0.03
    )
    assert view.minutes[0].requests == 2 and view.minutes[0].first_token_median is None
    assert (view.requests, view.failed_requests, view.output_tokens) == (6, 1, 35)
    assert view.first_token_median == last.first_token_median and view.first_token_p95 == last.first_token_p95


def test_hour_lists_the_most_frequent_errors_first():
    view = hour_view(
        [
            MinuteCounts(999, groups={(502, "a", "Gone.", "m", "up"): (2, 5.0), (429, "", "", "", ""): (1, 9.0)}),
            MinuteCounts(1000, groups={(502, "a", "Gone.", "m", "up"): (1, 7.00049)}),
        ],
        NOW,
    )
    assert view.errors == [
        ErrorGroupView(502, "a", "Gone.", "m", "up", 3, 7.0),
        ErrorGroupView(429, None, None, "", "", 1, 9.0),
    ]


def test_hour_lists_warnings_that_clients_notice_first():
    counts = [
        {("forwarded", "m"): 9, ("dropped", "m"): 1},
        {("dropped", "m"): 1, ("dropped", "n"): 3, ("moved", "m"): 1},
    ]
    view = hour_view([MinuteCounts(1000, warnings=one) for one in counts], NOW)
    assert view.warnings == [
        WarningCountView("dropped", "Parts left out", "warn", "n", 3),
        WarningCountView("dropped", "Parts left out", "warn", "m", 2),
        WarningCountView("forwarded", "Parts passed on", "info", "m", 9),
    ]


def test_hour_lists_are_bounded(monkeypatch):
    monkeypatch.setattr(hour, "_MAX", 1)
    groups = {(502, name, "", "m", "up"): (1, 5.0) for name in "ab"}
    view = hour_view([MinuteCounts(1000, groups=groups, warnings={("dropped", name): 1 for name in "ab"})], NOW)
    assert len(view.errors) == len(view.warnings) == 1


def test_hour_of_a_backend_has_its_own_requests_and_failures():
    minutes = [
        MinuteCounts(985, backends={"up": BackendMinute(1, 1), "other": BackendMinute(9, 9)}),
        MinuteCounts(1000, backends={"up": BackendMinute(2, 1, {FIRST: 1})}),
        MinuteCounts(1000, backends={"other": BackendMinute(9)}),
    ]
    view = backend_hour(minutes, "up", NOW)
    assert (len(view.minutes), view.minutes[-1], view.minutes[-16]) == (60, 2, 1)
    assert (view.requests, view.errors, view.recent_requests, view.recent_errors) == (3, 2, 2, 1)
    assert view.first_token_median == pytest.approx(0.4, rel=0.03)
    assert backend_hour([], "up", NOW).first_token_median is None


WELL = BackendCondition("closed", True, 0.0, 0, None)
BAD = FailureInfo(1.0, 502, "upstream_error", None)
NONE_LISTED = "Backend 'up' did not list its models: connection refused; is the server running?"


@pytest.mark.parametrize(
    ("problem", "condition", "counts", "expected"),
    [
        (None, WELL, {}, ("healthy", None)),
        (None, WELL, {"recent_requests": 100, "recent_errors": 5}, ("healthy", None)),
        (
            None, WELL, {"recent_requests": 100, "recent_errors": 6},
            ("degraded", "6 attempts at http://up failed in the last 10 minutes."),
        ),
        (
            None, BackendCondition("closed", True, 0.0, 0, BAD), {"recent_requests": 0, "recent_errors": 1},
            ("degraded", "1 attempt at http://up failed in the last 10 minutes. The last error: 502 upstream_error."),
        ),
        (NONE_LISTED, WELL, {}, ("unreachable", f"{NONE_LISTED} Its address is http://up.")),
        (NONE_LISTED, WELL, {"recent_requests": 1}, ("degraded", f"{NONE_LISTED} Its address is http://up.")),
        (
            None, BackendCondition("open", False, 12.3, 0, FailureInfo(1.0, 502, "x", "It is gone.")), {},
            ("unreachable", "Attempts at http://up failed repeatedly. It is gone. The next attempt is possible in 12 s."),
        ),
        (
            None, BackendCondition("half_open", False, 0.0, 0, FailureInfo(1.0, 504, None, None)), {},
            ("unreachable", "Attempts at http://up failed repeatedly. The last error: 504. The next attempt is possible now."),
        ),
    ],
)  # fmt: skip
def test_backend_state_is_a_word_with_its_cause(problem, condition, counts, expected):
    assert backend_state("http://up", problem, condition, BackendHourView(**counts)) == expected
