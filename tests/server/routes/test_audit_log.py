"""Test /admin/keys/log: who changed which key, page by page, without secrets."""

import httpx
import pytest

from gateway.config import StoreSettings
from gateway.server.app import create_app
from support.app import bearer, gateway, problem, running, settings
from support.upstream import HELLO

OPS = "ops-and-long-enough"
KEYS = [{"name": "ops", "key": OPS, "scopes": ["inference", "admin"]}, {"name": "ci", "key": "ci-key"}]
AUTH = {"stored_keys": True, "keys": KEYS}
SIGNED_IN = {"header": {"scopes": {"*": ["admin"]}}, **AUTH}


async def log_of(site, query="", key=OPS):
    return await site.client.get(f"/admin/keys/log{query}", headers=bearer(key))


async def post(site, path="", headers=None, **body):
    return await site.client.post(f"/admin/keys{path}", json=body, headers=headers or bearer(OPS))


async def test_audit_log_of_keys_names_the_author():
    async with gateway(HELLO, auth=AUTH) as site:
        secret = (await post(site, name="ann", owner="Ann")).json()["key"]
        await site.client.patch("/admin/keys/ann", json={"note": "x"}, headers=bearer(OPS))
        await post(site, "/ann/rotate")
        await site.client.delete("/admin/keys/ann", headers=bearer(OPS))
        answer = await log_of(site)
        assert answer.headers["cache-control"] == "no-store"
        found = answer.json()
        assert found["object"] == "list" and not found["has_more"]
        assert [(one["object"], one["actor"], one["action"], one["key"]) for one in found["data"]] == [
            ("audit_entry", "key:ops", f"key.{action}", "ann") for action in ("revoked", "rotated", "changed", "added")
        ]
        assert found["data"][2]["changes"] == [{"path": "note", "from": "", "to": "x"}]
        assert secret not in answer.text and "sha256" not in answer.text


async def test_audit_log_of_keys_names_the_user_of_a_proxy():
    async with gateway(HELLO, auth=SIGNED_IN, server={"forwarded_allow_ips": ["127.0.0.1"]}) as site:
        assert (await post(site, headers={"x-forwarded-user": "eve@x"}, name="ann")).status_code == 200
        assert (await log_of(site)).json()["data"][0]["actor"] == "sso:eve@x"


async def test_audit_log_of_keys_has_pages():
    async with gateway(HELLO, auth=AUTH) as site:
        for name in "abc":
            await post(site, name=name)
        first = (await log_of(site, "?limit=2")).json()
        assert ([one["key"] for one in first["data"]], first["has_more"]) == (["c", "b"], True)
        rest = (await log_of(site, f"?limit=2&after={first['last_id']}")).json()
        assert ([one["key"] for one in rest["data"]], rest["has_more"]) == (["a"], False)
        oldest = (await log_of(site, f"?order=asc&after={rest['first_id']}")).json()
        assert [one["key"] for one in oldest["data"]] == ["b", "c"]


@pytest.mark.parametrize(
    ("query", "param"),
    [("?after=x", "after"), (f"?after={'9' * 30}", "after"), ("?limit=0", "limit"), ("?order=up", "order")],
)
async def test_audit_log_of_keys_refuses_wrong_parameters(query, param):
    async with gateway(HELLO, auth=AUTH) as site:
        status, _, _, named = problem(await log_of(site, query))
        assert (status, named) == (400, param)


async def test_audit_log_of_keys_needs_the_scope_admin():
    async with gateway(HELLO, auth=AUTH) as site:
        assert problem(await log_of(site, key="ci-key"))[2] == "scope_not_allowed"


async def test_audit_log_of_keys_says_that_none_is_kept():
    config = settings("http://127.0.0.1:9", auth={"keys": KEYS}).model_copy(update={"store": StoreSettings()})
    async with running(create_app(config)) as url, httpx.AsyncClient(base_url=url, verify=False) as client:
        answer = await client.get("/admin/keys/log", headers=bearer(OPS))
    assert problem(answer) == (404, "invalid_request_error", "log_not_kept", None)
    assert "no store.url" in answer.json()["error"]["message"]
