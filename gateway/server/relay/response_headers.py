"""Build the headers of a response, and refuse warnings in strict mode."""

import re
from collections.abc import Sequence
from urllib.parse import quote

from starlette.requests import Request as HttpRequest

from gateway.errors import BadRequest
from gateway.formats.selection import FormatChoice
from gateway.server.http.request_reader import header_dict
from gateway.server.upstream.model_registry import BackendRoute
from gateway.warnings import Warnings, header_text

WARNINGS = "x-gateway-warnings"
_UNFIT = re.compile("[^ -~]")  # characters that a header cannot have
_EARLIER_REASONING = "input.reasoning"  # agents send it each time, and chat templates leave it out as well


def gateway_headers(http: HttpRequest, route: BackendRoute, chosen: FormatChoice, ledger: Warnings) -> dict[str, str]:
    """Return the warnings header, and the debug headers if the client requests them."""
    data = _debug(http, route, chosen)
    if warnings := ledger.header_value():
        data[WARNINGS] = header_text(warnings)
    return data


def strict_route(http: HttpRequest, route: BackendRoute) -> BackendRoute:
    """Return the route, in strict mode if the client requests it."""
    if route.settings.strict or header_dict(http.scope).get(b"x-gateway-strict") != b"1":
        return route
    return route.strict_route


def reject_if_strict(route: BackendRoute, entries: Sequence[str]) -> None:
    """Raise BadRequest in strict mode for a part of the request that is dropped, not enforced or unknown."""
    if not route.settings.strict:
        return
    for entry in entries:
        code, _, subject = entry.partition(":")
        if code == "forwarded":
            raise BadRequest(f"Unknown parameter: '{subject}'.", code="unknown_parameter", param=subject)
        if code in ("dropped", "unenforced") and subject != _EARLIER_REASONING:
            message = f"Unsupported parameter: this model's backend cannot honor '{subject}', and strict mode is on."
            raise BadRequest(message, code="unsupported_parameter", param=subject)


def _debug(http: HttpRequest, route: BackendRoute, chosen: FormatChoice) -> dict[str, str]:
    if header_dict(http.scope).get(b"x-gateway-debug") != b"1":
        return {}
    begins = "; responses start inside a thought" if chosen.thought_open else ""
    return {
        "x-gateway-model": quote(route.model, safe="/@+,"),
        "x-gateway-backend": route.backend.name,
        "x-gateway-format": _UNFIT.sub("?", f"{chosen.format}; {chosen.reason}{begins}"),
    }
