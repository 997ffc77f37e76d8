"""Convert all errors to responses, in the format of the API that the client uses."""

import logging
from http import HTTPStatus
from urllib.parse import quote

from fastapi import FastAPI, Request
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.responses import Response
from starlette.routing import Match, Route
from starlette.types import Scope

from gateway.api import messages
from gateway.api.sdk_groups import refusal
from gateway.errors import CANCELLED, GatewayError, MethodNotAllowed, NotFound, Problem
from gateway.server.http.paths import nearest
from gateway.server.http.request_reader import header_dict
from gateway.server.limits import with_anthropic_headers
from gateway.server.observability.request_record import record_of

_log = logging.getLogger("gateway")
_MESSAGES_PATH = "/v1/messages/"
_VERSION = b"anthropic-version"
# Final errors of a backend, after all attempts of the gateway: a retry by the client would end alike.
_FINAL = ("upstream_error", "upstream_auth_error", "frame_too_long", "insufficient_quota")


def add_handlers(app: FastAPI) -> None:
    """Register the handlers of GatewayError, of the router's errors and of clients that leave."""
    app.add_exception_handler(GatewayError, _known)
    app.add_exception_handler(HTTPException, _routing)
    app.add_exception_handler(ClientDisconnect, _left)


def is_messages_api(scope: Scope) -> bool:
    """Return True if the client uses Anthropic's API: by the path, or by the header on paths that the APIs share."""
    if scope["type"] != "http":
        return False
    return f"{scope['path']}/".startswith(_MESSAGES_PATH) or _VERSION in header_dict(scope)


def error_response(problem: Problem, scope: Scope, headers: dict[str, str] | None = None) -> Response:
    """Return the response for a problem, in the format of the client's API."""
    final = {"x-should-retry": "false"} if problem.code in _FINAL else {}
    status, body = problem.status, problem.body()
    if is_messages_api(scope):
        status, body = messages.error_status(problem), messages.error_body(problem, record_of(scope).id)
        headers = with_anthropic_headers(headers or {})
    return Response(body, status, {**final, **_debug_headers(scope), **(headers or {})}, "application/json")


def _debug_headers(scope: Scope) -> dict[str, str]:
    """Return the model, the backend and the format of the last attempt, as far as they are known, if requested."""
    if scope["type"] != "http" or header_dict(scope).get(b"x-gateway-debug") != b"1":
        return {}
    record = record_of(scope)
    parts = {"model": quote(record.model, safe="/@+,"), "backend": record.backend, "format": record.format}
    return {f"x-gateway-{name}": value for name, value in parts.items() if value}


def response_for(error: GatewayError, scope: Scope) -> Response:
    """Return the response for a GatewayError, with its headers."""
    after = {"retry-after": error.retry_after} if error.retry_after else {}
    return error_response(error.problem, scope, {**error.headers, **after})


async def _known(request: Request, error: Exception) -> Response:
    assert isinstance(error, GatewayError)
    record_of(request.scope).problem = error.problem
    return response_for(error, request.scope)


async def _left(request: Request, _: Exception) -> Response:
    """Return a response that no client gets: the client left before its request was read."""
    record_of(request.scope).problem = CANCELLED
    return error_response(CANCELLED, request.scope)


async def _routing(request: Request, error: Exception) -> Response:
    """Return the router's error: unknown path, or wrong method."""
    assert isinstance(error, HTTPException)
    path = request.url.path
    headers = dict(error.headers or {})
    if error.status_code == 405:
        allowed = ", ".join(_methods(request))
        problem = MethodNotAllowed(f"Not allowed to {request.method} on {path}. Allowed: {allowed}.").problem
        return error_response(problem, request.scope, {"Allow": allowed})
    if error.status_code == 404:
        return error_response(_unknown_path(request).problem, request.scope)
    return error_response(Problem(error.status_code, HTTPStatus(error.status_code).phrase), request.scope, headers)


def _unknown_path(request: Request) -> NotFound:
    """Return the error of a path that is not served: the reason if that is known, else the nearest path if one is."""
    path = request.url.path
    url = f"Invalid URL ({request.method} {path})."
    if reason := refusal(path):
        return NotFound(f"{url} {reason.replace('`', '')}", code="endpoint_not_supported")
    near = nearest(path, request.app.paths)
    return NotFound(f"{url} The nearest path is {near}." if near else f"{url} /docs lists the paths of the gateway.")


def _methods(request: Request) -> list[str]:
    """Return the methods of all routes with this path; the router's own error has only those of the first one."""
    routes = (route for route in request.app.routes if isinstance(route, Route))
    of_path = (route.methods or () for route in routes if route.matches(request.scope)[0] is Match.PARTIAL)
    return sorted({method for methods in of_path for method in methods})


def internal_error(id: str, error: Exception) -> Problem:
    """Log an unexpected error of the gateway; return a problem that refers to the log by the request id."""
    _log.error("the gateway failed with an internal error", exc_info=error, extra={"request_id": id})
    return Problem(
        500,
        f"The gateway failed with an internal error. Its log has the details under request id {id}.",
        "server_error",
    )
