"""Pieces of a text that follow each other, joined: one chunk of a model may become thousands of them."""

from itertools import groupby
from typing import Any

from msgspec.structs import replace

from gateway.events import Event, Reasoning, Text, ToolArgs


def join(events: list[Event], place: int = 0, *, calls_only: bool = False) -> None:
    """Put one text, thought or piece of arguments from this place on where several are in a row.

    Text with log-probabilities and signed thoughts stay as they are.  calls_only: texts and thoughts, too.
    """
    if len(events) > place + 1:
        runs = [(key, [*run]) for key, run in groupby(events[place:], _call if calls_only else _key)]
        events[place:] = [event for key, run in runs for event in (run if key is None else [_one(run)])]


def _call(event: Event) -> int | None:
    return event.call if isinstance(event, ToolArgs) else None


def _key(event: Event) -> tuple[type[Event], int] | None:
    """Return what pieces that belong together have in common; None for what is no piece."""
    if isinstance(event, ToolArgs):
        return ToolArgs, event.call
    if isinstance(event, Text):
        return None if event.logprobs else (Text, event.choice)
    if isinstance(event, Reasoning):
        return None if event.signature else (Reasoning, event.choice)
    return None


def _one(run: list[Any]) -> Event:
    first: Any = run[0]
    whole: Event = first
    if len(run) > 1 and isinstance(first, ToolArgs):
        whole = replace(first, json="".join([piece.json for piece in run]))
    elif len(run) > 1:
        whole = replace(first, text="".join([piece.text for piece in run]))
    return whole
