"""`parallel_tool_calls: false` on a backend that calls in parallel all the same: the first call is kept."""

from collections.abc import Sequence

from gateway.ledger import Warnings
from gateway.request import Request
from gateway.translate.selection import ToolCallSelectionFilter


def drop_parallel_calls(request: Request, ledger: Warnings) -> tuple[Request, Sequence[ToolCallSelectionFilter]]:
    wanted = request.rest.get("parallel_tool_calls") is False and request.callable_tools
    return request, [ToolCallSelectionFilter(lambda start: start.call == 0, ledger)] if wanted else []
