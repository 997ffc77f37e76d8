"""Read data URLs in slices: decoding holds the interpreter's lock, and other threads wait meanwhile."""

from base64 import b64decode
from collections.abc import Iterator

_HEAD = 16  # characters of base64 that show the type of an image
SLICE = 3 << 17  # bytes or characters of a file that take a millisecond


def is_base64_url(url: str) -> bool:
    """Return True for a data URL with the base64 of some bytes."""
    head, _, data = url.partition(",")
    head = head.lower()
    if not (head.startswith("data:") and head.endswith(";base64")):
        return False
    try:
        return any([*base64_slices(data)])
    except ValueError:
        return False


def base64_slices(data: str) -> Iterator[bytes]:
    """Yield the bytes of base64 in slices; raise ValueError for other text."""
    starts = range(0, len(data), SLICE)
    if starts and data.find("=", 0, starts[-1]) >= 0:
        raise ValueError("Only the last slice may have padding.")
    for i in starts:
        yield b64decode(data[i : i + SLICE], validate=True)


def image_type(data: bytes) -> str | None:
    """Return the media type of a PNG, JPEG, GIF or WebP image, the API's types; None for other data."""
    if data.startswith(b"\x89PNG\r\n\x1a\n"):
        return "image/png"
    if data.startswith(b"\xff\xd8\xff"):
        return "image/jpeg"
    if data.startswith((b"GIF87a", b"GIF89a")):
        return "image/gif"
    return "image/webp" if data[:4] == b"RIFF" and data[8:12] == b"WEBP" else None


def base64_image_type(data: str) -> str | None:
    """Return the media type of an image in base64, as `image_type` does."""
    try:
        return image_type(b64decode(data[:_HEAD]))
    except ValueError:
        return None
