"""Test the report of usage: its days and columns, and its sums."""

from datetime import date

import pytest

from gateway.errors import BadRequest
from gateway.server.observability.usage import UsageQuery, parse_query, usage_report
from gateway.store.records import UsageSums

TODAY = date(2026, 3, 1)


@pytest.mark.parametrize(
    ("since", "until", "by", "query"),
    [
        (None, None, [], UsageQuery(date(2026, 1, 31), TODAY, ("key",))),
        (None, "2026-01-30", ["day"], UsageQuery(date(2026, 1, 1), date(2026, 1, 30), ("day",))),
        ("2025-01-01", None, ["model", "key", "model"], UsageQuery(date(2025, 1, 1), TODAY, ("model", "key"))),
        ("2026-03-01", "2026-03-01", [], UsageQuery(TODAY, TODAY, ("key",))),
        (None, "0001-01-02", [], UsageQuery(date.min, date(1, 1, 2), ("key",))),
    ],
)
def test_usage_query_has_the_last_30_days_by_key_by_default(since, until, by, query):
    assert parse_query(since, until, by, TODAY) == query


@pytest.mark.parametrize(
    ("parameters", "param", "message"),
    [
        (("2026-13-01", None, []), "since", "'since' should be a date like 2026-01-31, not '2026-13-01'."),
        ((None, "", []), "until", "'until' should be a date like 2026-01-31, not ''."),
        (("2026-03-02", None, []), "since", "'since' (2026-03-02) is after 'until' (2026-03-01)."),
        ((None, None, ["key", "hour"]), "by", "'by' should be day, key or model, not 'hour'."),
    ],
)
def test_usage_query_with_a_wrong_parameter_is_refused(parameters, param, message):
    with pytest.raises(BadRequest) as caught:
        parse_query(*parameters, TODAY)
    problem = caught.value.problem
    assert (problem.message, problem.param, problem.code) == (message, param, "invalid_value")


def test_usage_report_has_sums_and_their_total():
    query = UsageQuery(date(1970, 1, 1), date(1970, 1, 3), ("day", "key"))
    assert query.days == (0, 2)
    rows = [((0, ""), UsageSums(1, 10, 4, 5, 1500)), ((2, "ci"), UsageSums(2, 20, 0, 6, 250))]
    assert usage_report(query, rows) == {
        "object": "usage",
        "since": "1970-01-01",
        "until": "1970-01-03",
        "by": ("day", "key"),
        "data": [
            {"day": "1970-01-01", "key": None, "requests": 1, "input_tokens": 10, "cached_tokens": 4,
             "output_tokens": 5, "seconds": 1.5},
            {"day": "1970-01-03", "key": "ci", "requests": 2, "input_tokens": 20, "cached_tokens": 0,
             "output_tokens": 6, "seconds": 0.25},
        ],
        "total": {"requests": 3, "input_tokens": 30, "cached_tokens": 4, "output_tokens": 11, "seconds": 1.75},
    }  # fmt: skip


def test_usage_report_without_requests_is_empty():
    report = usage_report(UsageQuery(TODAY, TODAY, ("model",)), [])
    assert (report["data"], report["total"]["requests"]) == ([], 0)
