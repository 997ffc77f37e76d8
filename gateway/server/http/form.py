"""Read a form with a file: the file goes on as it arrives, the text fields stay in memory."""

from collections.abc import Awaitable, Callable

from fastapi import Request
from msgspec import Struct
from starlette.requests import ClientDisconnect

from gateway.api.multipart import FormPart, FormReader
from gateway.api.validation import missing_parameter
from gateway.errors import BadRequest, TooLarge
from gateway.server.http.request_reader import get_header
from gateway.server.http.upload import multipart_boundary

_BESIDE = 1 << 20  # bytes of a form besides its file
_MAX_TEXT = 64 << 10  # bytes of all text fields
_Write = Callable[[bytes], Awaitable[None]]


class FileForm(Struct, frozen=True):
    """A form without its file; filename: the client's name of the file, "" for none."""

    fields: dict[str, str]
    filename: str


def least_file_size(request: Request) -> int:
    """Return the bytes that the file of a form has at least, by the announced length."""
    return max(int(get_header(request.scope, b"content-length") or 0) - _BESIDE, 0)


async def read_file_form(request: Request, name: str, limit: int, write: _Write) -> FileForm:
    """Read a form, and give the bytes of its file `name` to `write`.

    Raise BadRequest, UnsupportedMediaType or ClientDisconnect, and TooLarge for more than `limit` bytes.
    """
    form = _FormReading(name, limit, write)
    reader = FormReader(multipart_boundary(request))
    if least_file_size(request) > limit:
        raise _too_large(limit)
    received, more = 0, True
    while more:
        message = await request.receive()
        if message["type"] == "http.disconnect":
            raise ClientDisconnect
        data, more = message.get("body", b""), message.get("more_body", False)
        received += len(data)
        if received > limit + _BESIDE:
            raise _too_large(limit)
        for part, piece in reader.feed(data):
            await form.add(part, piece)
    reader.end()
    return form.result()


class _FormReading:
    """The parts of a form so far."""

    def __init__(self, name: str, limit: int, write: _Write) -> None:
        self._name, self._limit, self._write = name, limit, write
        self._file: FormPart | None = None
        self._fields: dict[str, bytes] = {}
        self._size = self._text_size = 0

    async def add(self, part: FormPart, piece: bytes) -> None:
        """Add a piece of a part."""
        if part.name == self._name:
            self._file = self._file or part
            await self._add_to_file(part, piece)
            return
        self._text_size += len(piece) + len(part.name)
        if self._text_size > _MAX_TEXT:
            message = f"The fields of the form besides '{self._name}' have more than {_MAX_TEXT} bytes."
            raise BadRequest(message, code="string_above_max_length")
        self._fields[part.name] = self._fields.get(part.name, b"") + piece

    async def _add_to_file(self, part: FormPart, piece: bytes) -> None:
        if part is not self._file:
            message = f"The form has more than one '{self._name}'. Send one in each request."
            raise BadRequest(message, code="invalid_value", param=self._name)
        self._size += len(piece)
        if self._size > self._limit:
            raise _too_large(self._limit)
        await self._write(piece)

    def result(self) -> FileForm:
        """Return the form; raise BadRequest if it has no file."""
        if not self._file:
            raise missing_parameter(self._name)
        fields = {name: value.decode("utf-8", "replace") for name, value in self._fields.items()}
        return FileForm(fields, self._file.filename or "")


def _too_large(limit: int) -> TooLarge:
    return TooLarge(f"The file is larger than the limit of {limit} bytes. Send a smaller one.", code="file_too_large")
