"""Test the sentence about a request."""

import pytest
from msgspec.structs import replace

from gateway.code_texts import describe
from gateway.pipeline.format_mismatch import FormatGuess
from gateway.recording import ExchangeSummary, RecordedResponse
from gateway.recording.response import RecordedChoice
from gateway.server.admin.exchange_failure import FailureView
from gateway.server.admin.exchange_times import AttemptTimes, ExchangeTimes
from gateway.server.admin.exchange_verdict import request_verdict, response_verdict

DONE = ExchangeSummary(
    id="1", started="", endpoint="/v1/chat/completions", model="m", backend="up", format="auto", live=False, status=200,
    error=None, first_byte=0.1, duration=1.0, output_tokens=2, ledger=[], entries=9, bytes=900, cut=False,
)  # fmt: skip
LIVE = replace(DONE, live=True, status=None)
CALL = AttemptTimes(1, "up", "m", "/v1/chat/completions", 0.1)
WAITS = ExchangeTimes(attempts=[CALL])
READS = ExchangeTimes(attempts=[replace(CALL, first_byte=0.2)])
FAILED = FailureView(
    status=502, code="upstream_error", message="No memory.", backend="up", upstream_status=500, content_type="",
    body="", cut=None, n=None, sent="", advice="", equal=1,
)  # fmt: skip
INNER = replace(FAILED, upstream_status=None)


@pytest.mark.parametrize(
    ("times", "backend", "support"),
    [
        (ExchangeTimes(), "", "The gateway prepares the request."),
        (WAITS, "up", "The gateway waits for the response of backend 'up'."),
        (WAITS, "", "The gateway waits for the response."),
        (READS, "up", "The backend has responded, and no token has come."),
        (replace(READS, first_token=0.3), "up", "The model generates output."),
    ],
)
def test_verdict_on_a_running_request_names_its_step(times, backend, support):
    found = request_verdict(replace(LIVE, backend=backend), times, None, None)
    assert (found.look, found.title, found.support) == ("info", "The request is running.", support)


@pytest.mark.parametrize(
    ("failure", "began", "title"),
    [
        (FAILED, None, "Backend 'up' returned HTTP 500, and the client received 502."),
        (FAILED, 200, "Backend 'up' returned HTTP 500, and the client received a response that breaks off."),
        (INNER, 200, "The response broke off with upstream_error."),
        (INNER, 502, "The request failed with 502 upstream_error."),
    ],
)
def test_verdict_on_a_failure_says_what_the_client_received(failure, began, title):
    found = request_verdict(DONE, READS, failure, began)
    assert (found.look, found.title, found.support, found.link) == ("bad", title, "No memory.", "#failure")


def test_verdict_on_a_client_that_left_is_no_failure():
    found = request_verdict(DONE, READS, replace(FAILED, status=499), 200)
    assert (found.look, found.link) == ("warn", "#stream") and found.title.startswith("The client disconnected")


def warned(*ledger):
    return replace(DONE, ledger=[*ledger], warnings=[*map(describe, ledger)])


@pytest.mark.parametrize(
    ("request_", "look", "title", "support", "link"),
    [
        (DONE, "ok", "The response is complete, and the gateway passed all parts on unchanged.", "", ""),
        (replace(DONE, cut=True), "info", "The response is complete, and its recording is not.", "It exceeds", ""),
        (warned("forwarded:x"), "ok", "The response is complete.", "The gateway reports 1 warning.", "#warnings"),
        (
            warned("forwarded:x", "forwarded:y"),
            "ok",
            "The response is complete.",
            "The gateway reports 2 warnings.",
            "#warnings",
        ),
        (
            warned("forwarded:x", "dropped:n"),
            "warn",
            f"The response is complete, with 2 warnings: {describe('dropped:n').title}.",
            describe("dropped:n").meaning,
            "#warnings",
        ),
    ],
)
def test_verdict_on_a_complete_request_names_its_warnings(request_, look, title, support, link):
    found = request_verdict(request_, READS, None, 200)
    assert (found.look, found.title, found.link) == (look, title, link) and found.support.startswith(support)


def response(*ends):
    choices = [RecordedChoice(finish_reason=end) for end in ends]
    return RecordedResponse(200, None, None, choices, None, [])


def test_verdict_on_a_response_is_none_if_all_is_well():
    assert response_verdict(response("stop"), [], "auto") is response_verdict(response(), [], "auto") is None


@pytest.mark.parametrize(
    ("ends", "title"),
    [(("stop", None), "The response has no end."), (("stop", "length"), "The token limit cut the response off.")],
)
def test_verdict_on_a_response_without_its_end_is_a_warning(ends, title):
    found = response_verdict(response(*ends), [], "auto")
    assert found and (found.look, found.title) == ("warn", title)


@pytest.mark.parametrize(
    ("calls", "support"),
    [
        (True, "The format mistral reads a tool call in it."),
        (False, "no format reads a call of an offered tool in it."),
    ],
)
def test_verdict_on_an_unread_call_names_the_format(calls, support):
    found = response_verdict(response("stop"), [FormatGuess("mistral", calls)], "native")
    assert found and found.format == "mistral" and "read as native" in found.support and found.support.endswith(support)
