"""Test the pace of a request's output."""

import pytest

from gateway.server.admin.exchange_times import OutputPace
from gateway.server.admin.exchange_view import describe_pace, draw_pace

PACE = OutputPace(bars=[1, 0, 2, 0], first_byte=0.1, silences=[(0.2, 2.5), (2.6, 3.8)])


@pytest.mark.parametrize(
    ("pace", "line", "live", "words"),
    [
        (PACE, {}, False, "first byte after 0.10 s · 3 pieces · silent 2 ×, for 2.30 s at most · duration 4.00 s"),
        (OutputPace(), {}, True, "no byte yet · duration 4.00 s"),
        (OutputPace(), {"output_tokens": 12, "first_content": 1.0}, False, "no byte · 12 tokens, 4 a second · duration 4.00 s"),
        (OutputPace(), {"output_tokens": 12}, False, "no byte · 12 tokens, 3 a second · duration 4.00 s"),
        (OutputPace(), {"output_tokens": 12, "first_content": 4.0}, False, "no byte · duration 4.00 s"),
    ],
)  # fmt: skip
def test_pace_is_described(pace, line, live, words):
    assert describe_pace(pace, 4.0, line, live=live) == words


def test_pace_of_a_long_request_has_no_hundredths():
    assert describe_pace(OutputPace(), 90.4, {}, live=False).endswith("duration 90 s")


def test_pace_is_drawn():
    assert draw_pace(PACE, 4.0) == {
        "stall": "M30 60v-60h345V60zM390 60v-60h180V60z",
        "piece": "M0 60v-30h149V60zM300 60v-60h149V60z",
        "first": "M15 60v-60h2V60z",
    }


def test_pace_without_output_is_an_empty_picture():
    assert draw_pace(OutputPace(), 0.0) == {"stall": "", "piece": "", "first": ""}
    assert draw_pace(OutputPace(first_byte=9.0), 4.0)["first"] == "M598 60v-60h2V60z"
