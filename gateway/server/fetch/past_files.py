"""Read the files that the earlier messages of a chain name, before they are encoded and kept."""

from collections.abc import Iterable, Mapping
from contextlib import AsyncExitStack

from msgspec import Struct

from gateway.errors import GatewayError
from gateway.server.fetch.pdf_reader import Pdfs
from gateway.server.fetch.stored_files import StoredFileReader
from gateway.transforms.past_messages import FileContents
from gateway.transforms.stored_files import FileReference


class PastFileReader(Struct, frozen=True):
    """Read stored files.  Of PDFs it has the remembered texts only, since reading one may end before all pages."""

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
