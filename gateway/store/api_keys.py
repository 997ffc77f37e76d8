"""API keys that operators make while the gateway runs.  The store has their digests only.

Each change is in the audit log.  It has a number, so that a process reads only what changed since it last asked.  Keys
are never deleted: the name of a revoked key stays the tenant that owns stored data.
"""

import secrets
from collections.abc import Mapping
from typing import Any

from msgspec import Struct
from pydantic import ValidationError
from sqlalchemy import bindparam, func, insert, select, text, update
from sqlalchemy.ext.asyncio import AsyncConnection

from gateway.config import AuthSettings, key_digest
from gateway.config.difference import differences
from gateway.config.explanation import nearest_name
from gateway.config.stored_keys import SETTABLE, StoredApiKey, key_fault
from gateway.errors import BadRequest, NotFound
from gateway.store import audit_log
from gateway.store.audit_log import AuditAction, AuditEntry
from gateway.store.jobs import notify
from gateway.store.records import ApiKeyRow
from gateway.store.tables import api_keys, decode, encode

CHANNEL = "gateway_api_keys"  # processes are notified here of a change
_LAST_DATE = 253_402_300_799  # Unix seconds; dates end with the year 9999
_LOCK = text("LOCK TABLE api_keys IN SHARE ROW EXCLUSIVE MODE")  # PostgreSQL; SQLite has one writer
_VERSION = select(func.coalesce(func.max(api_keys.c.version), 0))
_CHANGED = select(api_keys).where(api_keys.c.version > bindparam("after")).order_by(api_keys.c.name)
_FIND = select(api_keys.c.body).where(api_keys.c.name == bindparam("this"))
_ADD = insert(api_keys)
_CHANGE = update(api_keys).where(api_keys.c.name == bindparam("this"))


class KeyEdit(Struct, frozen=True):
    """The circumstances of a change.

    now: Unix seconds.
    actor: the author for the audit log: `key:NAME`, `sso:NAME` or `cli:USER`.
    auth: the settings whose keys hide stored ones, and whose groups a key may have.
    """

    now: int
    actor: str
    auth: AuthSettings = AuthSettings()


def new_key() -> str:
    """Return a new key, for a client."""
    return f"gw-{secrets.token_urlsafe(32)}"


async def version(db: AsyncConnection) -> int:
    """Return the number of the last change; 0 without keys."""
    return int(await db.scalar(_VERSION) or 0)


async def read(db: AsyncConnection, after: int = 0) -> list[ApiKeyRow]:
    """Return the keys that changed after the change with this number, in the order of their names."""
    return [ApiKeyRow(*row) for row in await db.execute(_CHANGED, {"after": after})]


def parse(body: bytes) -> StoredApiKey:
    """Return the key that a row has.  Raises ValidationError for a row of a newer release."""
    return StoredApiKey.model_validate(decode(body))


async def add(db: AsyncConnection, fields: Mapping[str, Any], edit: KeyEdit) -> tuple[StoredApiKey, str]:
    """Add a key with these fields; return it, and the key for the client.  Raises BadRequest."""
    secret = new_key()
    fresh = {"key": key_digest(secret), "created_at": edit.now}
    key = _validated(fresh, fields, edit)
    change = await _begin(db)
    taken = {written.name for written in edit.auth.keys}
    if key.name in taken or await db.scalar(_FIND, {"this": key.name}) is not None:
        message = f"The name '{key.name}' is in use, perhaps by a revoked key. Choose another name."
        raise BadRequest(message, code="key_exists", param="name")
    await db.execute(_ADD, {"name": key.name, "version": change, "body": encode(key.body())})
    await notify(db, CHANNEL, [str(change)])
    await _log(db, "key.added", StoredApiKey.model_validate({"name": key.name, **fresh}), key, edit)
    return key, secret


async def change(db: AsyncConnection, name: str, fields: Mapping[str, Any], edit: KeyEdit) -> StoredApiKey:
    """Change fields of a key; None sets a default.  Raises BadRequest or NotFound."""
    if "name" in fields:
        raise BadRequest("The name of a key cannot change. Add another key, and revoke this one.", param="name")
    number, key = await _begin(db), await _active(db, name)
    changed = _validated(key.body(), fields, edit)
    await _save(db, changed, number)
    await _log(db, "key.changed", key, changed, edit)
    return changed


async def rotate(db: AsyncConnection, name: str, grace_seconds: int, edit: KeyEdit) -> tuple[StoredApiKey, str]:
    """Replace a key; return it, and the new key for the client.  The old one is valid for some seconds more."""
    number, key, secret = await _begin(db), await _active(db, name), new_key()
    digests = [key_digest(secret), key.key[0].get_secret_value()]
    changed = StoredApiKey.model_validate({**key.body(), "key": digests, "former_until": edit.now + grace_seconds})
    await _save(db, changed, number)
    await _log(db, "key.rotated", key, changed, edit)
    return changed, secret


async def revoke(db: AsyncConnection, name: str, edit: KeyEdit) -> StoredApiKey:
    """End the validity of a key for good.  Raises NotFound."""
    number, key = await _begin(db), await _active(db, name)
    changed = StoredApiKey.model_validate({**key.body(), "revoked_at": edit.now})
    await _save(db, changed, number)
    await _log(db, "key.revoked", key, changed, edit)
    return changed


async def _begin(db: AsyncConnection) -> int:
    """Let changes take turns, and return the number of this one."""
    if db.dialect.name == "postgresql":
        await db.execute(_LOCK)
    return await version(db) + 1


async def _active(db: AsyncConnection, name: str) -> StoredApiKey:
    body = await db.scalar(_FIND, {"this": name})
    if body is None:
        raise NotFound(f"The store has no key of the name '{name}'.", code="key_not_found")
    key = parse(body)
    if key.revoked_at is not None:
        raise BadRequest(f"Key '{name}' is revoked. Add a key of another name.", code="key_revoked")
    return key


async def _save(db: AsyncConnection, key: StoredApiKey, number: int) -> None:
    await db.execute(_CHANGE, {"this": key.name, "version": number, "body": encode(key.body())})
    await notify(db, CHANNEL, [str(number)])


async def _log(
    db: AsyncConnection, action: AuditAction, before: StoredApiKey, after: StoredApiKey, edit: KeyEdit
) -> None:
    entry = AuditEntry(edit.now, edit.actor, action, after.name, differences(before, after))
    await audit_log.add(db, entry)


def _validated(known: Mapping[str, Any], fields: Mapping[str, Any], edit: KeyEdit) -> StoredApiKey:
    """Return a key with changed fields.  Raises BadRequest."""
    if strange := [name for name in fields if name not in SETTABLE]:
        raise BadRequest(
            f"'{strange[0]}' is no field of a key. Fields: {', '.join(SETTABLE)}.",
            code="unknown_parameter",
            param=strange[0],
        )
    try:
        key = StoredApiKey.model_validate({**known, **fields})
    except ValidationError as error:
        field, fault = key_fault(error)
        raise BadRequest(f"{field}: {fault}.", code="invalid_value", param=field) from None
    _check_group(fields.get("group"), edit.auth)
    if "expires_at" in fields and key.expires_at is not None:
        _check_expiry(key.expires_at, edit.now)
    return key


def _check_expiry(expires_at: int, now: int) -> None:
    """Raise BadRequest for an end in the past, or behind the last date: most likely it is in milliseconds."""
    if expires_at <= now:
        raise BadRequest("'expires_at' is in the past.", code="invalid_value", param="expires_at")
    if expires_at > _LAST_DATE:
        message = f"'expires_at' is {expires_at}, after the year 9999. Give it in Unix seconds."
        raise BadRequest(message, code="invalid_value", param="expires_at")


def _check_group(group: str | None, auth: AuthSettings) -> None:
    """Raise BadRequest for a group without budgets, whose keys would have no limit."""
    if group is not None and group not in auth.groups:
        text = f"group: unknown group '{group}' in auth.groups; {nearest_name(group, auth.groups)}."
        raise BadRequest(text, code="invalid_value", param="group")
