"""`parallel_tool_calls: false` on a backend that calls in parallel all the same: the first call is kept."""

from collections.abc import Iterable, Sequence

from gateway.events import Event, ToolArgs, ToolEnd, ToolInput, ToolStart
from gateway.ledger import Ledger
from gateway.request import Request


def translate(request: Request, ledger: Ledger) -> tuple[Request, Sequence["OneCall"]]:
    wanted = request.rest.get("parallel_tool_calls") is False and request.callable_tools
    return request, [OneCall(ledger)] if wanted else []


class OneCall:
    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger

    def feed(self, event: Event) -> Iterable[Event]:
        if isinstance(event, ToolStart | ToolArgs | ToolInput | ToolEnd) and event.call:
            self._ledger.note("dropped", "tool_calls")
            return ()
        return (event,)

    def close(self) -> Iterable[Event]:
        return ()  # nothing is held back
