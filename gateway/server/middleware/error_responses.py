"""Convert all errors to responses, in the format of the API that the client uses."""

import logging
from http import HTTPStatus

from fastapi import FastAPI, Request
from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.routing import Match, Route
from starlette.types import Scope

from gateway.api import messages
from gateway.errors import GatewayError, MethodNotAllowed, NotFound, Problem
from gateway.server.http.paths import nearest
from gateway.server.http.request_reader import header_dict
from gateway.server.observability.request_record import record_of

_log = logging.getLogger("gateway")
_MESSAGES_PATH = "/v1/messages/"
_VERSION = b"anthropic-version"
# Final errors of a backend, after all attempts of the gateway: a retry by the client would end alike.
_FINAL = ("upstream_error", "upstream_auth_error", "frame_too_long")


def add_handlers(app: FastAPI) -> None:
    """Register the handlers of GatewayError and of the router's errors."""
    app.add_exception_handler(GatewayError, _known)
    app.add_exception_handler(HTTPException, _routing)


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
    return Response(body, status, {**final, **(headers or {})}, "application/json")


def response_for(error: GatewayError, scope: Scope) -> Response:
    """Return the response for a GatewayError, with its headers."""
    after = {"retry-after": error.retry_after} if error.retry_after else {}
    return error_response(error.problem, scope, {**error.headers, **after})


async def _known(request: Request, error: Exception) -> Response:
    assert isinstance(error, GatewayError)
    record_of(request.scope).problem = error.problem
    return response_for(error, request.scope)


async def _routing(request: Request, error: Exception) -> Response:
    """Return the router's error: unknown path, or wrong method."""
    assert isinstance(error, HTTPException)
    path = request.url.path
    headers = dict(error.headers or {})
    if error.status_code == 405:
        allow = {"Allow": ", ".join(_methods(request))}
        problem = MethodNotAllowed(f"Not allowed to {request.method} on {path}.").problem
        return error_response(problem, request.scope, allow)
    if error.status_code == 404:
        near = nearest(path, request.app.paths)
        problem = NotFound(f"Invalid URL ({request.method} {path}). The nearest path is {near}.").problem
        return error_response(problem, request.scope)
    return error_response(Problem(error.status_code, HTTPStatus(error.status_code).phrase), request.scope, headers)


def _methods(request: Request) -> list[str]:
    """Return the methods of all routes with this path; the router's own error has only those of the first one."""
    routes = (route for route in request.app.routes if isinstance(route, Route))
    of_path = (route.methods or () for route in routes if route.matches(request.scope)[0] is Match.PARTIAL)
    return sorted({method for methods in of_path for method in methods})


def internal_error(id: str, error: Exception) -> Problem:
    """Log an unexpected error of the gateway; return a problem that refers to the log by the request id."""
    _log.error("request %s failed", id, exc_info=error)
    return Problem(
        500,
        f"The gateway failed with an internal error. Its log has the details under request id {id}.",
        "server_error",
    )
