"""Files of tenants, and uploads: files that arrive in parts.

`blobs` has the rows of their bytes; each part of an upload is a blob, until the upload becomes a file.
"""

from collections.abc import Collection, Iterator
from typing import Any

from sqlalchemy import ColumnElement, bindparam, delete, insert, or_, select, tuple_, update
from sqlalchemy.ext.asyncio import AsyncConnection

from gateway.store.engines import listed
from gateway.store.records import FileFilter, StoredFile, StoredUpload
from gateway.store.tables import decode, encode, files, uploads

_AGE = (files.c.created_at, files.c.id)
_FOUND = {
    dialect: select(files).where(
        files.c.tenant == bindparam("tenant"),
        or_(files.c.expires_at.is_(None), files.c.expires_at > bindparam("now")),
        among,
    )
    for dialect, among in listed(files.c.id).items()
}
_FOUND_IDS = {dialect: query.with_only_columns(files.c.id) for dialect, query in _FOUND.items()}


async def save(db: AsyncConnection, tenant: str, file: StoredFile) -> None:
    """Store a new file; the caller gives it its blobs in the same transaction."""
    values = {
        "id": file.id,
        "tenant": tenant,
        "created_at": file.created_at,
        "expires_at": file.expires_at,
        "purpose": file.purpose,
        "bytes": file.bytes,
        "name": file.filename.encode(),
    }
    await db.execute(insert(files), values)


async def find(db: AsyncConnection, tenant: str, id: str, now: int) -> StoredFile | None:
    """Return the file of a tenant; None if it has expired."""
    return (await find_all(db, tenant, [id], now)).get(id)


async def find_all(db: AsyncConnection, tenant: str, ids: Collection[str], now: int) -> dict[str, StoredFile]:
    """Return those files of a tenant that have not expired, by id."""
    rows = await db.execute(_FOUND[db.dialect.name], {"tenant": tenant, "now": now, "ids": ids})
    return {row.id: _file(row) for row in rows}


async def has_all(db: AsyncConnection, tenant: str, ids: Collection[str], now: int) -> bool:
    """Return True if the tenant has all these different files, and none has expired."""
    if not ids:
        return True
    rows = await db.execute(_FOUND_IDS[db.dialect.name], {"tenant": tenant, "now": now, "ids": ids})
    return len(rows.all()) == len(ids)


async def page(
    db: AsyncConnection,
    tenant: str,
    wanted: FileFilter,
    limit: int,
    *,
    newest_first: bool = False,
    behind: StoredFile | None = None,
) -> list[StoredFile]:
    """Return a page of matching files, ordered by creation time.

    behind: the last file of the page before.
    """
    query = select(files).where(*_visible(tenant, wanted))
    if behind:
        here, last = tuple_(*_AGE), tuple_(behind.created_at, behind.id)
        query = query.where(here < last if newest_first else here > last)
    order = [column.desc() for column in _AGE] if newest_first else _AGE
    return [*map(_file, await db.execute(query.order_by(*order).limit(limit)))]


async def remove(db: AsyncConnection, id: str) -> None:
    """Delete a file and its blobs."""
    await db.execute(delete(files).where(files.c.id == id))


def _visible(tenant: str, wanted: FileFilter) -> Iterator[ColumnElement[bool]]:
    yield files.c.tenant == tenant
    yield or_(files.c.expires_at.is_(None), files.c.expires_at > wanted.now)
    if wanted.purpose is not None:
        yield files.c.purpose == wanted.purpose


def _file(row: Any) -> StoredFile:  # noqa: ANN401 - of `files`
    return StoredFile(row.id, row.created_at, row.expires_at, row.purpose, row.bytes, row.name.decode())


async def save_upload(db: AsyncConnection, tenant: str, upload: StoredUpload) -> None:
    """Store a new upload."""
    times = {"created_at": upload.created_at, "expires_at": upload.expires_at}
    values = {"id": upload.id, "tenant": tenant, "status": upload.status, "bytes": upload.bytes, **times}
    await db.execute(insert(uploads), {**values, "body": encode(upload.body)})


async def find_upload(db: AsyncConnection, tenant: str, id: str, *, lock: bool = False) -> StoredUpload | None:
    """Return the upload of a tenant, or None.  lock: no other transaction changes it until the end of this one."""
    query = select(uploads).where(uploads.c.id == id, uploads.c.tenant == tenant)
    row = (await db.execute(query.with_for_update() if lock else query)).one_or_none()
    return StoredUpload(row.id, row.created_at, row.expires_at, row.status, decode(row.body)) if row else None


async def set_upload_status(db: AsyncConnection, id: str, status: str) -> None:
    """Change the status of an upload."""
    await db.execute(update(uploads).where(uploads.c.id == id).values(status=status))
