"""Translate features that a backend lacks: offer them in another form, and convert the response back.

A transform rewrites the request and, if the response has to be converted back, adds an event filter.  A request goes
through the transforms in order, its response through their filters in reverse.  A filter keeps the grammar of
events.py, and holds nothing back after `close`.  Most requests need no filter.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Protocol

from gateway.events import Event
from gateway.request import Request
from gateway.transforms import custom_tools, past_tool_calls, text_filters, tool_names, tool_selection, tool_shims
from gateway.warnings import Warnings


class EventFilter(Protocol):
    """A filter of a response's events."""

    def feed(self, event: Event) -> Iterable[Event]:
        """Return the events to pass on for this event."""

    def close(self) -> Iterable[Event]:
        """Return the events that were held back."""


Transform = Callable[[Request, Warnings], tuple[Request, Sequence[EventFilter]]]

# Transforms of the tools.  The first gives each tool a unique name, which the others use.
_OF_TOOLS: tuple[Transform, ...] = (
    tool_names.lower_tool_names,
    custom_tools.lower_custom_tools,
    tool_shims.lower_shim_tools,
)
# Transforms of the response's tool calls.
_OF_CALLS: tuple[Transform, ...] = (
    tool_selection.drop_parallel_calls,
    tool_selection.drop_disallowed_calls,
    text_filters.lower_prewarm,
)


def lower_request(request: Request, ledger: Warnings) -> tuple[Request, list[EventFilter]]:
    """Return the request in a form that every backend accepts, and the filters of its response, in order."""
    filters: list[EventFilter] = []
    if not request.tools and request.generates and past_tool_calls.has_no_calls(request):
        return request, filters  # all transforms concern tools or prewarm requests
    for one in _OF_CALLS if _functions(request) else (*_OF_TOOLS, *_OF_CALLS):
        request, added = one(request, ledger)
        filters = [*added, *filters]
    return request, filters


def _functions(request: Request) -> bool:
    """Return True if tools and past calls are functions without a namespace, which every backend knows."""
    return all([tool.kind == "function" and not tool.namespace for tool in request.tools]) and all(
        [
            call["type"] == "function" and not call["function"].get("namespace")
            for call in past_tool_calls.past_calls(request.messages)
        ]
    )


def apply_filters(filters: Sequence[EventFilter], events: Iterable[Event]) -> list[Event]:
    """Return the events after all filters."""
    made = [*events]
    for filter in filters:
        made = [after for event in made for after in filter.feed(event)]
    return made


def close_filters(filters: Sequence[EventFilter]) -> Iterable[Event]:
    """Return the events that the filters held back, each passed through the later filters."""
    events: Iterable[Event] = ()
    for filter in filters:
        events = [*(after for event in events for after in filter.feed(event)), *filter.close()]
    return events
