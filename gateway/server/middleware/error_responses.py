"""Convert all errors to responses in OpenAI's format."""

import logging
from http import HTTPStatus

from fastapi import FastAPI, Request
from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.routing import Match, Route

from gateway.errors import GatewayError, MethodNotAllowed, NotFound, Problem
from gateway.server.http.paths import nearest
from gateway.server.observability.request_record import record_of

_log = logging.getLogger("gateway")
# Final errors of a backend, after all attempts of the gateway: a retry by the client would end alike.
_FINAL = ("upstream_error", "upstream_auth_error", "frame_too_long")


def add_handlers(app: FastAPI) -> None:
    """Register the handlers of GatewayError and of the router's errors."""
    app.add_exception_handler(GatewayError, _known)
    app.add_exception_handler(HTTPException, _routing)


def error_response(problem: Problem, headers: dict[str, str] | None = None) -> Response:
    """Return the response for a problem."""
    final = {"x-should-retry": "false"} if problem.code in _FINAL else {}
    return Response(problem.body(), problem.status, {**final, **(headers or {})}, "application/json")


def response_for(error: GatewayError) -> Response:
    """Return the response for a GatewayError, with its headers."""
    after = {"retry-after": error.retry_after} if error.retry_after else {}
    return error_response(error.problem, {**error.headers, **after})


async def _known(request: Request, error: Exception) -> Response:
    assert isinstance(error, GatewayError)
    record_of(request.scope).problem = error.problem
    return response_for(error)


async def _routing(request: Request, error: Exception) -> Response:
    """Return the router's error: unknown path, or wrong method."""
    assert isinstance(error, HTTPException)
    path = request.url.path
    headers = dict(error.headers or {})
    if error.status_code == 405:
        allow = {"Allow": ", ".join(_methods(request))}
        return error_response(MethodNotAllowed(f"Not allowed to {request.method} on {path}.").problem, allow)
    if error.status_code == 404:
        near = nearest(path, request.app.paths)
        return error_response(NotFound(f"Invalid URL ({request.method} {path}). The nearest path is {near}.").problem)
    return error_response(Problem(error.status_code, HTTPStatus(error.status_code).phrase), headers)


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
