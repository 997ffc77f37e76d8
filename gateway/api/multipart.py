"""Read a multipart body while it arrives: find one field, or take it apart."""

import re
from email.message import Message
from typing import TYPE_CHECKING

from msgspec import Struct
from python_multipart import MultipartParser
from python_multipart.exceptions import FormParserError
from python_multipart.multipart import parse_options_header

from gateway.errors import BadRequest, UnsupportedMediaType

if TYPE_CHECKING:
    from python_multipart.multipart import MultipartCallbacks

_MAX_HEAD = 16 << 10  # bytes of the headers of a part
_MAX_VALUE = 1 << 10  # bytes of the field
_MULTIPART = "multipart/form-data"
_BARE = re.compile(rb"(?<!\r)\n|\r(?!\n)")  # a line end for some servers
_BOUNDARY = re.compile(r"[ !#-\[\]-~]+").fullmatch  # no quotes, which need escapes
_FOLD = re.compile(rb"\r\n[ \t]+")  # a header that goes on in the next line
# All that some server may read as the header of the field.  A name in the extended syntax (`name*`) may be any.
_DISPOSITION = (
    rb"(?m)^(?i:content-disposition)[ \t]*:.*;\s*(?i:name)\s*"
    rb"(?:\*|=\s*(?:\"%b(?:\"|\s*(?:;|$))|%b(?![\w!#$%%&'*+.^`|~-])))"  # some ignore what follows a quote or a token
)


def boundary_of(content_type: str) -> bytes:
    """Return the boundary between the parts; raise UnsupportedMediaType for another type."""
    header = Message()
    header["content-type"] = content_type
    boundary = header.get_param("boundary")
    if header.get_content_type() != _MULTIPART or not (isinstance(boundary, str) and _BOUNDARY(boundary)):
        message = f"The content type '{content_type}' is not supported. Send {_MULTIPART} with a boundary."
        raise UnsupportedMediaType(message, code="unsupported_content_type")
    return boundary.encode()


def content_type_of(boundary: bytes) -> str:
    """Return the content type of a body with this boundary; servers disagree on which of two boundaries counts."""
    header = Message()
    header["content-type"] = _MULTIPART
    header.set_param("boundary", boundary.decode(), requote=False)
    return header["content-type"]


class FieldFinder:
    """Find a text field: `feed` the body; `ended` is True behind its last part.

    Servers disagree on which of two fields with one name counts, so a body with two is refused.  They also disagree on
    line ends, so a boundary or a header is refused behind another one than CRLF.

    value: the field, once it has come; begin, end: its place in the body.
    """

    value: bytes | None = None
    begin = end = 0
    ended = False

    def __init__(self, boundary: bytes, name: str) -> None:
        self._delimiter = b"--" + boundary
        self._disposition = re.compile(_DISPOSITION % ((re.escape(name.encode()),) * 2))
        self._name = name
        self._buffer, self._offset = b"\r\n", -2  # the first boundary has no line before it
        self._in_head = self._is_field = self._is_found = False

    def feed(self, data: bytes) -> None:
        """Read a piece of the body.

        Raise BadRequest for two of the field, for unclear line ends, or if the field or headers are too long.
        """
        if not self.ended:
            self._buffer += data
        while not self.ended and (self._head() if self._in_head else self._part()):
            pass

    def _part(self) -> bool:
        """Read a part to its end; return True if its end has come.  The line end before it is in the buffer."""
        place = self._boundary_place()
        length = (len(self._buffer) - len(self._delimiter) if place < 0 else place) - 3
        if self._is_field and length > _MAX_VALUE:
            raise BadRequest(
                f"Invalid '{self._name}': longer than {_MAX_VALUE} bytes.",
                code="string_above_max_length",
                param=self._name,
            )
        if place < 0:
            if not self._is_field:
                self._drop(max(len(self._buffer) - len(self._delimiter) - 1, 0))
            return False
        if self._is_field:
            self.begin, self.end, self.value = self._offset + 1, self._offset + place - 2, self._buffer[1 : place - 2]
        self._drop(place + len(self._delimiter))
        self._in_head = True
        return True

    def _boundary_place(self) -> int:
        """Return the place of the next boundary in the buffer, -1 for none."""
        place = self._buffer.find(self._delimiter)
        while place >= 0 and self._buffer[place - 2 : place] != b"\r\n":
            if self._buffer[place - 1 : place] in (b"\r", b"\n"):
                raise _invalid_form("A boundary does not follow CRLF.")
            place = self._buffer.find(self._delimiter, place + 1)
        return place

    def _head(self) -> bool:
        """Read the headers of a part; return True if they are complete."""
        place = self._buffer.find(b"\r\n\r\n")
        self.ended = self._buffer.startswith(b"--")
        if place < 0 and len(self._buffer) > _MAX_HEAD and not self.ended:
            raise BadRequest(f"The headers of a part are longer than {_MAX_HEAD} bytes.", code="invalid_value")
        head = self._buffer.rstrip(b"\r\n") if place < 0 else self._buffer[:place]
        if not self.ended and _BARE.search(head):
            raise _invalid_form("A header of a part does not end with CRLF.")
        if place < 0 or self.ended:
            return False
        self._is_field = bool(self._disposition.search(_FOLD.sub(b" ", head)))
        if self._is_field and self._is_found:
            message = f"The multipart body has two fields '{self._name}'. Send one."
            raise BadRequest(message, code="invalid_value", param=self._name)
        self._is_found |= self._is_field
        self._drop(place + 3)
        self._in_head = False
        return True

    def _drop(self, size: int) -> None:
        self._buffer, self._offset = self._buffer[size:], self._offset + size


class FormPart(Struct, frozen=True, eq=False):
    """A part of a multipart body; filename: None for a text field."""

    name: str
    filename: str | None


class FormReader:
    """Take a multipart body apart: `feed` it piece by piece."""

    def __init__(self, boundary: bytes) -> None:
        """Raise BadRequest for a boundary that is too long."""
        self._parts = _PartCollector()
        try:
            self._parser = MultipartParser(boundary, self._parts.callbacks())
        except FormParserError as error:
            raise _invalid_form(error) from None

    def feed(self, data: bytes) -> list[tuple[FormPart, bytes]]:
        """Return the pieces of parts in a piece of the body, each with its part.  A part begins with an empty piece.

        Raise BadRequest for a body that is not multipart.
        """
        self._parts.found = []
        try:
            self._parser.write(data)
        except FormParserError as error:
            raise _invalid_form(error) from None
        return self._parts.found

    def end(self) -> None:
        """Raise BadRequest if the body is incomplete."""
        if not self._parts.ended:
            raise _invalid_form("It has no final boundary.")


class _PartCollector:
    """Collect what the parser finds.  The parser holds it, and it holds no parser: that would be a reference cycle."""

    def __init__(self) -> None:
        self.found: list[tuple[FormPart, bytes]] = []
        self.ended = False
        self._name, self._text, self._part = b"", b"", FormPart("", None)

    def callbacks(self) -> "MultipartCallbacks":
        return {
            "on_part_begin": self._begin,
            "on_header_field": self._header,
            "on_header_value": self._value,
            "on_header_end": self._header_end,
            "on_headers_finished": self._headers_end,
            "on_part_data": self._data,
            "on_end": self._end,
        }

    def _begin(self) -> None:
        self._part, self._name, self._text = FormPart("", None), b"", b""

    def _header(self, data: bytes, begin: int, end: int) -> None:
        self._name += data[begin:end]

    def _value(self, data: bytes, begin: int, end: int) -> None:
        self._text += data[begin:end]

    def _header_end(self) -> None:
        if self._name.lower() == b"content-disposition":
            _, options = parse_options_header(self._text)
            filename = options.get(b"filename")
            self._part = FormPart(_text(options.get(b"name", b"")), None if filename is None else _text(filename))
        self._name = self._text = b""

    def _headers_end(self) -> None:
        self.found.append((self._part, b""))

    def _data(self, data: bytes, begin: int, end: int) -> None:
        self.found.append((self._part, data[begin:end]))

    def _end(self) -> None:
        self.ended = True


def _text(value: bytes) -> str:
    return value.decode("utf-8", "replace")


def _invalid_form(reason: object) -> BadRequest:
    return BadRequest(f"The multipart body is invalid. ({reason})", code="invalid_value")
