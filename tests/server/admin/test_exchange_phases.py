"""Test the time axis of a request."""

from msgspec.structs import replace

from gateway.server.admin.exchange_times import AttemptTimes, ExchangeTimes, PartTimes
from gateway.server.admin.exchange_view import phases, time_axis

CALL = AttemptTimes(1, "up", "m", "/v1/chat/completions", 0.1)


def rows(times, duration=2.0, *, live=False):
    return [(one.name, one.note, one.look, one.start, one.end) for one in phases(times, duration, live=live)]


def part(kind, start, end, name=""):
    return PartTimes(kind, name, 0, 5, start, end)


def test_phases_of_a_request_without_a_backend_are_those_of_the_gateway():
    assert rows(ExchangeTimes(end=0.5)) == [("Gateway", "", "queue", 0.0, 0.5)]
    assert rows(ExchangeTimes(prepared=0.2), live=True) == [("Gateway", "", "queue", 0.0, 0.2)]


def test_phases_of_a_call_follow_each_other():
    call = replace(CALL, sent=0.3, connected=0.4, first_byte=0.6, ended=1.9, status=200)
    parts = [part("reasoning", 0.8, 1.0), part("text", 1.0, 1.5), part("tool_call", 1.5, 1.8, "f")]
    assert rows(ExchangeTimes(attempts=[call], parts=parts, first_token=0.8, end=2.0)) == [
        ("Gateway", "", "queue", 0.0, 0.1),
        ("Queue", "up", "queue", 0.1, 0.3),
        ("Connect", "up", "queue", 0.3, 0.4),
        ("Until first byte", "up", "wait", 0.4, 0.6),
        ("Until first token", "", "wait", 0.6, 0.8),
        ("Reasoning", "", "reasoning", 0.8, 1.0),
        ("Text", "", "text", 1.0, 1.5),
        ("Tool call", "f", "call", 1.5, 1.8),
        ("End", "", "queue", 1.8, 2.0),
    ]


def test_phases_of_a_failed_attempt_name_its_failure_and_the_wait_behind_it():
    failed = replace(CALL, ended=0.5, status=500, error="server_error")
    second = replace(CALL, call=2, started=0.9, wait=0.4, first_byte=1.0, ended=1.1)
    assert rows(ExchangeTimes(attempts=[failed, second], first_token=1.0, end=1.2))[1:] == [
        ("Until the end", "up, attempt 1: 500 server_error", "bad", 0.1, 0.5),
        ("Wait before the attempt", "", "queue", 0.5, 0.9),
        ("Until first byte", "up, attempt 2", "wait", 0.9, 1.0),
        ("End", "", "queue", 1.1, 1.2),
    ]


def test_phases_of_a_running_request_end_now():
    assert rows(ExchangeTimes(attempts=[CALL]), live=True)[1:] == [("Until the end", "up", "wait", 0.1, 2.0)]
    assert rows(ExchangeTimes(attempts=[replace(CALL, error="timeout")], end=3.0))[1:] == [
        ("Until the end", "up:  timeout", "bad", 0.1, 3.0),
        ("End", "", "queue", 0.0, 3.0),
    ]


def test_phases_have_one_row_for_the_parts_beyond_forty():
    parts = [part("text", float(n), n + 1.0) for n in range(43)]
    found = rows(ExchangeTimes(attempts=[CALL], parts=parts), live=True)
    assert len(found) == 2 + 40 + 1 and found[-1] == ("3 further parts", "", "text", 40.0, 43.0)


def test_time_axis_has_ticks_and_places_in_percent():
    axis = time_axis(ExchangeTimes(attempts=[replace(CALL, first_byte=0.1004)], end=2.0), 2.0, live=False)
    assert axis.ticks == [(0.0, "0"), (25.0, "500 ms"), (50.0, "1.00 s"), (75.0, "1.50 s")]
    assert [(one.start, one.width, one.ended, one.took) for one in axis.rows] == [
        (0.0, 5.0, "100 ms", "100 ms"),
        (5.0, 0.4, "100 ms", "< 1 ms"),
        (0.0, 100.0, "2.00 s", "2.00 s"),
    ]


def test_time_axis_of_hours_has_five_steps_and_one_of_nothing_has_none():
    assert len(time_axis(ExchangeTimes(end=36_000.0), 0.0, live=False).ticks) == 5
    nothing = time_axis(ExchangeTimes(end=0.0), 0.0, live=False)
    assert nothing.rows[0].took == "0 ms" and nothing.ticks[0] == (0.0, "0")


def test_time_axis_shows_a_phase_at_its_very_end():
    (_, _, end) = time_axis(
        ExchangeTimes(attempts=[replace(CALL, first_byte=20.0, ended=20.0)], end=20.0), 20.0, live=False
    ).rows
    assert (end.start, end.width, end.ended) == (99.6, 0.4, "20.0 s")
