"""Tools that are offered but not allowed: the backend is not shown them, and its calls of them do not count."""

from collections.abc import Sequence

from gateway.ledger import Ledger
from gateway.request import Request
from gateway.translate.selection import Selection


def translate(request: Request, ledger: Ledger) -> tuple[Request, Sequence[Selection]]:
    if request.allowed is None:
        return request, []
    forbidden = {tool.name for tool in request.tools} - {tool.name for tool in request.callable_tools}
    if not forbidden:
        return request, []
    return request, [Selection(lambda start: start.name not in forbidden, ledger)]
