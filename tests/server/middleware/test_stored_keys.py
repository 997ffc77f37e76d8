"""Test API keys of the store at the gateway: a change applies at once, also in other processes and open connections."""

import json
import logging

import pytest
from sqlalchemy import text

from gateway.config import ConfigError, key_digest, parse
from gateway.errors import StoreFailed, Unauthorized
from gateway.server.middleware import stored_keys
from gateway.server.middleware.stored_keys import StoredKeys
from gateway.store import Database, api_keys
from support.app import bearer, gateway, listening
from support.faults import fail_once
from support.upstream import HELLO
from support.wait import DEADLINE, until
from support.websocket import connected

NOW = 1000
STORED = {"stored_keys": True}


async def add(store, name="ci", **fields):
    """Add a key, and return the secret."""
    async with store.writing() as db:
        return (await api_keys.add(db, {"name": name, **fields}, api_keys.KeyEdit(NOW, "cli:me")))[1]


async def revoke(store, name="ci"):
    async with store.writing() as db:
        await api_keys.revoke(db, name, api_keys.KeyEdit(NOW, "cli:me"))


def keys_of(store, hidden=(), now=NOW):
    return StoredKeys(store, hidden, lambda: now)


async def add_to(site, **fields):
    """Add a key to the store of a gateway that then knows it, and return the secret."""
    secret = await add(site.app.state.store, **fields)
    await site.app.state.authenticator.stored.refresh()
    return secret


async def revoke_in(site):
    """Revoke the key likewise."""
    await revoke(site.app.state.store)
    await site.app.state.authenticator.stored.refresh()


async def status(site, key):
    return (await site.client.get("/v1/models", headers=bearer(key))).status_code


# What is in memory


async def test_stored_keys_are_found_by_digest_and_by_name(store):
    secret, keys = await add(store, priority="high"), keys_of(store)
    found = await keys.find(key_digest(secret))
    assert (found.name, found.priority) == ("ci", "high")
    assert await keys.named("ci") is found
    assert await keys.find(key_digest("other")) is await keys.named("other") is None


async def test_stored_keys_are_read_again_only_after_a_change(store):
    keys = keys_of(store)
    first = await add(store)
    await keys.refresh()
    known = await keys.named("ci")
    await keys.refresh()
    assert await keys.named("ci") is known
    await revoke(store)
    assert await keys.find(key_digest(first)) is known, "a request reads no store"
    await keys.refresh()
    with pytest.raises(Unauthorized, match="API key 'ci' was revoked"):
        await keys.find(key_digest(first))
    assert (await keys.named("ci")).revoked_at == NOW


@pytest.mark.parametrize(("now", "valid"), [(1999, True), (2000, False)])
async def test_stored_key_expires_without_a_change(store, now, valid):
    digest, keys = key_digest(await add(store, expires_at=2000)), keys_of(store, now=now)
    if valid:
        assert await keys.find(digest)
    else:
        with pytest.raises(Unauthorized, match="API key 'ci' has expired"):
            await keys.find(digest)


async def test_stored_key_of_a_name_in_the_configuration_is_hidden(store, caplog):
    secret, keys = await add(store), keys_of(store, hidden={"ci"})
    assert await keys.find(key_digest(secret)) is None
    assert "the stored API key 'ci' is not in use: auth.keys has one of this name" in caplog.messages


async def test_stored_key_of_a_newer_release_is_refused(store, caplog):
    secret = await add(store)
    async with store.writing() as db:
        await db.execute(
            text("UPDATE api_keys SET version = 2, body = :body"), {"body": b'{"name": "ci", "key": "x", "new": 1}'}
        )
    assert await keys_of(store).find(key_digest(secret)) is None
    assert "the stored API key 'ci' is refused: this release does not know all of its fields" in caplog.messages


async def test_stored_keys_follow_changes_of_other_processes(store_url, monkeypatch):
    """PostgreSQL notifies; its connection may begin to listen after the first change."""
    monkeypatch.setattr(stored_keys, "_SELDOM", DEADLINE * 2)
    here, there = Database(store_url), Database(store_url)
    await add(there)
    keys = StoredKeys(here, (), lambda: NOW)
    async with keys.following():
        assert (await keys.named("ci")).note == ""

        async def note():
            async with there.writing() as db:
                await api_keys.change(db, "ci", {"note": "new"}, api_keys.KeyEdit(NOW, "cli:me"))
            return (await keys.named("ci")).note

        await until(note, "new")
    await here.close()
    await there.close()


class BrokenStore:
    """A store that fails until `works` is set."""

    notifies, works, readings = False, False, 0

    def __init__(self, store):
        self.listen, self._store = store.listen, store

    def reading(self):
        self.readings += 1
        if not self.works:
            raise StoreFailed("The store is down.") from OSError("no route to host")
        return self._store.reading()


async def test_stored_keys_stay_in_use_while_the_store_fails(tmp_path, caplog):
    caplog.set_level(logging.WARNING)
    store = Database(f"sqlite:///{tmp_path}/gateway.db")
    secret, broken = await add(store), BrokenStore(store)
    keys = StoredKeys(broken, (), lambda: NOW)
    with pytest.raises(StoreFailed):
        await keys.find(key_digest(secret))
    async with keys.following():
        await until(lambda: broken.readings > 3)
        assert caplog.messages == ["the stored API keys cannot be read, the known ones stay in use: no route to host"]
        broken.works = True
        assert await keys.find(key_digest(secret))
        broken.works = False
        assert await keys.find(key_digest(secret))
    await store.close()


async def test_stored_keys_are_read_after_a_programming_error(tmp_path, monkeypatch, caplog):
    store = Database(f"sqlite:///{tmp_path}/gateway.db")
    keys = StoredKeys(store, (), lambda: NOW)
    monkeypatch.setattr(stored_keys, "_OFTEN", 0.01)
    fail_once(monkeypatch, "gateway.store.api_keys.read")
    async with keys.following():
        await until(lambda: "the reading of stored API keys failed, the gateway tries again" in caplog.messages)
        secret = await add(store)
        await until(lambda: "ci" in keys._by_name)
        assert await keys.find(key_digest(secret))
    await store.close()


async def test_stored_key_of_a_job_is_found_by_its_name():
    async with gateway(auth={**STORED, "keys": [{"name": "ops", "key": "ops-key"}]}) as site:
        await add_to(site)
        found = [await site.app.state.authenticator.key_named(name) for name in ("ops", "ci", "other")]
        assert [key and key.name for key in found] == ["ops", "ci", None]


# Requests


async def test_stored_key_is_needed_for_each_request():
    async with gateway(HELLO, auth=STORED) as site:
        assert (await site.client.get("/v1/models")).status_code == 401
        assert await status(site, "gw-wrong") == 401


async def test_stored_key_works_beside_keys_of_the_configuration():
    auth = {**STORED, "keys": [{"name": "ops", "key": "ops-key"}]}
    async with gateway(HELLO, auth=auth) as site:
        secret = await add_to(site)
        assert [await status(site, key) for key in (secret, "ops-key")] == [200, 200]
        await revoke_in(site)
        assert [await status(site, key) for key in (secret, "ops-key")] == [401, 200]
        answer = await site.client.get("/v1/models", headers=bearer(secret))
        message = "API key 'ci' was revoked. Ask the operator for a new one."
        assert answer.json()["error"]["message"] == message


async def test_stored_key_allows_its_models_and_endpoints_only():
    async with gateway(HELLO, auth=STORED) as site:
        secret = await add_to(site, endpoints=["/v1/chat"], models=["other"])
        answer = await site.chat(headers=bearer(secret))
        assert (answer.status_code, answer.json()["error"]["code"]) == (403, "model_not_allowed")
        assert await status(site, secret) == 403


async def test_stored_key_is_checked_for_each_response_of_a_websocket():
    async with listening(HELLO, HELLO, auth=STORED) as site:
        secret = await add_to(site)
        async with connected(site, bearer(secret)) as socket:
            assert (await socket.respond())["type"] == "response.completed"
            await revoke_in(site)
            refused = await socket.respond()
            assert (refused["status"], refused["error"]["code"]) == (401, "invalid_api_key")


# Configuration


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"auth": STORED}, "auth.stored_keys: requires store.url, the database with the keys"),
        (
            {"auth": {**STORED, "open": True}, "store": {"url": "sqlite:///./a.db"}},
            "auth: open: true contradicts stored_keys; remove one of them",
        ),
    ],
)
def test_stored_keys_in_a_wrong_configuration_are_refused(config, message):
    with pytest.raises(ConfigError) as caught:
        parse(json.dumps(config), "g", {}, [])
    assert [str(fault) for fault in caught.value.faults] == [f"g:1: {message}"]


def test_stored_keys_allow_any_address():
    config = {"server": {"host": "0.0.0.0"}, "auth": STORED, "store": {"url": "sqlite:///./a.db"}}
    assert parse(json.dumps(config), "g", {}, []).auth.needs_key
