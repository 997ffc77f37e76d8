"""How the C library keeps what Python frees: large blocks go back to the system at once."""

import ctypes
from contextlib import suppress

_MMAP_THRESHOLD = -3  # of mallopt(3)
_LARGE = 256 << 10  # bytes


def return_memory() -> None:
    """Keep bodies out of the heap, which small objects beside them would hold up; glibc alone knows of this.

    Without it glibc moves its threshold up to the largest block that was freed, and the next bodies go to the heap.
    """
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).mallopt(_MMAP_THRESHOLD, _LARGE)
