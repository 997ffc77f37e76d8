"""Uploads: files that arrive in parts.  Each part is a blob, until the upload becomes a file."""

from sqlalchemy import insert, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from gateway.store.records import StoredUpload
from gateway.store.tables import decode, encode, uploads


async def save(db: AsyncConnection, tenant: str, upload: StoredUpload) -> None:
    """Store a new upload."""
    times = {"created_at": upload.created_at, "expires_at": upload.expires_at}
    values = {"id": upload.id, "tenant": tenant, "status": upload.status, "bytes": upload.bytes, **times}
    await db.execute(insert(uploads), {**values, "body": encode(upload.body)})


async def find(db: AsyncConnection, tenant: str, id: str, *, lock: bool = False) -> StoredUpload | None:
    """Return the upload of a tenant, or None.  lock: no other transaction changes it until the end of this one."""
    query = select(uploads).where(uploads.c.id == id, uploads.c.tenant == tenant)
    row = (await db.execute(query.with_for_update() if lock else query)).one_or_none()
    return StoredUpload(row.id, row.created_at, row.expires_at, row.status, decode(row.body)) if row else None


async def set_status(db: AsyncConnection, id: str, status: str) -> None:
    """Change the status."""
    await db.execute(update(uploads).where(uploads.c.id == id).values(status=status))
