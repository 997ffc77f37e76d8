"""Say in one sentence what became of a request.  A failed or unfinished request is never "unchanged"."""

from collections.abc import Sequence

from msgspec import Struct

from gateway.pipeline.format_mismatch import FormatGuess
from gateway.recording import ExchangeSummary, RecordedResponse
from gateway.server.admin.exchange_failure import FailureView
from gateway.server.admin.exchange_times import ExchangeTimes


class RequestVerdict(Struct, frozen=True):
    """The outcome of a request in words.  look: ok, info, warn or bad; support: a second sentence.

    link: the part of the page that says why; format: one that may read the response.  Both can be "".
    """

    look: str
    title: str
    support: str = ""
    link: str = ""
    format: str = ""


_NO_END = RequestVerdict(
    "warn", "The response has no end.", "The recording has no finish reason of a choice.", "#stream"
)
_TOO_LONG = RequestVerdict(
    "warn",
    "The token limit cut the response off.",
    "Raise the limit of the request, or shorten the conversation.",
    "#conversation",
)
_CUT = RequestVerdict(
    "info", "The response is complete, and its recording is not.", "It exceeds recording.exchange_bytes."
)
_UNCHANGED = RequestVerdict("ok", "The response is complete, and the gateway passed all parts on unchanged.")
_LEFT = "The client disconnected before the response was complete."


def request_verdict(
    request: ExchangeSummary, times: ExchangeTimes, failure: FailureView | None, began: int | None
) -> RequestVerdict:
    """Return what the steps of a request say.  began: the status that the client received."""
    if request.live:
        return RequestVerdict("info", "The request is running.", _progress(request, times))
    return _failed(failure, began) if failure else _complete(request)


def response_verdict(response: RecordedResponse, likely: Sequence[FormatGuess], read: str) -> RequestVerdict | None:
    """Return what a response says that came whole; None if it is as it should be.

    likely: formats whose markup the text has; read: the format that read it.
    """
    if likely:
        return _unread(likely[0], read)
    ends = [choice.finish_reason for choice in response.choices]
    if None in ends:
        return _NO_END
    return _TOO_LONG if "length" in ends else None


def _progress(request: ExchangeSummary, times: ExchangeTimes) -> str:
    if times.first_token is not None:
        return "The model generates output."
    if not times.attempts:
        return "The gateway prepares the request."
    if times.attempts[-1].first_byte is not None:
        return "The backend has responded, and no token has come."
    at = f" of backend '{request.backend}'" if request.backend else ""
    return f"The gateway waits for the response{at}."


def _failed(failure: FailureView, began: int | None) -> RequestVerdict:
    if failure.status == 499:
        return RequestVerdict("warn", _LEFT, failure.message, "#stream")
    cut = bool(began and began < 400)
    if failure.upstream_status:
        received = "a response that breaks off" if cut else str(failure.status)
        refused = f"Backend '{failure.backend}' returned HTTP {failure.upstream_status}"
        title = f"{refused}, and the client received {received}."
    elif cut:
        title = f"The response broke off with {failure.code}."
    else:
        title = f"The request failed with {failure.status} {failure.code}."
    return RequestVerdict("bad", title, failure.message, "#failure")


def _unread(likely: FormatGuess, read: str) -> RequestVerdict:
    found = f"The format {likely.format} reads a tool call in it."
    support = (
        f"The text was read as {read}. {found}"
        if likely.calls
        else f"The text was read as {read}, and no format reads a call of an offered tool in it."
    )
    title = f"No tool was called, but the text has the markup of {likely.format}."
    return RequestVerdict("warn", title, support, format=likely.format)


def _complete(request: ExchangeSummary) -> RequestVerdict:
    count = "1 warning" if len(request.ledger) == 1 else f"{len(request.ledger)} warnings"
    if warning := next((one for one in request.warnings if one.severity == "warn"), None):
        title = f"The response is complete, with {count}: {warning.title}."
        return RequestVerdict("warn", title, warning.meaning, "#warnings")
    if request.cut:
        return _CUT
    if request.ledger:
        return RequestVerdict("ok", "The response is complete.", f"The gateway reports {count}.", "#warnings")
    return _UNCHANGED
