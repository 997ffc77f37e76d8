"""How the C library keeps what Python frees: large blocks go back to the system at once."""

import ctypes
import os
from contextlib import suppress
from typing import Any

_library: Any = ctypes.CDLL(None) if os.name == "posix" else None
_MMAP_THRESHOLD = -3  # of mallopt(3)
_LARGE = 256 << 10  # bytes


def return_memory() -> None:
    """Keep bodies out of the heap, which small objects beside them would hold up; glibc alone knows of this.

    Without it glibc moves its threshold up to the largest block that was freed, and the next bodies go to the heap.
    """
    with suppress(AttributeError):
        _library.mallopt(_MMAP_THRESHOLD, _LARGE)


def trim() -> None:
    """Give free parts of the heap back to the system, which takes some milliseconds in which others run."""
    with suppress(AttributeError):
        _library.malloc_trim(0)
