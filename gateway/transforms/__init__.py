"""Translate what a backend cannot do: offer it in another shape, and turn the answer back.

A transform lowers the request and, where the answer has to be turned back, adds a filter of events.  A request goes
through the transforms in order, its answer through their filters in reverse.  A filter
keeps the grammar of events.py, and its `close` leaves nothing behind.  Most requests need none.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Protocol

from gateway.events import Event
from gateway.request import Request
from gateway.transforms import custom_tools, past_tool_calls, text_filters, tool_names, tool_selection, tool_shims
from gateway.warnings import Warnings


class EventFilter(Protocol):
    def feed(self, event: Event) -> Iterable[Event]: ...
    def close(self) -> Iterable[Event]: ...


Transform = Callable[[Request, Warnings], tuple[Request, Sequence[EventFilter]]]

# What a tool is.  First of all each gets one name of its own, by which the others know it.
_OF_TOOLS: tuple[Transform, ...] = (
    tool_names.lower_tool_names,
    custom_tools.lower_custom_tools,
    tool_shims.lower_shim_tools,
)
# What is to come of them.
_OF_CALLS: tuple[Transform, ...] = (
    tool_selection.drop_parallel_calls,
    tool_selection.drop_disallowed_calls,
    text_filters.lower_prewarm,
)


def lower_request(request: Request, ledger: Warnings) -> tuple[Request, list[EventFilter]]:
    """The request as a backend can take it, and the filters for its answer, in the order in which they are applied."""
    filters: list[EventFilter] = []
    if not request.tools and request.generates and past_tool_calls.has_no_calls(request):
        return request, filters  # all of them are about tools, or about answers that are none
    for one in _OF_CALLS if _functions(request) else (*_OF_TOOLS, *_OF_CALLS):
        request, added = one(request, ledger)
        filters = [*added, *filters]
    return request, filters


def _functions(request: Request) -> bool:
    """True if tools and past calls are functions without a namespace, as every backend knows them."""
    return all([tool.kind == "function" and not tool.namespace for tool in request.tools]) and all(
        [
            call["type"] == "function" and not call["function"].get("namespace")
            for call in past_tool_calls.past_calls(request.messages)
        ]
    )


def apply_filters(filters: Sequence[EventFilter], events: Iterable[Event]) -> list[Event]:
    """The events after all filters."""
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
