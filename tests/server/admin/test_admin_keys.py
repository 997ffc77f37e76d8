"""Test /admin/keys: keys are made, changed, replaced and revoked while the gateway runs."""

from contextlib import asynccontextmanager

import pytest

from gateway.store import api_keys
from support.app import bearer, gateway, problem
from support.upstream import HELLO
from support.wait import now

OPS = "ops-and-long-enough"
AUTH = {"stored_keys": True, "keys": [{"name": "ops", "key": OPS, "scopes": ["inference", "admin"]}]}


class Admin:
    """An operator's client."""

    def __init__(self, site):
        self.site = site

    async def ask(self, method, path="", body=None, key=OPS):
        """Request a path below /admin/keys."""
        content = {"content": body} if isinstance(body, bytes) else {"json": body} if body is not None else {}
        return await self.site.client.request(method, f"/admin/keys{path}", headers=bearer(key), **content)

    async def done(self, method, path="", body=None):
        """Return the body of the response to a request that succeeds."""
        answer = await self.ask(method, path, body)
        assert answer.status_code == 200, answer.text
        assert answer.headers["cache-control"] == "no-store"
        return answer.json()

    async def status(self, key):
        """Return the status of a request with this key."""
        return (await self.site.client.get("/v1/models", headers=bearer(key))).status_code


@asynccontextmanager
async def administered(auth=AUTH):
    async with gateway(HELLO, HELLO, auth=auth) as site:
        yield Admin(site)


async def test_admin_keys_are_valid_from_the_response_on():
    async with administered() as admin:
        before = int(now())
        made = await admin.done("POST", body={"name": "ci", "owner": "Ann", "limits": {"concurrent": 2}})
        secret = made.pop("key")
        assert before <= made["created_at"] <= now()
        assert (
            made.items() >= {"object": "key", "name": "ci", "owner": "Ann", "source": "store", "models": None}.items()
        )
        assert await admin.status(secret) == 200
        assert (await admin.site.chat(headers=bearer(secret))).status_code == 200
        changed = await admin.done("PATCH", "/ci", {"endpoints": ["/v1/chat"], "owner": None})
        assert (changed["owner"], changed["limits"]["concurrent"], "key" in changed) == ("", 2, False)
        assert await admin.status(secret) == 403
        await admin.done("PATCH", "/ci", {"endpoints": None})
        rotated = (await admin.done("POST", "/ci/rotate"))["key"]
        assert [await admin.status(key) for key in (secret, rotated)] == [401, 200]
        later = (await admin.done("POST", "/ci/rotate", {"grace_seconds": 3600}))["key"]
        assert [await admin.status(key) for key in (rotated, later)] == [200, 200]
        assert (await admin.done("DELETE", "/ci"))["revoked_at"] >= before
        assert [await admin.status(key) for key in (rotated, later)] == [401, 401]


async def test_admin_keys_lists_keys_of_the_configuration_and_of_the_store():
    async with administered() as admin:
        secret = (await admin.done("POST", body={"name": "ci"}))["key"]
        listed = await admin.ask("GET")
        assert listed.json()["object"] == "list"
        assert [(key["name"], key["source"]) for key in listed.json()["data"]] == [
            ("ops", "configuration"),
            ("ci", "store"),
        ]
        assert OPS not in listed.text and secret not in listed.text and "sha256" not in listed.text


@pytest.mark.parametrize(
    ("method", "path", "body", "expected"),
    [
        ("POST", "", {"name": "ops"}, (400, "key_exists", "name")),
        ("POST", "", {"name": "a b"}, (400, "invalid_value", "name")),
        ("POST", "", b"[]", (400, None, None)),
        ("POST", "", b"\xff", (400, None, None)),
        ("PATCH", "/ci", {"models": []}, (400, "invalid_value", "models")),
        ("PATCH", "/ops", {"note": "x"}, (404, "key_not_found", None)),
        ("DELETE", "/none", None, (404, "key_not_found", None)),
        ("POST", "/ci/rotate", {"grace_seconds": -1}, (400, None, "grace_seconds")),
        ("POST", "/ci/rotate", {"grace_seconds": "soon"}, (400, None, None)),
    ],
)
async def test_admin_keys_refuses_what_is_wrong(method, path, body, expected):
    async with administered() as admin:
        await admin.done("POST", body={"name": "ci"})
        status, _, code, param = problem(await admin.ask(method, path, body))
        assert (status, code, param) == expected


@pytest.mark.parametrize(
    ("method", "path"),
    [("GET", ""), ("POST", ""), ("PATCH", "/ci"), ("DELETE", "/ci"), ("POST", "/ci/rotate")],
)
async def test_admin_keys_need_the_scope_admin(method, path):
    async with administered() as admin:
        secret = (await admin.done("POST", body={"name": "ci"}))["key"]
        assert (await admin.ask(method, path, key=secret)).json()["error"]["code"] == "scope_not_allowed"
        async with admin.site.app.state.store.reading() as db:
            assert await api_keys.version(db) == 1


async def test_admin_keys_may_be_stored_themselves():
    async with administered() as admin:
        key = (await admin.done("POST", body={"name": "second", "scopes": ["admin"]}))["key"]
        assert (await admin.ask("GET", key=key)).status_code == 200


async def test_admin_keys_share_the_budget_of_their_group():
    async with administered({**AUTH, "groups": {"team": {"tokens_per_month": 1000}}}) as admin:
        for name, left in (("ann", 993), ("bob", 984)):
            key = (await admin.done("POST", body={"name": name, "group": "team"}))["key"]
            answer = await admin.site.chat(headers=bearer(key), max_tokens=4)
            assert answer.headers["x-gateway-budgets"] == f"group-month={left}/1000"
        wrong = await admin.ask("PATCH", "/ann", {"group": "teem"})
        assert problem(wrong)[0::2] == (400, "invalid_value") and "did you mean 'team'?" in wrong.text


async def test_admin_keys_do_not_exist_without_stored_keys():
    async with administered({"keys": AUTH["keys"]}) as admin:
        assert (await admin.ask("GET")).status_code == 404
