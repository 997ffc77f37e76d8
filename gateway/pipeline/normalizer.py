"""Keep the promise of events.py, whatever a backend sends: one order, one open call, one Finish per choice."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

from gateway.errors import Problem
from gateway.events import Event, ExtraField, Failure, Finish, TextDelta, Usage, are_texts
from gateway.pipeline.choice import ChoiceNormalizer
from gateway.pipeline.tool_calls import ParserSettings

_REASONS = {
    **dict.fromkeys(
        ("stop", "eos", "eos_token", "end_turn", "stop_sequence", "word", "eom", "eom_id", "complete",
         "end", "repetition", "load", "unload", "pause_turn", "compaction"),
        "stop",
    ),
    **dict.fromkeys(("tool_calls", "tool_use", "tool_call", "function_calls", "function_call"), "tool_calls"),
    **dict.fromkeys(
        ("length", "max_tokens", "limit", "max_output_tokens", "model_length", "max_model_len", "context_length",
         "num_predict", "max_length", "model_context_window_exceeded"),
        "length",
    ),
    **dict.fromkeys(
        ("content_filter", "safety", "refusal", "sensitive", "blocklist", "recitation", "guardrail"), "content_filter"
    ),
}  # fmt: skip
_FAILED = frozenset(
    ("abort", "cancelled", "connection_closed", "error", "insufficient_system_resource", "network_error")
)


@dataclass(slots=True, eq=False)
class Normalizer:
    """Take raw events, and return events in the order that events.py promises."""

    _settings: ParserSettings
    _choices: dict[int, ChoiceNormalizer] = field(default_factory=dict)
    _ids: set[str] = field(default_factory=set)  # of tool calls
    _closed: bool = False  # all choices have ended
    failed: bool = False

    def has_finished(self, least: int = 1) -> bool:
        """Return True if at least `least` choices have begun, and each of them has a finish reason."""
        return len(self._choices) >= least and all([choice.reason for choice in self._choices.values()])

    @property
    def is_empty(self) -> bool:
        """True if no choice has begun."""
        return not self._choices

    @property
    def thought(self) -> int:
        """The number of characters of reasoning so far."""
        return sum([choice.thought for choice in self._choices.values()])

    @property
    def calls(self) -> int:
        """The number of tool calls so far."""
        return sum([choice.calls for choice in self._choices.values()])

    def passes_unchanged(self, event: Event) -> bool:
        """Return True if `feed` would return just this event, without further effect."""
        if type(event) is not TextDelta:
            return False
        choice = self._choices.get(event.choice)
        return choice is not None and choice.passes_text

    def feed(self, event: Event) -> Iterable[Event]:
        """Return the events that the client may have now; none after a failure."""
        if self.failed:
            return ()
        if arm := self._arms.get(type(event)):
            return arm(self, event)
        choice_event: Any = event  # any event of a choice
        return (self._choices.get(choice_event.choice) or self._open(choice_event.choice)).feed(choice_event)

    def run(self, events: Sequence[Event]) -> list[Event]:
        """Return the events of several that differ only in their texts, as `feed` would for each."""
        if are_texts(events) and (choice := self._choices.get(events[0].choice)) and choice.parses_text:
            return choice.read(events)
        return [event_made for event in events for event_made in self.feed(event)]

    def close(self) -> Iterable[Event]:
        """End all choices, and return their last events.  A missing finish reason becomes "stop"."""
        if self.failed or self._closed:
            return ()
        if not self.has_finished():
            self._settings.ledger.add("synthesised", "finish_reason")
        if not self._choices:
            self._open(0)
        self._closed = True
        events: list[Event] = []
        for choice in self._choices.values():
            events += choice.end()
        return events

    def fail(self, problem: Problem) -> Iterable[Event]:
        """Return the content received so far, then the Failure; nothing follows it."""
        if self.failed:
            return ()
        self.failed = True
        came = [event for choice in self._choices.values() for event in choice.fail()]
        return (*came, Failure(self._settings.mask_problem(problem)))

    def _finish(self, event: Finish) -> Iterable[Event]:
        if event.reason in _FAILED:
            return self.fail(
                Problem(502, f"The backend ended the response with finish reason '{event.reason}'.", "upstream_error")
            )
        reason = _REASONS.get(event.reason) or _REASONS.get(event.reason.partition(":")[0].lower())
        if not reason:
            self._settings.ledger.add("repaired", "finish_reason")
        (self._choices.get(event.choice) or self._open(event.choice)).finish(reason or "stop")
        return ()

    def _open(self, index: int) -> ChoiceNormalizer:
        self._closed = False
        choice = self._choices[index] = ChoiceNormalizer(index, self._settings, self._ids)
        return choice

    def _passed(self, event: Event) -> Iterable[Event]:
        return (event,)

    def _failure(self, event: Failure) -> Iterable[Event]:
        return self.fail(event.problem)

    _arms: ClassVar[dict[type[Any], Callable[[Any, Any], Iterable[Event]]]] = {
        Finish: _finish,
        Usage: _passed,
        ExtraField: _passed,
        Failure: _failure,
    }
