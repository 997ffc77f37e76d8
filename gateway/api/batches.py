"""Check batches and the lines of their input, and build the lines of their output, by the rules of OpenAI's API."""

from collections.abc import Iterator
from hashlib import blake2b
from typing import Any, Literal

from msgspec import DecodeError, Raw, Struct, ValidationError, json
from msgspec.structs import replace

from gateway.api.validation import check_metadata, integer_between, object_of, one_of, string
from gateway.errors import BadRequest

Status = Literal["validating", "failed", "in_progress", "finalizing", "completed", "expired", "cancelling", "cancelled"]
ENDPOINTS = ("/v1/chat/completions", "/v1/responses", "/v1/messages", "/v1/completions", "/v1/embeddings")
WINDOW = 86_400  # seconds of the completion window "24h"
LIFETIME = 30 * 86_400  # seconds until an output file expires, if the client says nothing, and until its batch does
ENDED = ("failed", "completed", "expired", "cancelled")
_MAX_ID = 512  # characters of a custom_id
_MAX_ERRORS = 100  # of a batch
_AFTER = object_of({"anchor": one_of("created_at"), "seconds": integer_between(3600, LIFETIME)})
check_batch = object_of(
    {"input_file_id": string, "endpoint": one_of(*ENDPOINTS), "completion_window": one_of("24h")},
    {"metadata": check_metadata, "output_expires_after": _AFTER},
)
_TIMES = (
    "in_progress_at", "finalizing_at", "completed_at", "failed_at", "expired_at", "cancelling_at", "cancelled_at",
)  # fmt: skip


class LineError(Struct, frozen=True, omit_defaults=False):
    """An error of the input file; line: from 1, None for an error of the whole file."""

    code: str
    message: str
    param: str | None = None
    line: int | None = None


class BatchLine(Struct, frozen=True):
    """A valid line: its number from 0, the client's name for it, and the body of its request."""

    place: int
    custom_id: str
    body: bytes


class _Line(Struct, frozen=True):
    custom_id: str
    method: str
    url: str
    body: Raw


class _Body(Struct, frozen=True):
    stream: bool | None = None
    background: bool | None = None


_line, _body, _object = json.Decoder(_Line), json.Decoder(_Body), json.Decoder(dict[str, Raw])
_NAMES = ("custom_id", "method", "url", "body")


class LineSplitter:
    """Split the bytes of a file into lines; keep at most one line of `most` bytes.

    A line that is too long is None.  An empty line is left out, but counts for the numbers.
    """

    def __init__(self, most: int) -> None:
        self._most, self._rest, self._long = most, bytearray(), False

    def feed(self, data: bytes) -> Iterator[bytes | None]:
        """Yield the lines that end in this data."""
        *ended, rest = data.split(b"\n")
        for piece in ended:
            self._add(piece)
            yield self._take()
        self._add(rest)

    def close(self) -> Iterator[bytes | None]:
        """Yield the last line, if it has no line break."""
        if self._rest or self._long:
            yield self._take()

    def _add(self, piece: bytes) -> None:
        self._long = self._long or len(self._rest) + len(piece) > self._most
        if self._long:
            self._rest.clear()
        else:
            self._rest += piece

    def _take(self) -> bytes | None:
        line = None if self._long else bytes(self._rest).strip()
        self._rest, self._long = bytearray(), False
        return line


def read_line(raw: bytes, place: int, endpoint: str) -> BatchLine | LineError:
    """Return a line of a batch for this endpoint, or what is wrong with it.  place: its number from 0."""
    try:
        line = _line.decode(raw)
        options = _body.decode(line.body)
    except (DecodeError, UnicodeDecodeError, RecursionError) as error:
        return _malformed(raw, place + 1, error)
    if line.method != "POST":
        return LineError("invalid_method", "The method of a request has to be 'POST'.", "method", place + 1)
    if line.url != endpoint:
        message = f"The URL '{line.url:.100}' differs from the endpoint of the batch, '{endpoint}'."
        return LineError("invalid_url", message, "url", place + 1)
    if not 0 < len(line.custom_id) <= _MAX_ID:
        message = f"A custom_id has 1 to {_MAX_ID} characters, and this one has {len(line.custom_id)}."
        return LineError("invalid_value", message, "custom_id", place + 1)
    for name in ("stream", "background"):
        if getattr(options, name):
            return LineError(
                "unsupported_value", f"A batch excludes '{name}'. Leave it out.", f"body.{name}", place + 1
            )
    return BatchLine(place, line.custom_id, bytes(line.body))


def _malformed(raw: bytes, line: int, error: Exception) -> LineError:
    if not isinstance(error, ValidationError):
        return LineError("invalid_json_line", "This line is not valid JSON.", None, line)
    try:
        found = _object.decode(raw)
    except ValidationError:
        return LineError("invalid_json_line", "This line is not a JSON object.", None, line)
    for name in _NAMES:
        if name not in found:
            return LineError("missing_required_parameter", f"Missing required parameter: '{name}'.", name, line)
    return LineError("invalid_type", f"This line has a wrong type: {error}.", None, line)


class InputCheck:
    """Check all lines of an input file.  limit: lines that a batch may have.

    total: lines so far; errors: the first hundred.
    """

    def __init__(self, endpoint: str, limit: int, line_bytes: int) -> None:
        self._endpoint, self._limit, self._bytes = endpoint, limit, line_bytes
        self._lines, self._number, self._ids = LineSplitter(line_bytes), 0, set[bytes]()
        self.total, self.errors = 0, list[LineError]()

    @property
    def is_over(self) -> bool:
        """True if further lines cannot change the result."""
        return self.total > self._limit or len(self.errors) >= _MAX_ERRORS

    def feed(self, data: bytes) -> None:
        """Check the lines that end in this data."""
        for raw in self._lines.feed(data):
            self._check(raw)

    def close(self) -> None:
        """Check the last line, and the number of lines."""
        for raw in self._lines.close():
            self._check(raw)
        if self.total > self._limit:
            message = f"The input file has more than {self._limit} lines (limits.batch_lines). Split it."
            self.errors = [LineError("too_many_lines", message)]
        elif not self.total:
            self.errors = [LineError("empty_file", "The input file has no lines.")]

    def _check(self, raw: bytes | None) -> None:
        place, self._number = self._number, self._number + 1
        if raw == b"" or self.is_over:
            return
        self.total += 1
        if error := self._error_of(raw, place):
            self.errors.append(error)

    def _error_of(self, raw: bytes | None, place: int) -> LineError | None:
        if raw is None:
            message = f"The line is longer than {self._bytes} bytes (limits.body_bytes)."
            return LineError("line_too_long", message, None, place + 1)
        line = read_line(raw, place, self._endpoint)
        if isinstance(line, LineError):
            return line
        digest = blake2b(line.custom_id.encode("utf-8", "surrogatepass"), digest_size=16).digest()
        if digest in self._ids:
            message = f"The custom_id '{line.custom_id:.100}' is on an earlier line as well."
            return LineError("duplicate_custom_id", message, "custom_id", place + 1)
        self._ids.add(digest)
        return None


def response_line(id: str, custom_id: str, status: int, request_id: str, body: bytes) -> bytes:
    """Return the line of a request that got a response.  body: JSON."""
    response = {"status_code": status, "request_id": request_id, "body": Raw(body)}
    return json.encode({"id": id, "custom_id": custom_id, "response": response, "error": None}) + b"\n"


def expired_line(id: str, custom_id: str) -> bytes:
    """Return the line of a request that was not finished within the completion window."""
    message = "The request was not finished within the completion window of the batch."
    error = {"code": "batch_expired", "message": message}
    return json.encode({"id": id, "custom_id": custom_id, "response": None, "error": error}) + b"\n"


class Batch(Struct, frozen=True):
    """A batch without the results of its lines; times are Unix seconds.

    request: the body that created it.
    times: of the changes of the status, by the names of the API.
    files: `output_file_id` and `error_file_id`, once they exist.
    """

    id: str
    created_at: int
    status: Status
    request: dict[str, Any]
    total: int = 0
    completed: int = 0
    failed: int = 0
    times: dict[str, int] = {}
    files: dict[str, str] = {}
    errors: list[LineError] = []

    @property
    def expires_at(self) -> int:
        """The end of the completion window."""
        return self.created_at + WINDOW

    @property
    def endpoint(self) -> str:
        """The path that all lines request."""
        endpoint: str = self.request["endpoint"]
        return endpoint

    @property
    def input_file(self) -> str:
        """The id of the input file."""
        id: str = self.request["input_file_id"]
        return id

    @property
    def output_lifetime(self) -> int:
        """Seconds until the output files expire."""
        after = self.request.get("output_expires_after")
        return int(after["seconds"]) if after else LIFETIME

    def moved(self, status: Status, now: int) -> "Batch":
        """Return the batch with a new status; one that is cancelled can only end, as cancelled."""
        if self.status == "cancelling":
            status = "cancelled" if status in ENDED else "cancelling"
        if status == self.status:
            return self
        return replace(self, status=status, times={**self.times, f"{status}_at": now})

    def cancelled(self, now: int) -> "Batch":
        """Return the batch as its client cancels it; raise BadRequest if it has ended, or is about to."""
        if self.status in (*ENDED, "finalizing"):
            message = f"The batch '{self.id}' cannot be cancelled: its status is '{self.status}'."
            raise BadRequest(message, code="invalid_value", param="id")
        return self.moved("cancelling", now)

    def shown(self) -> dict[str, Any]:
        """Return the batch object of the API."""
        errors = {"object": "list", "data": self.errors} if self.errors else None
        return {
            "id": self.id,
            "object": "batch",
            "endpoint": self.endpoint,
            "errors": errors,
            "input_file_id": self.input_file,
            "completion_window": "24h",
            "status": self.status,
            "output_file_id": self.files.get("output_file_id"),
            "error_file_id": self.files.get("error_file_id"),
            "created_at": self.created_at,
            "expires_at": self.expires_at,
            **{name: self.times.get(name) for name in _TIMES},
            "request_counts": {"total": self.total, "completed": self.completed, "failed": self.failed},
            "metadata": self.request.get("metadata"),
        }
