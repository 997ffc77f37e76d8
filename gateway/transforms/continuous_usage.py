"""Estimate the usage after each chunk, if the backend counts only at the end.

The client requests it with `stream_options.continuous_usage_stats`.
"""

from collections.abc import Callable, Iterable

from gateway.events import (
    Event,
    ExtraField,
    Failure,
    ReasoningDelta,
    RefusalDelta,
    TextDelta,
    ToolArgsDelta,
    ToolInputDelta,
    Usage,
)
from gateway.warnings import Warnings


class Continuous:
    """Add estimated usage before each event; the last filter of a round.

    prompt: returns the tokens of the prompt.
    tokens: returns the tokens of a number of characters.
    """

    def __init__(self, prompt: Callable[[], int], tokens: Callable[[int], int], ledger: Warnings) -> None:
        self._prompt, self._tokens, self._ledger = prompt, tokens, ledger
        self._characters = 0
        self._counted: Usage | None = None  # the backend's count, or the estimated prompt

    def feed(self, event: Event) -> Iterable[Event]:
        """Return the event after its usage, unless the backend has counted a part of the response."""
        if isinstance(event, Usage):
            self._counted = event
        counts = self._counted is not None and self._counted.completion > 0
        silent = isinstance(event, Usage | Failure) or (isinstance(event, ExtraField) and not event.asked)
        if counts or silent:  # the backend counts, or the event has no chunk of its own
            return (event,)
        counted = self._counted = self._counted or Usage(self._prompt(), 0)
        self._characters += _size(event)
        self._ledger.add("estimated", "usage")
        return Usage(
            counted.prompt, self._tokens(self._characters), counted.cached, cache_written=counted.cache_written
        ), event

    def close(self) -> Iterable[Event]:
        """Return no events."""
        return ()


def _size(event: Event) -> int:
    match event:
        case TextDelta() | ReasoningDelta() | RefusalDelta() | ToolInputDelta():
            return len(event.text)
        case ToolArgsDelta():
            return len(event.json)
    return 0
