"""Drop tool calls as if the model had not made them: of tools that are not allowed, or beyond the first one."""

from collections.abc import Callable, Iterable, Sequence

from msgspec.structs import replace

from gateway.events import Event, Finish, ToolArgsDelta, ToolCallEnd, ToolCallStart, ToolInputDelta
from gateway.request import Request
from gateway.warnings import Warnings


class ToolCallSelectionFilter:
    """Drop the tool calls that `keep` refuses, with a warning, and renumber the others."""

    def __init__(self, keep: Callable[[ToolCallStart], bool], ledger: Warnings) -> None:
        self._keep, self._ledger = keep, ledger
        self._kept: dict[int, int] = {}  # by choice: the number of calls
        self._muted: set[int] = set()  # choices whose open call is dropped

    def feed(self, event: Event) -> Iterable[Event]:
        """Return the event, unless it belongs to a dropped call."""
        if type(event) is ToolCallStart:
            return self._start(event)
        if isinstance(event, ToolArgsDelta | ToolInputDelta | ToolCallEnd):
            if event.choice in self._muted:
                return ()
            return (replace(event, call=self._kept[event.choice] - 1),)
        if type(event) is Finish and event.reason == "tool_calls" and not self._kept.get(event.choice):
            return (Finish(event.choice, "stop"),)
        return (event,)

    def close(self) -> Iterable[Event]:
        """Return no events."""
        return ()

    def _start(self, event: ToolCallStart) -> Iterable[Event]:
        if not self._keep(event):
            self._muted.add(event.choice)
            self._ledger.add("dropped", "tool_calls")
            return ()
        self._muted.discard(event.choice)
        call = self._kept.get(event.choice, 0)
        self._kept[event.choice] = call + 1
        return (replace(event, call=call),)


def drop_disallowed_calls(request: Request, ledger: Warnings) -> tuple[Request, Sequence[ToolCallSelectionFilter]]:
    """Return the request, and a filter that drops calls of tools that are not allowed: all with `tool_choice: none`.

    A server may find calls in the text even if it gets no tools, as Ollama does for gpt-oss.
    """
    if request.tool_choice == "none":
        return request, [ToolCallSelectionFilter(lambda _: False, ledger)]
    if request.allowed is None:
        return request, []
    forbidden = {tool.name for tool in request.tools} - {tool.name for tool in request.callable_tools}
    if not forbidden:
        return request, []
    return request, [ToolCallSelectionFilter(lambda start: start.name not in forbidden, ledger)]


def drop_parallel_calls(request: Request, ledger: Warnings) -> tuple[Request, Sequence[ToolCallSelectionFilter]]:
    """Return the request, and a filter that drops all calls but the first if the client forbids parallel calls."""
    wanted = request.rest.get("parallel_tool_calls") is False and request.callable_tools
    return request, [ToolCallSelectionFilter(lambda start: start.call == 0, ledger)] if wanted else []
