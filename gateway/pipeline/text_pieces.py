"""Join consecutive pieces of a text: one chunk of a model may become thousands of them."""

from itertools import groupby
from typing import Any

from msgspec.structs import replace

from gateway.events import Event, ReasoningDelta, TextDelta, ToolArgsDelta


def join(events: list[Event], place: int = 0, *, calls_only: bool = False) -> None:
    """Replace consecutive texts, reasoning or arguments, from this position on, by one event each.

    Text with log-probabilities and signed reasoning stay unchanged.

    calls_only: texts and reasoning stay unchanged, too.
    """
    if len(events) > place + 1:
        runs = [(key, [*run]) for key, run in groupby(events[place:], _call if calls_only else _key)]
        events[place:] = [event for key, run in runs for event in (run if key is None else [_one(run)])]


def _call(event: Event) -> int | None:
    return event.call if isinstance(event, ToolArgsDelta) else None


def _key(event: Event) -> tuple[type[Event], int] | None:
    """Return a key that pieces of one text share; None for events that are not joined."""
    if isinstance(event, ToolArgsDelta):
        return ToolArgsDelta, event.call
    if isinstance(event, TextDelta):
        return None if event.logprobs else (TextDelta, event.choice)
    if isinstance(event, ReasoningDelta):
        return None if event.signature else (ReasoningDelta, event.choice)
    return None


def _one(run: list[Any]) -> Event:
    first: Any = run[0]
    whole: Event = first
    if len(run) > 1 and isinstance(first, ToolArgsDelta):
        whole = replace(first, json="".join([piece.json for piece in run]))
    elif len(run) > 1:
        whole = replace(first, text="".join([piece.text for piece in run]))
    return whole
