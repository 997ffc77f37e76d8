"""Test API keys in the store: they have digests only, and each change has a number."""

import asyncio

import pytest
from pydantic import ValidationError

from gateway.config import ApiKey, AuthSettings, key_digest
from gateway.errors import BadRequest, NotFound
from gateway.store import api_keys
from gateway.store.tables import encode

NOW = 1000
NOW_EDIT = api_keys.KeyEdit(NOW, "cli:me")
WRITTEN = AuthSettings(keys=(ApiKey(name="taken", key="x"),), groups={"team-a": {}})


async def add(db, name="ci", **fields):
    """Add a key, and return it with the secret."""
    return await api_keys.add(db, {"name": name, **fields}, NOW_EDIT)


async def stored(db):
    """Return the keys of the store by their names."""
    return {row.name: api_keys.parse(row.body) for row in await api_keys.read(db)}


async def test_stored_key_is_read_as_it_was_added(store):
    fields = {
        "owner": "Ann", "note": "pipeline", "models": ["m"], "endpoints": ["/v1/models"], "scopes": ["inference", "admin"],
        "limits": {"requests_per_minute": 5}, "priority": "high", "expires_at": 2000,
    }  # fmt: skip
    async with store.writing() as db:
        key, secret = await add(db, **fields)
        assert await stored(db) == {"ci": key}
        (row,) = await api_keys.read(db)
    assert secret.startswith("gw-") and secret.encode() not in row.body
    assert key.lifetimes() == {key_digest(secret): 2000}
    shown = key.shown()
    assert shown.items() >= {**fields, "limits": shown["limits"], "created_at": NOW, "revoked_at": None}.items()
    assert shown["limits"]["requests_per_minute"] == 5 and "key" not in shown


@pytest.mark.parametrize(
    ("fields", "param", "message"),
    [
        ({}, "name", "name: is missing; for example name: ci."),
        ({"name": "a b"}, "name", "name: a name should consist of letters, digits, dots, dashes and underscores."),
        ({"name": "ci", "models": []}, "models", "models: should have at least one entry."),
        ({"name": "ci", "endpoints": ["v1"]}, "endpoints[0]", "endpoints[0]: should be a path like /v1/chat/completions."),
        ({"name": "ci", "limits": {"x": 1}}, "limits.x", "limits.x: unknown key; one of: requests_per_minute, "),
        ({"name": "k" * 129}, "name", "name: should have at most 128 characters."),
        ({"name": "ci", "note": "x" * 1001}, "note", "note: should have at most 1000 characters."),
        ({"name": "ci", "expires_at": NOW}, "expires_at", "'expires_at' is in the past."),
        ({"name": "ci", "expires_at": 253_402_300_800}, "expires_at", "'expires_at' is 253402300800, after the year 9999. Give it in Unix seconds."),
        ({"name": "ci", "group": "team"}, "group", "group: unknown group 'team' in auth.groups; did you mean 'team-a'? one of: team-a."),
        ({"name": "ci", "key": "x"}, "key", "'key' is no field of a key. Fields: name, models, "),
        ({"name": "taken"}, "name", "The name 'taken' is in use, perhaps by a revoked key. Choose another name."),
    ],
)  # fmt: skip
async def test_stored_key_with_a_wrong_field_is_refused(store, fields, param, message):
    async with store.writing() as db:
        with pytest.raises(BadRequest) as caught:
            await api_keys.add(db, fields, api_keys.KeyEdit(NOW, "cli:me", WRITTEN))
        assert await stored(db) == {}
    assert caught.value.problem.param == param and caught.value.problem.message.startswith(message)


async def test_stored_key_has_a_name_of_its_own_for_ever(store):
    async with store.writing() as db:
        await add(db)
        await api_keys.revoke(db, "ci", api_keys.KeyEdit(NOW + 1, "cli:me"))
        with pytest.raises(BadRequest, match="in use, perhaps by a revoked key"):
            await add(db)


async def test_stored_key_changes_field_by_field(store):
    async with store.writing() as db:
        key, _ = await add(db, models=["m"], owner="Ann")
        changed = await api_keys.change(db, "ci", {"models": None, "note": "new"}, NOW_EDIT)
        assert (changed.models, changed.owner, changed.note, changed.key) == (None, "Ann", "new", key.key)
        assert await stored(db) == {"ci": changed}
        for fields in ({"name": "other"}, {"created_at": 1}, {"priority": "urgent"}):
            with pytest.raises(BadRequest):
                await api_keys.change(db, "ci", fields, NOW_EDIT)


async def test_stored_key_has_a_group_of_the_configuration(store):
    edit = api_keys.KeyEdit(NOW, "cli:me", WRITTEN)
    async with store.writing() as db:
        key, _ = await api_keys.add(db, {"name": "ci", "group": "team-a"}, edit)
        assert key.group == "team-a" and await stored(db) == {"ci": key}
        gone = await api_keys.change(db, "ci", {"note": "x"}, NOW_EDIT)
        assert gone.group == "team-a", "the group is not in the configuration any more"
        assert (await api_keys.change(db, "ci", {"group": None}, edit)).group is None


async def test_stored_key_is_valid_until_it_expires_or_is_replaced_or_revoked(store):
    async with store.writing() as db:
        _, first = await add(db, expires_at=5000)
        changed, second = await api_keys.rotate(db, "ci", 60, NOW_EDIT)
        assert changed.lifetimes() == {key_digest(second): 5000, key_digest(first): NOW + 60}
        assert changed.invalidity(key_digest(first), NOW + 60) == "was replaced by a new one"
        assert changed.invalidity(key_digest(second), 5000) == "has expired"
        changed, third = await api_keys.rotate(db, "ci", 0, NOW_EDIT)
        assert changed.lifetimes() == {key_digest(third): 5000, key_digest(second): NOW}
        revoked = await api_keys.revoke(db, "ci", api_keys.KeyEdit(NOW + 5, "cli:me"))
        assert {*revoked.lifetimes().values()} == {NOW, NOW + 5}
        assert revoked.invalidity(key_digest(third), NOW + 5) == "was revoked"


async def test_stored_key_that_is_revoked_or_missing_does_not_change(store):
    async with store.writing() as db:
        await add(db)
        await api_keys.revoke(db, "ci", NOW_EDIT)
        for action in (
            lambda name: api_keys.change(db, name, {"note": "x"}, NOW_EDIT),
            lambda name: api_keys.rotate(db, name, 0, NOW_EDIT),
            lambda name: api_keys.revoke(db, name, NOW_EDIT),
        ):
            with pytest.raises(BadRequest, match=r"Key .ci. is revoked\."):
                await action("ci")
            with pytest.raises(NotFound, match="no key of the name"):
                await action("other")


async def test_stored_key_changes_have_numbers_in_order(store):
    """A process that knows the last number knows all keys, also if processes change keys at the same time."""

    async def added(name):
        async with store.writing() as db:
            await add(db, name)

    assert await number(store) == 0
    await asyncio.gather(*(added(f"k{place}") for place in range(10)))
    assert await number(store) == 10
    async with store.writing() as db:
        await api_keys.change(db, "k0", {"note": "x"}, NOW_EDIT)
        await api_keys.rotate(db, "k1", 0, NOW_EDIT)
        await api_keys.revoke(db, "k2", NOW_EDIT)
        changed = [(row.name, row.version) for row in await api_keys.read(db, after=11)]
    assert changed == [("k1", 12), ("k2", 13)]
    assert await number(store) == 13


async def number(store):
    async with store.reading() as db:
        return await api_keys.version(db)


def test_stored_key_of_a_newer_release_is_not_understood():
    with pytest.raises(ValidationError):
        api_keys.parse(encode({"name": "ci", "key": ["x"], "only_from": "10.0.0.0/8"}))
