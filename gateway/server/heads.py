"""Build the headers of a response, and refuse warnings in strict mode."""

import re
from collections.abc import Sequence
from urllib.parse import quote

from starlette.requests import Request as HttpRequest

from gateway.errors import BadRequest
from gateway.formats.chosen import FormatChoice
from gateway.ledger import Warnings
from gateway.server.directory import BackendRoute
from gateway.server.headers import header_dict

WARNINGS = "x-gateway-warnings"
_UNFIT = re.compile("[^ -~]")  # for a header
_EARLIER_REASONING = "input.reasoning"  # templates leave it out as well, and agents send it each time
_MOST_TOLD = 4096  # characters of warnings, so that every client can take them


def gateway_headers(http: HttpRequest, route: BackendRoute, chosen: FormatChoice, ledger: Warnings) -> dict[str, str]:
    told = _debug(http, route, chosen)
    if warnings := _bounded(ledger.known()):
        told[WARNINGS] = warnings
    return told


def stored(ledger: Warnings) -> str:
    """Return all warnings of an answer, as the head of a later request for it has them."""
    return _bounded(", ".join(ledger.listed()))


def strict_route(http: HttpRequest, route: BackendRoute) -> BackendRoute:
    """The route, in strict mode if the client wants it so."""
    if route.settings.strict or header_dict(http.scope).get(b"x-gateway-strict") != b"1":
        return route
    return route.strict


def reject_if_strict(route: BackendRoute, entries: Sequence[str]) -> None:
    """Raise BadRequest in strict mode for a part of the request that is dropped, not enforced or unknown."""
    if not route.settings.strict:
        return
    for entry in entries:
        code, _, subject = entry.partition(":")
        if code == "forwarded":
            raise BadRequest(f"Unknown parameter: '{subject}'.", code="unknown_parameter", param=subject)
        if code in ("dropped", "unenforced") and subject != _EARLIER_REASONING:
            message = f"Unsupported parameter: '{subject}' cannot be honoured by this model's backend."
            raise BadRequest(message, code="unsupported_parameter", param=subject)


def _bounded(told: str) -> str:
    return told[:_MOST_TOLD].rpartition(", ")[0] + ", ..." if len(told) > _MOST_TOLD else told


def _debug(http: HttpRequest, route: BackendRoute, chosen: FormatChoice) -> dict[str, str]:
    if header_dict(http.scope).get(b"x-gateway-debug") != b"1":
        return {}
    begins = "; answers begin inside a thought" if chosen.thought_open else ""
    return {
        "x-gateway-model": quote(route.model, safe="/@+,"),
        "x-gateway-backend": route.backend.name,
        "x-gateway-format": _UNFIT.sub("?", f"{chosen.format}; {chosen.reason}{begins}"),
    }
