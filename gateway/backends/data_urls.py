"""Read data URLs in slices: decoding holds the interpreter's lock, and other threads wait meanwhile."""

from base64 import b64decode
from collections.abc import Iterator

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
