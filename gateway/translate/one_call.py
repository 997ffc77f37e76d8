"""`parallel_tool_calls: false` on a backend that calls in parallel all the same: the first call is kept."""

from collections.abc import Sequence

from gateway.ledger import Ledger
from gateway.request import Request
from gateway.translate.selection import Selection


def translate(request: Request, ledger: Ledger) -> tuple[Request, Sequence[Selection]]:
    wanted = request.rest.get("parallel_tool_calls") is False and request.callable_tools
    return request, [Selection(lambda start: start.call == 0, ledger)] if wanted else []
