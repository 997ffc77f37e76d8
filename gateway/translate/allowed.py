"""Tools that are offered but not allowed: the backend is not shown them, and its calls of them do not count."""

from collections.abc import Sequence

from gateway.ledger import Warnings
from gateway.request import Request
from gateway.translate.selection import ToolCallSelectionFilter


def drop_disallowed_calls(request: Request, ledger: Warnings) -> tuple[Request, Sequence[ToolCallSelectionFilter]]:
    if request.allowed is None:
        return request, []
    forbidden = {tool.name for tool in request.tools} - {tool.name for tool in request.callable_tools}
    if not forbidden:
        return request, []
    return request, [ToolCallSelectionFilter(lambda start: start.name not in forbidden, ledger)]
