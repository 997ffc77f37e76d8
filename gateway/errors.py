"""Define the errors of the gateway.  The class says whose fault an error is.

    GatewayError
    ├── ClientError            4xx: the client has to change something
    │   ├── BadRequest         400
    │   ├── Unauthorized       401
    │   ├── Forbidden          403
    │   ├── NotFound           404
    │   ├── MethodNotAllowed   405
    │   ├── TooLarge           413
    │   ├── Unsupported        415
    │   ├── UpgradeRequired    426
    │   └── RateLimited        429
    ├── StoreFailed            503: the database is not there, is full, or has been locked for too long
    └── UpstreamError          5xx: the backend failed; an SDK may try again
        ├── UpstreamFailed     any: it says why, and perhaps it is the client's request
        ├── UpstreamInvalid    502  what it said is no answer
        ├── Unreachable        502  no connection
        ├── Unavailable        503  it is loading or overloaded
        └── UpstreamTimeout    504

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
        """The `error.type` that fits the status; clients decide by it whether to try again."""
        return _TYPES.get(self.status, "invalid_request_error" if self.status < 500 else "server_error")

    def error(self) -> dict[str, str | None]:
        """The `error` object, all four keys always there."""
        return {"message": self.message, "type": self.type, "param": self.param, "code": self.code}

    def body(self) -> bytes:
        return json.encode({"error": self.error()})


# What ends an answer from outside: nobody wants it any more, or there is no time left for it.
CANCELLED = Problem(499, "The client disconnected or cancelled the request.", "cancelled")
STOPPED = Problem(503, "The gateway was stopped before the response was complete. Retry.", "server_is_overloaded")
ENDS = (CANCELLED, STOPPED)


class GatewayError(Exception):
    """Abstract: catch it, raise one of its children.

    retry_after: when to come back, as the header of that name says it; headers: what else the answer's head tells.
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
    status = 400


class BadRequest(ClientError):
    pass


class Unauthorized(ClientError):
    status = 401
    code = "invalid_api_key"


class Forbidden(ClientError):
    status = 403


class NotFound(ClientError):
    status = 404


class MethodNotAllowed(ClientError):
    status = 405
    code = "method_not_supported"


class TooLarge(ClientError):
    status = 413
    code = "request_too_large"


class UnsupportedMediaType(ClientError):
    status = 415


class UpgradeRequired(ClientError):
    status = 426


class RateLimited(ClientError):
    """seconds: until it is worth another try; infinite: it never is."""

    status = 429
    code = "rate_limit_exceeded"

    def __init__(self, message: str, seconds: float, headers: Mapping[str, str]) -> None:
        super().__init__(message, retry_after=None if seconds == inf else str(ceil(seconds)))
        self.headers = headers


class StoreFailed(GatewayError):
    status = 503
    code = "store_unavailable"


class UpstreamError(GatewayError):
    status = 502
    code = "upstream_error"


class UpstreamFailed(UpstreamError):
    """The backend gave the reason itself, and perhaps a time to retry."""

    def __init__(self, problem: Problem, retry_after: str | None = None) -> None:
        super().__init__(problem.message, retry_after=retry_after)
        self.problem = problem


class UpstreamInvalid(UpstreamError):
    pass


class UpstreamUnreachable(UpstreamError):
    code = "upstream_unreachable"


class UpstreamUnavailable(UpstreamError):
    status = 503
    code = "server_is_overloaded"


class UpstreamTimeout(UpstreamError):
    status = 504
    code = "upstream_timeout"
