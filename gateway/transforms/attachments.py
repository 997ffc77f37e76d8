"""Convert attached files to text and images to base64.

A part `{"type": "file", "file": {"file_data": …, "filename": …}}`, in any message, becomes a text part `<file
name="…">…</file>`.  A stored or fetched file has bytes as `file_data`.  A file with `file_url` instead of
`file_data` has to be fetched first.  A part `{"type": "image_url", "image_url": {"url": …}}` has a data URL or the URL
of the image.  The type of a file or an image follows from its first bytes, not from its name.
"""

import re
from base64 import b64encode
from collections.abc import Callable, Iterator, Mapping
from html import escape
from typing import Any, Literal
from urllib.parse import unquote, unquote_to_bytes

from msgspec import Struct
from msgspec.structs import replace

from gateway.backends.data_urls import SLICE, base64_slices, image_type, is_base64_url
from gateway.errors import BadRequest
from gateway.request import Message, Request, are_large

FileOutcome = Literal["translated", "truncated", "dropped"]
Pdf = Callable[[bytes], tuple[str, bool]]  # returns the text of a PDF, and True if the text is complete

_NOTHING = "[no text could be read from this file]"
_CUT = "\n[the rest of this file was left out]"
_MAX_NAME = 255

_DATA_URI = re.compile(r"data:([^;,]*)((?:;[^;,]*)*),", re.IGNORECASE)
_CHARSET = re.compile(r";charset=\"?([\w.-]+)", re.IGNORECASE)
_KNOWN_CHARSET = re.compile(
    r"(us-)?ascii|utf-?(8|16|32)(-?[bl]e)?|(iso-?8859|windows|cp|latin)[-_]?\d+|koi8-[ru]|gb(k|2312|18030)|big5"
    r"|shift[-_]?jis|euc-(jp|kr)|macintosh",
    re.IGNORECASE,
)
_MEDIA_TYPE = re.compile(r"[\w.+-]+/[\w.+-]+")
_TEXT_TYPE = re.compile(r"text/.*|.*[/+-](json|xml|yaml|csv|toml|sql|javascript|typescript|sh)", re.IGNORECASE)
_TEXT_NAME = re.compile(
    r".*\.(txt|text|md|markdown|rst|tex|log|csv|tsv|jsonl?|xml|html?|css|ya?ml|toml|ini|cfg|conf|env|properties|sql"
    r"|py|pyi|rb|pl|php|lua|r|jl|js|mjs|cjs|jsx|ts|tsx|vue|java|kt|scala|groovy|c|h|cc|cpp|hpp|cs|m|swift|go|rs|zig|dart"
    r"|ex|exs|erl|hs|ml|clj|lisp|sh|bash|zsh|ps1|bat|diff|patch|vtt|srt)",
    re.IGNORECASE,
)
_BINARY = re.compile(r"[\x00-\x06\x0e-\x1a\x1c-\x1f]")  # control characters that do not occur in texts
Part = dict[str, Any]


class _AttachedFile(Struct, frozen=True):
    """A decoded file.

    type: the media type that the client gave; "" for none.
    charset: the character set that the client gave; "" for none.
    """

    name: str
    type: str
    charset: str
    data: bytes


def has_files(request: Request) -> bool:
    """Return True if a message has a file, or an image that is a stored file."""
    if request.is_text_only:
        return False
    contents = [content for message in request.messages if isinstance(content := message.get("content"), list)]
    return any([_is_file(part) or _is_stored_image(part) for content in contents for part in content])


def has_urls(request: Request) -> bool:
    """Return True if a message names a file or an image by its URL."""
    if request.past and request.past.has_image_urls:
        return True
    return any([_is_elsewhere(part) for message in request.messages for part in _parts(message)])


def file_urls(request: Request) -> dict[str, str]:
    """Return the URL of each file to fetch, with the path of its first occurrence.

    Raise BadRequest for a URL without http(s), with the path `messages[i].content[j].file.file_url`.
    """
    found: dict[str, str] = {}
    for i, message in enumerate(request.messages):
        for j, part in enumerate(_parts(message)):
            if _is_file(part) and (url := _elsewhere(part["file"])) is not None:
                param = f"messages[{i}].content[{j}].file.file_url"
                if not url[:8].lower().startswith(("http://", "https://")):
                    text = f"Invalid '{param}': expected a URL that starts with http:// or https://."
                    raise BadRequest(text, code="invalid_value", param=param)
                found.setdefault(url, param)
    return found


def inline_files(request: Request, fetched: Mapping[str, tuple[str, bytes]]) -> Request:
    """Return the request with fetched files in its messages.

    fetched: the content type and the bytes of each file by URL.  A file without a name gets the last part of its URL.
    """

    def inline(part: Any) -> Any:  # noqa: ANN401 - decoded JSON
        if not _is_file(part) or (url := _elsewhere(part["file"])) is None:
            return part
        name = part["file"].get("filename") or unquote(re.split("[?#]", url)[0].rstrip("/").rpartition("/")[2])
        type, data = fetched[url]
        return {**part, "file": {"file_data": data, "filename": name, "content_type": type}}

    def inline_all(message: Message) -> Message:
        parts = _parts(message)
        return {**message, "content": [*map(inline, parts)]} if any(map(_is_file, parts)) else message

    messages = tuple(map(inline_all, request.messages))
    return replace(request, messages=messages, large=are_large(messages))


def text_of_file(content_type: str, data: bytes) -> str:
    """Return the text of a fetched file other than a PDF; "" if it has none."""
    return _plain(_fetched_file("", content_type, data))


def _fetched_file(name: str, content_type: str, data: bytes) -> _AttachedFile:
    """Return a file with the server's media type and charset if it gave them."""
    text = "".join(content_type.split())
    type, charset = _MEDIA_TYPE.match(text), _CHARSET.search(text)
    return _AttachedFile(name, type[0] if type else "", charset[1] if charset else "", data)


def is_pdf(data: bytes) -> bool:
    """Return True if a file is a PDF."""
    return b"%PDF-" in data[:1024]


def pdfs(request: Request) -> list[bytes]:
    """Return the PDFs among the files of a request; raise BadRequest as `files_to_text` does."""
    files = [
        _file(part["file"], f"messages[{i}].content[{j}].file").data
        for i, message in enumerate(request.messages)
        for j, part in enumerate(_parts(message))
        if _is_file(part)
    ]
    return [*filter(is_pdf, files)]


def files_to_text(request: Request, pdf: Pdf) -> tuple[Request, frozenset[FileOutcome]]:
    """Return the request with files as texts, and the outcomes of the conversions.

    Raise BadRequest with the path of the invalid member, such as `messages[i].content[j].file.file_data`.

    pdf: returns the text of a PDF.
    """
    outcomes: set[FileOutcome] = set()

    def read_message(message: Message, param: str) -> Message:
        if not any(map(_is_file, _parts(message))):
            return message
        parts = [
            read_part(part, f"{param}.content[{i}].file") if _is_file(part) else part
            for i, part in enumerate(_parts(message))
        ]
        return {**message, "content": parts}

    def read_part(part: dict[str, Any], param: str) -> dict[str, Any]:
        file = _file(part["file"], param)
        text, whole = pdf(file.data) if is_pdf(file.data) else (_plain(file), True)
        outcomes.add("dropped" if not text else "translated" if whole else "truncated")
        body = (text or _NOTHING) + ("" if whole else _CUT)
        return {"type": "text", "text": f'<file name="{escape(file.name)}">{body}</file>'}

    messages = tuple(read_message(message, f"messages[{i}]") for i, message in enumerate(request.messages))
    return replace(request, messages=messages, large=are_large(messages)), frozenset(outcomes)


def _parts(message: Message) -> list[Any]:
    content = message.get("content")
    return content if isinstance(content, list) else []


def _is_file(part: Any) -> bool:  # noqa: ANN401 - decoded JSON
    return isinstance(part, dict) and part.get("type") == "file"


def _is_stored_image(part: Any) -> bool:  # noqa: ANN401 - decoded JSON
    return isinstance(part, dict) and part.get("type") == "image_url" and "url" not in part["image_url"]


def _is_elsewhere(part: Any) -> bool:  # noqa: ANN401 - decoded JSON
    if _is_file(part):
        return _elsewhere(part["file"]) is not None
    is_image = isinstance(part, dict) and part.get("type") == "image_url"
    return is_image and part["image_url"].get("url", "data:")[:5].lower() != "data:"


def _elsewhere(data: dict[str, Any]) -> str | None:
    """Return the URL of a file that was not sent along."""
    return data.get("file_url") if data.get("file_data") is None else None


def _file(body: dict[str, Any], param: str) -> _AttachedFile:
    encoded = body.get("file_data")
    if encoded is None:
        message = f"Missing required parameter: '{param}.file_data'."
        raise BadRequest(message, code="missing_required_parameter", param=f"{param}.file_data")
    name = " ".join(str(body.get("filename") or "file").split())[:_MAX_NAME]
    if isinstance(encoded, bytes):
        return _fetched_file(name, body.get("content_type", ""), encoded)
    uri = _DATA_URI.match(encoded)
    type, more = uri.groups() if uri else ("", ";base64")
    start, charset = uri.end() if uri else 0, _CHARSET.search(more)
    if not more.lower().endswith(";base64"):
        return _AttachedFile(name, type, charset[1] if charset else "", unquote_to_bytes(encoded[start:]))
    data = "".join(["".join(encoded[i : i + SLICE].split()) for i in range(start, len(encoded), SLICE)])
    try:
        return _AttachedFile(name, type, charset[1] if charset else "", b"".join(base64_slices(data)))
    except ValueError:
        message = f"Invalid '{param}.file_data': expected a data URI or base64."
        raise BadRequest(message, code="invalid_value", param=f"{param}.file_data") from None


def _plain(file: _AttachedFile) -> str:
    """Return all text of the file; "" for none."""
    for encoding in _encodings(file):
        try:
            text = file.data.decode(encoding)
        except (ValueError, LookupError):
            continue
        if text.strip() and not any(_BINARY.search(text, i, i + SLICE) for i in range(0, len(text), SLICE)):
            return text
    return ""


def _encodings(file: _AttachedFile) -> Iterator[str]:
    """Yield the possible encodings, the most likely first.

    Encodings that accept any bytes come only for files that are named or typed as text.
    """
    if _KNOWN_CHARSET.fullmatch(file.charset):
        yield file.charset
    yield "utf-8-sig"
    if file.data.startswith((b"\xff\xfe", b"\xfe\xff")):
        yield "utf-16"
    if _TEXT_TYPE.fullmatch(file.type) or _TEXT_NAME.fullmatch(file.name):
        yield from ("windows-1252", "latin-1")


def image_urls(request: Request) -> dict[str, str]:
    """Return the URL of each image to fetch, with the path of its first occurrence.

    Raise BadRequest unless an URL is base64 or has http(s), with the path `messages[i].content[j].image_url.url`.
    """
    found: dict[str, str] = {}
    for i, message in enumerate(request.messages):
        for j, part in _images(message):
            url, param = part["image_url"]["url"], f"messages[{i}].content[{j}].image_url.url"
            if url[:5].lower() == "data:":
                _check_data(url, param)
            elif url[:8].lower().startswith(("http://", "https://")):
                found.setdefault(url, param)
            else:
                text = f"Invalid '{param}': expected a data URL, or a URL that starts with http:// or https://."
                raise BadRequest(text, code="invalid_image_url", param=param)
    return found


def inline_images(request: Request, fetched: Mapping[str, bytes]) -> Request:
    """Return the request with fetched images in its messages.

    fetched: images by URL.
    """
    data = {url: image_data_url(image) for url, image in fetched.items()}
    messages = tuple(_inlined(message, data) for message in request.messages)
    return replace(request, messages=messages, large=are_large(messages))


def image_data_url(image: bytes) -> str:
    """Return the data URL of an image."""
    return f"data:{image_type(image)};base64,{_base64(image)}"


def _images(message: Message) -> Iterator[tuple[int, Part]]:
    content = message.get("content")
    for i, part in enumerate(content if isinstance(content, list) else ()):
        if part["type"] == "image_url":
            yield i, part


def _check_data(url: str, param: str) -> None:
    if not is_base64_url(url):
        raise BadRequest(f"Invalid '{param}': expected an image in base64.", code="invalid_base64_image", param=param)


def _base64(data: bytes) -> str:
    return "".join([b64encode(data[i : i + SLICE]).decode() for i in range(0, len(data), SLICE)])


def _inlined(message: Message, data: Mapping[str, str]) -> Message:
    places = {i: data[url] for i, part in _images(message) if (url := part["image_url"]["url"]) in data}
    if not places:
        return message
    content = [
        {**part, "image_url": {**part["image_url"], "url": places[i]}} if i in places else part
        for i, part in enumerate(message["content"])
    ]
    return {**message, "content": content}
