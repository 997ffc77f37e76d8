"""A program: read a PDF from standard input, and write the text of each page as a line of JSON.

The last line is true if all pages were written, else false.  It runs in a process of its own, as a malicious file may
take long, use much memory or crash its reader.  It has `pypdf`, and nothing of the gateway.
"""

import json
import sys
from collections.abc import Iterator
from contextlib import suppress
from io import BytesIO
from itertools import islice
from typing import Any

MAX_PAGES = 500
MAX_CHARACTERS = 1 << 20  # a PDF may hold far more than its size suggests
_CPU_SECONDS = 20
_MEMORY = 1 << 30  # bytes of address space
_LIMITS: dict[str, Any] = {
    "zlib_maximum_output_length": 16 << 20,
    "lzw_maximum_output_length": 16 << 20,
    "run_length_maximum_output_length": 16 << 20,
    "array_based_stream_maximum_output_length": 16 << 20,
    "stream_decoding_work_maximum_length": 64 << 20,
    "stream_parsing_work_maximum_count": 500_000,
    "xform_maximum_invocations_per_extraction": 500,
    "jbig2dec_binary": None,  # a program that would be started for an image
}


def pages(data: bytes) -> Iterator[str | bool]:
    """Yield the text of each page that can be read, then True if these are all pages, else False."""
    from pypdf import PdfReader, apply_configuration  # noqa: PLC0415 - within the limits

    size, whole = 0, False
    try:
        with apply_configuration(**_LIMITS):
            reader = PdfReader(BytesIO(data))  # tries the empty password, which most encrypted files have
            count = 0
            for page in islice(reader.pages, MAX_PAGES):
                text = page.extract_text()
                count += 1
                size += len(text)
                yield text[:MAX_CHARACTERS]
                if size > MAX_CHARACTERS:
                    break
            whole = count == len(reader.pages)
    except Exception:  # noqa: BLE001 - a broken file may break its parser anywhere
        whole = False
    yield whole


def limit() -> None:
    """Limit the CPU time and the memory of this process, where the system supports it."""
    with suppress(ImportError, ValueError, OSError):
        import resource  # noqa: PLC0415 - not on Windows

        resource.setrlimit(resource.RLIMIT_CPU, (_CPU_SECONDS, _CPU_SECONDS))
        resource.setrlimit(resource.RLIMIT_AS, (_MEMORY, _MEMORY))


if __name__ == "__main__":
    limit()
    for page in pages(sys.stdin.buffer.read()):
        sys.stdout.write(json.dumps(page) + "\n")
        sys.stdout.flush()  # the parent may stop this process at any time
