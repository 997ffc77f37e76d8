"""Write and read the bytes of files in chunks, so that no file is in memory.

With SQLite the blobs are in a folder beside the database, which only the owner can read.  A blob has another name while
it is written.  PostgreSQL, and SQLite in memory, have them in rows.
"""

import asyncio
import os
import time
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Collection, Iterable, Iterator
from contextlib import aclosing, asynccontextmanager, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import TypeVar

from gateway.errors import StoreFailed
from gateway.store import blobs
from gateway.store.database import Database
from gateway.store.records import FileQuota, StoredFile

CHUNK = 1 << 20  # bytes that are written and read at a time
_UNFINISHED = ".part"
_T = TypeVar("_T")


class BlobFolder:
    """Blobs in a folder; a file for each."""

    def __init__(self, folder: Path, failed: Callable[[], None]) -> None:
        self._folder, self._failed = folder, failed

    async def append(self, id: str, _: int, data: bytes) -> None:
        """Write the next chunk of a blob."""
        await self._run(partial(_append, self._unfinished(id), data))

    async def seal(self, id: str) -> None:
        """Give a blob its name, after all of it is on the disk."""
        await self._run(partial(_seal, self._unfinished(id), self._folder / id))

    async def read(self, id: str) -> AsyncGenerator[bytes]:
        """Yield the chunks of a blob."""
        file = await self._run(lambda: (self._folder / id).open("rb"))
        try:
            while chunk := await self._run(partial(file.read, CHUNK)):
                yield chunk
        finally:
            file.close()

    async def remove(self, ids: Collection[str]) -> None:
        """Delete blobs.  `sweep` deletes those that cannot be deleted now."""
        await asyncio.to_thread(_remove, [path for id in ids for path in (self._folder / id, self._unfinished(id))])

    async def names(self) -> list[str]:
        """Return the ids of all blobs in the folder."""
        found = await asyncio.to_thread(_names, self._folder)
        return [name.removesuffix(_UNFINISHED) for name in found]

    def _unfinished(self, id: str) -> Path:
        return self._folder / f"{id}{_UNFINISHED}"

    async def _run(self, work: Callable[[], _T]) -> _T:
        """Return the result of `work` in a thread; raise StoreFailed for an error of the file system."""
        with self._reporting():
            return await asyncio.to_thread(work)

    @contextmanager
    def _reporting(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            self._failed()
            raise StoreFailed("The gateway's files are unavailable. Retry later.") from error


class BlobRows:
    """Blobs in rows of the database; their rows of `blobs` delete them."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def append(self, id: str, place: int, data: bytes) -> None:
        """Write a chunk of a blob."""
        await self._database.run_writing(lambda db: blobs.append(db, id, place, data))

    async def seal(self, id: str) -> None:
        """Do nothing: the rows are there."""

    async def read(self, id: str) -> AsyncGenerator[bytes]:
        """Yield the chunks of a blob."""
        place = 0
        while chunk := await self._database.run_reading(partial(blobs.read, id=id, place=place)):
            yield chunk
            place += 1

    async def remove(self, ids: Collection[str]) -> None:
        """Do nothing: the rows are gone."""

    async def names(self) -> list[str]:
        """Return nothing: no blob is left behind."""
        return []


class BlobWriter:
    """Collect the bytes of a blob into chunks.

    append: stores a chunk by its place.
    size: bytes so far.
    """

    def __init__(self, id: str, append: Callable[[int, bytes], Awaitable[None]]) -> None:
        self.id, self.size = id, 0
        self._append, self._place, self._rest = append, 0, bytearray()

    async def write(self, data: bytes) -> None:
        """Add bytes."""
        self.size += len(data)
        self._rest += data
        while len(self._rest) >= CHUNK:
            await self._flush()

    async def end(self) -> None:
        """Store the last chunk, which is empty only for an empty blob."""
        if self._rest or not self._place:
            await self._flush()

    async def _flush(self) -> None:
        chunk = bytes(self._rest[:CHUNK])
        del self._rest[:CHUNK]
        await self._append(self._place, chunk)
        self._place += 1


class FileStore:
    """The bytes of all files of a database."""

    def __init__(self, database: Database) -> None:
        folder = database.folder
        self._database = database
        self._contents = BlobFolder(folder, database.failed) if folder else BlobRows(database)

    @asynccontextmanager
    async def writing(self, quota: FileQuota, id: str, reserved: int) -> AsyncIterator[BlobWriter]:
        """Begin a blob.  The block writes it, calls `seal` and then `blobs.keep`; an error in it deletes the blob.

        reserved: bytes that count already.  Raise BadRequest beyond the quota, and StoreFailed.
        """
        async with self._database.writing() as db:
            await blobs.reserve(db, quota, id, reserved, int(time.time()))
        try:
            yield BlobWriter(id, partial(self._append, id))
        except BaseException:
            await self._database.run_writing(partial(blobs.release, id=id))
            await self.remove([id])
            raise

    async def seal(self, blob: BlobWriter) -> None:
        """Store the rest of a blob, and make it readable."""
        await blob.end()
        await self._contents.seal(blob.id)

    async def read(self, file: StoredFile) -> AsyncGenerator[bytes]:
        """Yield the bytes of a file in chunks.  Raise StoreFailed if they are not all there."""
        async with self._database.reading() as db:
            ids = await blobs.of_file(db, file.id)
        left = file.bytes
        async with aclosing(self.chunks(ids)) as chunks:
            async for chunk in chunks:
                left -= len(chunk)
                yield chunk
        if left:
            raise StoreFailed("The file was deleted while it was read.")

    async def chunks(self, ids: Iterable[str]) -> AsyncGenerator[bytes]:
        """Yield the bytes of blobs, one blob after another."""
        for id in ids:
            async with aclosing(self._contents.read(id)) as chunks:
                async for chunk in chunks:
                    yield chunk

    async def remove(self, ids: Collection[str]) -> None:
        """Delete the bytes of blobs whose rows are deleted."""
        await self._contents.remove(ids)

    async def sweep(self) -> None:
        """Delete bytes that no blob has any more, for example after the end of a process."""
        names = await self._contents.names()  # read first: the row of a blob is older than its bytes
        if names:
            async with self._database.reading() as db:
                known = await blobs.known(db, names)
            await self.remove([*{*names} - known])

    async def _append(self, id: str, place: int, data: bytes) -> None:
        await self._database.run_writing(lambda db: blobs.renew(db, id, int(time.time())))
        await self._contents.append(id, place, data)


def _names(folder: Path) -> list[str]:
    return [path.name for path in folder.iterdir()] if folder.exists() else []


def _append(path: Path, data: bytes) -> None:
    path.parent.mkdir(mode=0o700, exist_ok=True)
    path.touch(mode=0o600)
    with path.open("ab") as file:
        file.write(data)


def _seal(path: Path, sealed: Path) -> None:
    with path.open("rb") as file:
        os.fsync(file.fileno())
    path.rename(sealed)


def _remove(paths: Iterable[Path]) -> None:
    for path in paths:
        with suppress(OSError):
            path.unlink(missing_ok=True)
