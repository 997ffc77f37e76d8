"""Read the text of PDFs in processes of their own, a few at a time and at most two per API key."""

import asyncio
import os
import sys
from asyncio import StreamReader, StreamWriter
from asyncio.subprocess import DEVNULL, PIPE
from collections import Counter
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager, suppress
from hashlib import sha256
from pathlib import Path

from msgspec import DecodeError, json

from gateway.server.child_process import run_child
from gateway.server.fetch import pdf_pages
from gateway.server.worker_thread import run_in_thread

_COMMAND = (sys.executable, "-I", str(Path(pdf_pages.__file__)))
_LINE = 8 << 20  # bytes of a page, as JSON
_OF_A_KEY = 2  # PDFs of one API key at a time


_REMEMBERED = 4 << 20  # characters


def _digest(data: bytes) -> bytes:
    return sha256(data).digest()


def joined(pages: Iterable[str], *, whole: bool) -> tuple[str, bool]:
    """Return the text of pages, and whether it is complete; whole: these are all pages."""
    text, most = "\n\n".join(filter(None, map(str.strip, pages))), pdf_pages.MAX_CHARACTERS
    return text[:most], (whole and len(text) <= most) or not text


class Pdfs:
    """Read PDFs, at most `most` at a time, and remember the texts of the last ones that were read to the end."""

    def __init__(self, most: int = os.cpu_count() or 1) -> None:
        self._most, self._running = most, Counter[str]()
        self._changed = asyncio.Condition()
        self._texts: dict[bytes, tuple[str, bool]] = {}
        self._characters = 0  # of all these texts

    def known(self, data: bytes) -> tuple[str, bool]:
        """Return the text of a PDF that is remembered, as `text` does.  Raise LookupError for another one."""
        return self._texts[_digest(data)]

    async def text(self, data: bytes, tenant: str, seconds: float) -> tuple[str, bool]:
        """Return the text of the pages read within `seconds`, and whether it is complete; "" for none."""
        digest = await run_in_thread(_digest, data)
        if found := self._texts.get(digest):
            return found
        pages: list[str] = []
        whole = False
        with suppress(TimeoutError, DecodeError):
            async with asyncio.timeout(seconds), self._turn(tenant), _reading(data) as lines:
                async for line in lines:
                    value = json.decode(line, type=str | bool)
                    if isinstance(value, str):
                        pages.append(value)
                    else:
                        whole = value
        found = joined(pages, whole=whole)
        if whole:
            self._remember(digest, found)
        return found

    def _remember(self, digest: bytes, found: tuple[str, bool]) -> None:
        if digest not in self._texts:  # another request may have read the same one
            self._texts[digest] = found
            self._characters += len(found[0])
        while self._characters > _REMEMBERED:
            text, _ = self._texts.pop(next(iter(self._texts)))
            self._characters -= len(text)

    @asynccontextmanager
    async def _turn(self, tenant: str) -> AsyncIterator[None]:
        async with self._changed:
            await self._changed.wait_for(lambda: self._has_room(tenant))
            self._running[tenant] += 1
        try:
            yield
        finally:
            self._running[tenant] -= 1
            self._running += Counter()  # drops the tenants without a process
            async with self._changed:
                self._changed.notify_all()

    def _has_room(self, tenant: str) -> bool:
        return self._running.total() < self._most and self._running[tenant] < _OF_A_KEY


@asynccontextmanager
async def _reading(data: bytes) -> AsyncIterator[StreamReader]:
    """Yield the output lines of a process that reads the PDF; the process is killed at the end of the block."""
    async with run_child(*_COMMAND, stdin=PIPE, stdout=PIPE, stderr=DEVNULL, env={}, limit=_LINE) as process:
        assert process.stdin and process.stdout
        writing = asyncio.create_task(_write(process.stdin, data))
        try:
            yield process.stdout
        finally:
            writing.cancel()
            await asyncio.gather(writing, return_exceptions=True)


async def _write(pipe: StreamWriter, data: bytes) -> None:
    pipe.write(data)
    await pipe.drain()
    pipe.close()
