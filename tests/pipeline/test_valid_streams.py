"""Test that no valid stream gets worse: the official SDK makes the same of it with the gateway and without it."""

from random import Random

import pytest

from support import valid_streams
from support.sampling import examples
from support.valid_streams import WAYS, Choice, compared, hunt, verdict

ONE = Choice(0, "Hello", "", [("call_1", "g", '{"n": "5"}')], False)
REPAIRED = ["repaired:tool_calls.function.arguments"]


@pytest.mark.parametrize("wire", ["chunks", "whole", "lines"])
@pytest.mark.parametrize("format", ["native", "hermes_json", "auto"])
@pytest.mark.parametrize("api", ["chat", "responses", "messages"])
def test_valid_stream_means_the_same_behind_the_gateway(wire, format, api):
    random = Random(f"{wire} {format} {api}")
    ways = [way for way in WAYS if (way.wire, way.format, way.api) == (wire, format, api)]
    for _ in range(examples(200)):
        result = compared(random.getrandbits(48), random.choice(ways))
        assert result is None or result.verdict != "worse", result


@pytest.mark.parametrize(
    ("calls", "warnings", "expected"),
    [
        ([("call_1", "g", '{"n": "5"}')], [], "equal"),
        ([("call_1", "g", '{"n": 5}')], REPAIRED, "better"),
        ([("call_1", "g", '{"n": 5}')], [], "worse"),
        ([("call_1", "g", '{"n": 6}')], REPAIRED, "worse"),
        ([("call_2", "g", '{"n": 5}')], REPAIRED, "worse"),
        ([], REPAIRED, "worse"),
    ],
)
def test_verdict_allows_reported_repairs_of_arguments_alone(calls, warnings, expected):
    assert verdict([ONE], [Choice(0, "Hello", "", calls, False)], warnings) == expected


def test_verdict_allows_white_space_that_responses_drop_with_a_warning():
    before, after = ([Choice(0, text, "", [], False)] for text in ("\nHello", "Hello"))
    assert verdict(before, after, ["dropped:content"]) == "reported"
    assert verdict(before, after, []) == "worse"
    assert verdict(before, [Choice(0, "Hell", "", [], False)], ["dropped:content"]) == "worse"


def test_hunt_counts_verdicts_and_keeps_the_streams_that_get_worse(monkeypatch):
    assert hunt(60, 3, 20)[0].total() == 20
    assert hunt(60, 3, 20) == hunt(60, 3, 20)
    monkeypatch.setattr(valid_streams, "verdict", lambda *_: "worse")
    verdicts, worse = hunt(60, 3, 20)
    assert verdicts == {"worse": 20} and len(worse) == 20
