"""Read the files of /v1/files that a request names by id, within limits for all of them together."""

import re
import time
from collections.abc import Iterable, Mapping
from contextlib import AsyncExitStack, aclosing

from msgspec import Struct

from gateway.config import Config
from gateway.errors import BadRequest, GatewayError
from gateway.request import Request
from gateway.server.fetch.pdf_reader import Pdfs
from gateway.server.http.memory import Buffers, Room
from gateway.server.worker_thread import run_in_thread
from gateway.store import files
from gateway.store.database import Database
from gateway.store.file_store import FileStore
from gateway.store.records import StoredFile
from gateway.transforms.attachments import has_urls
from gateway.transforms.past_messages import FileContents
from gateway.transforms.stored_files import FileReference, StoredContent, file_references, inline_stored_files
from gateway.warnings import Warnings

_ID = re.compile(r"file-[0-9A-Za-z]{1,64}")  # other ids are those of other services


class StoredFileReader:
    """Read the stored files of requests.

    buffers: counts the memory of all requests in this process, to which the files add.
    """

    def __init__(self, database: Database, config: Config, buffers: Buffers) -> None:
        self._database, self._store, self._buffers = database, FileStore(database), buffers
        self._limits = {
            "file": (config.files.max_bytes, "files", "file_too_large"),
            "image_url": (config.images.max_bytes, "images", "image_file_too_large"),
        }
        self._memory = config.limits.memory_bytes

    def room_for_urls(self, request: Request, stack: AsyncExitStack) -> Room | None:
        """Return the room for what the request names by URL; None if it names nothing so.

        stack: ends with the response.
        """
        return stack.enter_context(Room(self._buffers, self._memory)) if has_urls(request) else None

    async def inline(self, request: Request, tenant: str, ledger: Warnings, stack: AsyncExitStack) -> Request:
        """Return the request with the content of the tenant's files; parts that name other files stay.

        Raise BadRequest for too much content, or for a file that is not an image.

        stack: ends with the response; until then the memory is counted.
        """
        references = file_references(request)
        past = request.past.files.sizes if request.past else {}
        contents = await self.contents(references, tenant, stack, past)
        if not contents:
            return request
        ledger.add("translated", "file_id")
        return await run_in_thread(inline_stored_files, request, references, contents)

    async def contents(
        self,
        references: Iterable[FileReference],
        tenant: str,
        stack: AsyncExitStack,
        past: Mapping[str, int],
    ) -> dict[str, StoredContent]:
        """Return the content of those files that are the tenant's, by id; raise BadRequest for too much content.

        past: the bytes of the files in the encoded past, by the type of part.
        """
        known = [one for one in references if _ID.fullmatch(one.id)]
        if not known:
            return {}
        async with self._database.reading() as db:
            found = await files.find_all(db, tenant, {one.id for one in known}, int(time.time()))
        if not found:
            return {}
        self._check_size(known, found, past)
        size = sum(found[one.id].bytes for one in known if one.id in found)
        await stack.enter_context(Room(self._buffers, self._memory)).grow(size)
        return {id: StoredContent(file.filename, await self._read(file)) for id, file in found.items()}

    def _check_size(
        self, references: Iterable[FileReference], found: dict[str, StoredFile], past: Mapping[str, int]
    ) -> None:
        """Raise BadRequest if the files take too much; a file counts each time that the request names it."""
        taken = {type: past.get(type, 0) for type in self._limits}
        for one in references:
            taken[one.type] += found[one.id].bytes if one.id in found else 0
            limit, section, code = self._limits[one.type]
            if taken[one.type] > limit:
                message = (
                    f"Invalid '{one.param}': the {section} that the request names by file_id exceed the limit of "
                    f"{limit} bytes in total ({section}.max_bytes). Send fewer or smaller ones."
                )
                raise BadRequest(message, code=code, param=one.param)

    async def _read(self, file: StoredFile) -> bytes:
        """Return the bytes of a file.  Raise StoreFailed if they are not all there."""
        async with aclosing(self._store.read(file)) as chunks:
            return b"".join([chunk async for chunk in chunks])


class PastFileReader(Struct, frozen=True):
    """Read the files that the earlier messages of a chain name, before they are encoded and kept.

    Of PDFs it has the remembered texts only, since reading one may end before all pages.
    """

    stored: StoredFileReader
    pdfs: Pdfs

    async def contents(
        self, references: Iterable[FileReference], tenant: str, stack: AsyncExitStack, past: Mapping[str, int]
    ) -> FileContents | None:
        """Return the contents of the tenant's files; None if they cannot be read now, or are too large.

        stack: counts their memory; past: the bytes of files that are encoded already, by the type of part.
        """
        try:
            stored = await self.stored.contents(references, tenant, stack, past)
        except GatewayError:  # the request will raise it
            return None
        return FileContents(stored, self.pdfs.known)
