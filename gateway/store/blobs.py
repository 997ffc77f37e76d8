"""Blobs: the bytes of a file, or of a part of an upload.  This module has their rows; `file_store` has their bytes."""

from collections.abc import Collection, Sequence

from sqlalchemy import BigInteger, bindparam, delete, func, insert, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from gateway.errors import BadRequest, StoreFailed
from gateway.store.engines import chunked
from gateway.store.records import FileQuota
from gateway.store.tables import blobs, chunks

LEASE = 3600  # seconds without another chunk, after which a blob that is being written counts as abandoned

_THIS = blobs.c.id == bindparam("this")
_RESERVE, _APPEND = insert(blobs), insert(chunks)
_RENEW = update(blobs).where(_THIS, blobs.c.valid_until.is_not(None)).values(valid_until=bindparam("until", BigInteger))
_RELEASE = delete(blobs).where(_THIS)
_READ = select(chunks.c.data).where(chunks.c.blob == bindparam("this"), chunks.c.place == bindparam("at"))


async def reserve(db: AsyncConnection, quota: FileQuota, id: str, size: int, now: int) -> None:
    """Begin a blob, and count `size` bytes for it.  Raise BadRequest beyond the quota."""
    await _check_quota(db, quota, id, size)
    row = {"id": id, "tenant": quota.tenant, "bytes": size, "place": 0, "valid_until": now + LEASE}
    await db.execute(_RESERVE, row)


async def renew(db: AsyncConnection, id: str, now: int) -> None:
    """Extend the lease of a blob that is being written; raise StoreFailed if it has ended."""
    if not (await db.execute(_RENEW, {"this": id, "until": now + LEASE})).rowcount:
        raise _abandoned()


async def append(db: AsyncConnection, id: str, place: int, data: bytes) -> None:
    """Store the next chunk of a blob in a row."""
    await db.execute(_APPEND, {"blob": id, "place": place, "data": data})


async def read(db: AsyncConnection, id: str, place: int) -> bytes | None:
    """Return a chunk; None behind the last one."""
    row = (await db.execute(_READ, {"this": id, "at": place})).one_or_none()
    return row.data if row else None


async def keep(
    db: AsyncConnection, quota: FileQuota, id: str, size: int, *, file: str | None = None, upload: str | None = None
) -> None:
    """Make a blob of `size` bytes a part of a file or of an upload.

    Raise BadRequest beyond the quota, and StoreFailed if the lease has ended.
    """
    await _check_quota(db, quota, id, size)
    values = {"bytes": size, "file": file, "upload": upload, "valid_until": None}
    if not (await db.execute(update(blobs).where(blobs.c.id == id).values(**values))).rowcount:
        raise _abandoned()


async def release(db: AsyncConnection, id: str) -> None:
    """Delete a blob."""
    await db.execute(_RELEASE, {"this": id})


async def of_file(db: AsyncConnection, file: str) -> list[str]:
    """Return the blobs of a file in their order."""
    rows = await db.execute(select(blobs.c.id).where(blobs.c.file == file).order_by(blobs.c.place))
    return [*rows.scalars()]


async def of_upload(db: AsyncConnection, upload: str) -> dict[str, int]:
    """Return the bytes of each blob of an upload."""
    rows = await db.execute(select(blobs.c.id, blobs.c.bytes).where(blobs.c.upload == upload))
    return {row.id: row.bytes for row in rows}


async def release_upload(db: AsyncConnection, upload: str) -> list[str]:
    """Delete the blobs of an upload, and return their ids."""
    return [*(await db.execute(delete(blobs).where(blobs.c.upload == upload).returning(blobs.c.id))).scalars()]


async def move(db: AsyncConnection, ids: Sequence[str], file: str) -> None:
    """Make blobs of an upload those of a file, in this order."""
    moved = update(blobs).where(_THIS).values(file=file, upload=None, place=bindparam("at"))
    await db.execute(moved, [{"this": id, "at": place} for place, id in enumerate(ids)])


async def known(db: AsyncConnection, ids: Collection[str]) -> set[str]:
    """Return the ids of those blobs that have a row."""
    return {
        id
        for some in chunked(ids)
        for id in (await db.execute(select(blobs.c.id).where(blobs.c.id.in_(some)))).scalars()
    }


async def _check_quota(db: AsyncConnection, quota: FileQuota, id: str, size: int) -> None:
    """Raise BadRequest if the other blobs of the tenant leave no room for so many bytes."""
    if db.dialect.name == "postgresql":  # SQLite has one writer
        await db.execute(select(func.pg_advisory_xact_lock(func.hashtext(quota.tenant))))
    used = select(func.coalesce(func.sum(blobs.c.bytes), 0)).where(blobs.c.tenant == quota.tenant, blobs.c.id != id)
    taken = int(await db.scalar(used) or 0)
    if taken + size > quota.bytes:
        message = (
            f"The files of your API key would take {taken + size} bytes, more than the limit of {quota.bytes} "
            "(limits.tenant_file_bytes). Delete files, or ask the operator for a higher limit."
        )
        raise BadRequest(message, code="file_quota_exceeded")


def _abandoned() -> StoreFailed:
    return StoreFailed("The file was not stored: nothing of it arrived for an hour. Send it again.")
