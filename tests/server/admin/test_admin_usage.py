"""Test /admin/usage: it has all requests of the gateway that are over."""

import pytest

from support.app import bearer, gateway, problem
from support.upstream import HELLO

OPS = "ops-and-long-enough"
AUTH = {"keys": [{"name": "ops", "key": OPS, "scopes": ["inference", "admin"]}, {"name": "ci", "key": "ci-key"}]}
KEPT = {"auth": AUTH, "store": {"usage": True}}


async def get_usage(site, query="", key=OPS):
    return await site.client.get(f"/admin/usage{query}", headers=bearer(key))


async def test_admin_usage_has_requests_from_their_end_on():
    async with gateway(HELLO, **KEPT) as site:
        assert (await get_usage(site)).json()["data"] == []
        for key in (OPS, "ci-key", "ci-key"):
            await site.chat(headers=bearer(key))
        answer = await get_usage(site)
        assert answer.headers["cache-control"] == "no-store"
        assert [(row["key"], row["requests"], row["input_tokens"], row["output_tokens"]) for row in answer.json()["data"]] == [
            ("ci", 2, 14, 4),
            ("ops", 1, 7, 2),
        ]  # fmt: skip
        (row,) = (await get_usage(site, "?by=model")).json()["data"]
        assert (row["model"], row["requests"]) == ("m", 3)
        report = (await get_usage(site, "?by=day&by=key")).json()
        assert report["by"] == ["day", "key"] and report["total"]["requests"] == 3
        empty = (await get_usage(site, "?since=2020-01-01&until=2020-01-31")).json()
        assert (empty["since"], empty["until"], empty["data"]) == ("2020-01-01", "2020-01-31", [])


@pytest.mark.parametrize(
    ("query", "param"), [("?since=yesterday", "since"), ("?until=2026-02-30", "until"), ("?by=key&by=x", "by")]
)
async def test_admin_usage_refuses_wrong_parameters(query, param):
    async with gateway(HELLO, **KEPT) as site:
        assert problem(await get_usage(site, query)) == (400, "invalid_request_error", "invalid_value", param)


async def test_admin_usage_needs_the_scope_admin():
    async with gateway(HELLO, **KEPT) as site:
        assert problem(await get_usage(site, key="ci-key"))[::2] == (403, "scope_not_allowed")


async def test_admin_usage_says_that_none_is_kept():
    async with gateway(HELLO, auth=AUTH) as site:
        answer = await get_usage(site)
        assert problem(answer) == (404, "invalid_request_error", "usage_not_kept", None)
        assert "Set store.url" in answer.json()["error"]["message"]
