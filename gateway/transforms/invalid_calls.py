"""Hold tool calls back until the end of their round, so that a round with invalid arguments can be repeated.

The policy `enforce.arguments: retry` enables this.  All calls of a round wait, with everything after them: the calls
of the next round replace them, and no call may run twice.
"""

from collections.abc import Iterable

from gateway.errors import ENDS
from gateway.events import (
    Event,
    ExtraField,
    Failure,
    Finish,
    ReasoningDelta,
    TextDelta,
    ToolArgsDelta,
    ToolCallEnd,
    ToolCallStart,
    ToolInputDelta,
    Usage,
)
from gateway.request import Request
from gateway.transforms.output_validation import FailedOutput
from gateway.warnings import Warnings

SUBJECT = "tool_calls.function.arguments"
_WELL = ("stop", "tool_calls")
_CODES = ("invalid", "repaired", "forwarded", "synthesised")  # of warnings about tool calls


class HeldCalls:
    """Hold tool calls back until their round ends.

    limit: characters that may wait.
    before: the attempt before this one, if this is the retry.
    failed: this attempt, if it is to be repeated.
    """

    def __init__(self, request: Request, ledger: Warnings, limit: int, before: FailedOutput | None) -> None:
        self._request, self._ledger, self._room, self._before = request, ledger, limit, before
        self._mark = ledger.savepoint()
        self._held: list[Event] = []
        self._entries: tuple[str, ...] = ()
        self._waits, self._invalid = True, False
        self.failed: FailedOutput | None = None

    def feed(self, event: Event) -> Iterable[Event]:
        """Return the events that the client may have now."""
        if isinstance(event, Usage | ExtraField):
            return (event,)
        if isinstance(event, Failure):
            return self._fail(event)
        if isinstance(event, Finish):
            return self._finish(event)
        if not (self._held or (self._waits and isinstance(event, ToolCallStart))):
            return (event,)
        return self._hold(event)

    def close(self) -> Iterable[Event]:
        """Return no events: a Finish or a Failure has released them."""
        return ()

    def retry_request(self) -> Request:
        """Return the request for the retry: the same one."""
        return self._request

    def _hold(self, event: Event) -> Iterable[Event]:
        self._held.append(event)
        if isinstance(event, ToolCallEnd) and not (event.complete and event.fits):
            self._invalid = True
            self._entries += self._taken()
        self._room -= _size(event)
        if self._room >= 0:
            return ()
        self._waits = False
        return self._released()

    def _finish(self, finish: Finish) -> Iterable[Event]:
        invalid = self._invalid and self._waits and finish.reason in _WELL
        if invalid and not self._before:
            self.failed = FailedOutput((*self._held, finish), subject=SUBJECT, entries=self._entries)
            return ()
        if self._before and not invalid:
            self._ledger.add("emulated", SUBJECT)
        return (*self._released(), finish)

    def _fail(self, failure: Failure) -> Iterable[Event]:
        """Return the tool calls of the attempt before if this one has none, else the failure."""
        if self._before and self._waits and failure.problem not in ENDS:
            self._ledger.put(self._before.entries)
            return self._before.events
        return (*self._released(), failure)

    def _released(self) -> Iterable[Event]:
        held, self._held = self._held, []
        self._ledger.put(self._entries)
        return held

    def _taken(self) -> tuple[str, ...]:
        """Remove and return the warnings about the tool calls that wait."""
        return tuple(entry for code in _CODES for entry in self._ledger.take(self._mark, f"{code}:tool_calls"))


def _size(event: Event) -> int:
    if isinstance(event, ToolArgsDelta):
        return len(event.json)
    return len(event.text) if isinstance(event, TextDelta | ReasoningDelta | ToolInputDelta) else 0
