"""Test the audit log: each change of a key has an entry without secrets, and old entries are deleted."""

import asyncio

import pytest

from gateway.errors import BadRequest
from gateway.store import api_keys, audit_log, expiry
from gateway.store.audit_log import AuditEntry

NOW = 1000


def edit(now=NOW, actor="key:ops"):
    return api_keys.KeyEdit(now, actor)


async def entries(store, count=100, **where):
    async with store.reading() as db:
        return [entry.shown() for entry in await audit_log.read(db, count, **where)]


async def test_audit_log_has_who_changed_what_and_when(store):
    async with store.writing() as db:
        _, first = await api_keys.add(db, {"name": "ci", "owner": "Ann", "limits": {"concurrent": 2}}, edit())
        await api_keys.change(db, "ci", {"owner": None, "models": ["m"]}, edit(NOW + 1, "cli:root"))
        _, second = await api_keys.rotate(db, "ci", 60, edit(NOW + 2))
        await api_keys.revoke(db, "ci", edit(NOW + 3, "sso:ann"))
        with pytest.raises(BadRequest):
            await api_keys.revoke(db, "ci", edit(NOW + 4))
    found = await entries(store)
    assert [(one["created_at"], one["actor"], one["action"], one["key"], one["changes"]) for one in found] == [
        (NOW + 3, "sso:ann", "key.revoked", "ci", [{"path": "revoked_at", "from": None, "to": NOW + 3}]),
        (
            NOW + 2,
            "key:ops",
            "key.rotated",
            "ci",
            [{"path": "key", "secret": "changed"}, {"path": "former_until", "from": None, "to": NOW + 62}],
        ),
        (
            NOW + 1,
            "cli:root",
            "key.changed",
            "ci",
            [{"path": "models", "from": None, "to": ["m"]}, {"path": "owner", "from": "Ann", "to": ""}],
        ),
        (
            NOW,
            "key:ops",
            "key.added",
            "ci",
            [{"path": "limits.concurrent", "from": 0, "to": 2}, {"path": "owner", "from": "", "to": "Ann"}],
        ),
    ]
    assert "sha256" not in str(found) and first not in str(found) and second not in str(found)


async def test_audit_log_has_no_entry_of_a_change_that_is_rolled_back(store):
    with pytest.raises(RuntimeError):
        async with store.writing() as db:
            await api_keys.add(db, {"name": "ci"}, edit())
            raise RuntimeError
    assert await entries(store) == []


async def test_audit_log_is_read_page_by_page(store):
    async def added(at):
        async with store.writing() as db:
            await audit_log.add(db, AuditEntry(at, "gateway:a", "configuration.reloaded", None, []))

    await asyncio.gather(*map(added, range(5)))
    everything = [one["id"] for one in await entries(store)]
    assert sorted(everything, key=int, reverse=True) == everything and len({*everything}) == 5
    assert [one["id"] for one in await entries(store, 2)] == everything[:2]
    assert [one["id"] for one in await entries(store, 2, after=int(everything[1]))] == everything[2:4]
    oldest = everything[::-1]
    assert [one["id"] for one in await entries(store, 2, newest_first=False)] == oldest[:2]
    assert [one["id"] for one in await entries(store, 9, newest_first=False, after=int(oldest[1]))] == oldest[2:]


async def test_audit_log_keeps_the_newest_entries(store, monkeypatch):
    monkeypatch.setattr(expiry, "MAX_ENTRIES", 3)
    async with store.writing() as db:
        for at in range(5):
            await audit_log.add(db, AuditEntry(at, "gateway:a", "configuration.reloaded", None, []))
    for _ in range(2):
        await expiry.expire(store, NOW, 1, 0)
        assert [one["created_at"] for one in await entries(store)] == [4, 3, 2]
