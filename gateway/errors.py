"""Define the errors of the gateway.  The class says which side has to act.

    GatewayError
    ├── ClientError                4xx: the client has to change something
    │   ├── BadRequest             400
    │   ├── Unauthorized           401
    │   ├── Forbidden              403
    │   ├── NotFound               404
    │   ├── MethodNotAllowed       405
    │   ├── TooLarge               413
    │   ├── UnsupportedMediaType   415
    │   ├── UpgradeRequired        426
    │   └── RateLimited            429
    ├── StoreFailed                503: the database is unreachable, full, or locked for too long
    └── UpstreamError              5xx: the backend failed; an SDK may retry
        ├── UpstreamFailed         any: the backend gave a reason, which may be a fault of the client's request
        ├── UpstreamInvalid        502: the backend sent no valid response
        ├── UpstreamUnreachable    502: no connection
        ├── ConnectionLost         502: the connection broke before the response was complete
        │   └── NoResponse         502: it broke before the first byte of the response
        ├── UpstreamUnavailable    503: the backend or the gateway is loading, overloaded or stopping
        └── UpstreamTimeout        504

Each error carries a Problem: the value that a client gets, as a status and a body in OpenAI's shape.
"""

from collections.abc import Mapping
from math import ceil, inf
from types import MappingProxyType

from msgspec import Struct, json

_TYPES = {401: "invalid_request_error", 429: "rate_limit_error"}


class Problem(Struct, frozen=True):
    """One failure as a client sees it.  `param` is a path like `messages[0].content[1].type`."""

    status: int
    message: str
    code: str | None = None
    param: str | None = None

    @property
    def type(self) -> str:
        """The `error.type` that fits the status.  Clients decide by it whether to retry."""
        return _TYPES.get(self.status, "invalid_request_error" if self.status < 500 else "server_error")

    def error(self) -> dict[str, str | None]:
        """Return the `error` object, always with all four keys."""
        return {"message": self.message, "type": self.type, "param": self.param, "code": self.code}

    def body(self) -> bytes:
        """Return the JSON body of an error response."""
        return json.encode({"error": self.error()})


# Problems that end a response from outside: the client has left, or the gateway stops.
CANCELLED = Problem(499, "The client disconnected or cancelled the request.", "cancelled")
STOPPED = Problem(503, "The gateway was stopped before the response was complete. Retry.", "server_is_overloaded")
ENDS = (CANCELLED, STOPPED)


class GatewayError(Exception):
    """Base class of all errors: catch it, and raise one of its subclasses.

    retry_after: the value of the `Retry-After` header.
    headers: further headers of the error response.
    """

    status = 500
    code: str | None = None
    headers: Mapping[str, str] = MappingProxyType({})

    def __init__(
        self, message: str, *, code: str | None = None, param: str | None = None, retry_after: str | None = None
    ) -> None:
        super().__init__(message)
        self.problem = Problem(self.status, message, code or self.code, param)
        self.retry_after = retry_after


class ClientError(GatewayError):
    """Base class of errors that the client has to fix."""

    status = 400


class BadRequest(ClientError):
    """A request that breaks a rule of the API."""


class Unauthorized(ClientError):
    """A missing or unknown API key."""

    status = 401
    code = "invalid_api_key"


class Forbidden(ClientError):
    """A request that the client may not make."""

    status = 403


class NotFound(ClientError):
    """An unknown path, model or stored object."""

    status = 404


class MethodNotAllowed(ClientError):
    """An HTTP method that the path does not take."""

    status = 405
    code = "method_not_supported"


class TooLarge(ClientError):
    """A request body beyond a limit."""

    status = 413
    code = "request_too_large"


class UnsupportedMediaType(ClientError):
    """A body in a media type or encoding that the gateway cannot read."""

    status = 415


class UpgradeRequired(ClientError):
    """A plain request to a path that takes only a WebSocket handshake."""

    status = 426


class RateLimited(ClientError):
    """A request beyond a limit of its API key.

    seconds: the time until a retry can succeed; infinity if none can.
    """

    status = 429
    code = "rate_limit_exceeded"

    def __init__(self, message: str, seconds: float, headers: Mapping[str, str]) -> None:
        super().__init__(message, retry_after=None if seconds == inf else str(ceil(seconds)))
        self.headers = headers


class StoreFailed(GatewayError):
    """A failed read or write of the store, or one that was not begun."""

    status = 503
    code = "store_unavailable"

    @property
    def reason(self) -> str:
        """The reason for the log: the database's error if there is one, which no client sees."""
        return str(self.__cause__ or self)


class UpstreamError(GatewayError):
    """Base class of a backend's failures."""

    status = 502
    code = "upstream_error"


class UpstreamFailed(UpstreamError):
    """A failure for which the backend gave the reason, and perhaps a time to retry."""

    def __init__(self, problem: Problem, retry_after: str | None = None) -> None:
        super().__init__(problem.message, retry_after=retry_after)
        self.problem = problem


class UpstreamInvalid(UpstreamError):
    """An invalid response of a backend."""


class UpstreamUnreachable(UpstreamError):
    """A failed or lost connection to a backend."""

    code = "upstream_unreachable"


class ConnectionLost(UpstreamError):
    """A connection that broke before the response was complete."""

    code = "upstream_lost"


class NoResponse(ConnectionLost):
    """A connection that broke before the first byte of the response."""


class UpstreamUnavailable(UpstreamError):
    """A backend or gateway that is loading, overloaded or stopping."""

    status = 503
    code = "server_is_overloaded"


class UpstreamTimeout(UpstreamError):
    """A backend that did not connect or respond in time."""

    status = 504
    code = "upstream_timeout"
