"""Test users whom a proxy signs in."""

from contextlib import asynccontextmanager

import httpx
import pytest

from gateway.config.auth import HeaderSettings
from gateway.errors import BadRequest
from gateway.server.middleware.proxy_users import ProxyUsers, TrustedProxyMiddleware, peer_networks
from support.app import bearer, gateway, listening
from support.signing_proxy import SigningProxy
from support.upstream import HELLO
from support.wait import DEADLINE

SCOPES = {"admins": ["admin", "inference"], "staff": ["inference"]}
PROMPT = "<h1>API key required</h1>"
KEY = "a-key-of-the-configuration"
SIGNED_IN = {
    "server": {"forwarded_allow_ips": ["127.0.0.1"]},
    "auth": {"keys": [{"name": "ada", "key": KEY}], "header": {"scopes": SCOPES}},
}
USERS = {"of-ada": ("ada", "staff, admins"), "of-bob": ("bob", "staff"), "of-eve": ("eve", "")}


def request_from(host, **headers):
    """Return the scope of a request from this address; None: without one."""
    raw = [(name.replace("_", "-").encode(), value.encode()) for name, value in headers.items()]
    return {"type": "http", "client": host and (host, 7), "headers": raw}


async def marked(scope, proxies=("10.0.0.0/8", "::1")):
    """Return the scope after the middleware."""

    async def app(*_):
        """Do nothing."""

    await TrustedProxyMiddleware(app, peer_networks(proxies))(scope, None, None)
    return scope


def users(**settings):
    return ProxyUsers(HeaderSettings.model_validate({"scopes": {"*": ["inference"], "admins": ["admin"]}, **settings}))


@pytest.mark.parametrize(
    ("host", "found"),
    [
        ("10.1.2.3", True),
        ("::ffff:10.1.2.3", True),
        ("::1", True),
        ("11.0.0.1", False),
        ("::ffff:11.0.0.1", False),
        ("/run/gateway.sock", False),
        (None, False),
    ],
)
async def test_proxy_user_is_believed_only_from_a_trusted_proxy(host, found):
    scope = await marked(request_from(host, x_forwarded_user="ada"))
    assert (users().find(scope) is not None) is found


@pytest.mark.parametrize(
    ("groups", "scopes"),
    [
        ("", ("inference",)),
        ("sales, admins", ("inference", "admin")),
        ("admins,admins", ("inference", "admin")),
        ("Admins", ("inference",)),
    ],
)
async def test_proxy_user_has_the_scopes_of_its_groups(groups, scopes):
    user = users().find(await marked(request_from("10.0.0.1", x_forwarded_user="ada", x_forwarded_groups=groups)))
    assert (user.name, user.scopes, user.models, user.limits.concurrent) == ("sso:ada", scopes, None, 0)


@pytest.mark.parametrize(
    ("groups", "found"), [("", None), ("sales", None), ("sales, team-b", "team-b"), ("team-b,team-a", "team-a")]
)
async def test_proxy_user_has_the_first_group_with_a_budget(groups, found):
    budgets = {"team-a": {"tokens_per_day": 10}, "team-b": {"tokens_per_day": 20}}
    known = ProxyUsers(HeaderSettings.model_validate({"scopes": {"*": ["inference"]}}), budgets)
    user = known.find(await marked(request_from("10.0.0.1", x_forwarded_user="ada", x_forwarded_groups=groups)))
    assert user.group == found


async def test_proxy_users_share_the_budget_of_their_group_with_its_keys():
    groups = {"staff": {"tokens_per_month": 20}}
    keys = [{"name": "ada", "key": KEY, "group": "staff"}]
    auth = {**SIGNED_IN["auth"], "groups": groups, "keys": keys}
    signed_in = {"x-forwarded-user": "bob", "x-forwarded-groups": "staff"}
    async with listening(HELLO, server=SIGNED_IN["server"], auth=auth) as site:
        answers = [await site.chat(headers=headers) for headers in (signed_in, bearer(KEY), bearer(KEY), signed_in)]
    assert [one.headers["x-gateway-budgets"] for one in answers[:2]] == ["group-month=17/20", "group-month=8/20"]
    refused = answers[-1]
    assert refused.status_code == 429 and "the group 'staff'" in refused.json()["error"]["message"]


async def test_proxy_user_comes_from_the_configured_headers():
    settings = {"user": "Remote-User", "groups": "Remote-Groups"}
    headers = {"remote_user": "ada", "remote_groups": "admins", "x_forwarded_user": "bob"}
    user = users(**settings).find(await marked(request_from("10.0.0.1", **headers)))
    assert (user.name, user.scopes) == ("sso:ada", ("inference", "admin"))
    assert users().find(await marked(request_from("10.0.0.1"))) is None


@pytest.mark.parametrize("name", ["Ada Lovelace", "a\tb", "ä", "a" * 201])
async def test_proxy_user_with_a_strange_name_is_refused(name):
    scope = await marked(request_from("10.0.0.1", x_forwarded_user=name))
    with pytest.raises(BadRequest, match="must have 1 to 200 visible ASCII characters"):
        users().find(scope)


@pytest.mark.parametrize("header", ["x-forwarded-user", "x-forwarded-groups"])
async def test_proxy_that_keeps_the_headers_of_clients_is_refused(header):
    scope = await marked(request_from("10.0.0.1", x_forwarded_user="ada", x_forwarded_groups="staff"))
    scope["headers"].append((header.encode(), b"admins"))
    with pytest.raises(BadRequest, match=f"The request has 2 '{header}' headers"):
        users().find(scope)


@asynccontextmanager
async def behind_proxy():
    """Yield a gateway, and a function that returns a browser with this session, in front of the proxy."""
    async with listening(HELLO, **SIGNED_IN) as site:
        transport = httpx.ASGITransport(SigningProxy(str(site.client.base_url), USERS))

        def browser(session):
            return httpx.AsyncClient(
                transport=transport, base_url="http://pages.test", cookies={"session": session}, timeout=DEADLINE
            )

        yield site, browser


async def test_proxy_signs_users_in_to_pages_and_models():
    async with behind_proxy() as (_, browser):
        async with browser("of-ada") as ada:
            assert PROMPT not in (await ada.get("/")).text
            assert (await ada.get("/admin/overview")).status_code == 200
            assert (await ada.get("/v1/models")).status_code == 200
        async with browser("of-bob") as bob:
            assert (await bob.get("/v1/models")).status_code == 200
            refused = await bob.get("/admin/overview")
            assert refused.status_code == 403
            assert refused.json()["error"]["message"] == (
                "User 'bob' lacks the scope 'admin': no group of the user has it in 'auth.header.scopes'."
            )
        async with browser("of-eve") as eve:
            assert (await eve.get("/v1/models")).status_code == 403
        async with browser("") as stranger:
            assert (await stranger.get("/")).headers["location"] == "/oauth2/sign_in"


async def test_proxy_replaces_the_headers_of_clients():
    async with behind_proxy() as (_, browser), browser("of-bob") as bob:
        forged = {"x-forwarded-user": "ada", "x-forwarded-groups": "admins"}
        assert (await bob.get("/admin/overview", headers=forged)).status_code == 403


async def test_proxy_user_is_safe_from_other_pages():
    async with behind_proxy() as (_, browser), browser("of-ada") as ada:
        foreign = await ada.get("/admin/overview", headers={"origin": "https://evil.example"})
        assert (foreign.status_code, foreign.json()["error"]["code"]) == (403, "origin_not_allowed")
        own = await ada.get("/admin/overview", headers={"origin": "http://pages.test"})
        assert own.status_code == 200


async def test_proxy_user_is_another_tenant_than_a_key_of_its_name():
    async with behind_proxy() as (site, browser), browser("of-ada") as ada:
        authenticator = site.app.state.authenticator
        assert (await ada.get("/v1/models", headers=bearer("wrong"))).status_code == 401
        assert (await ada.get("/admin/overview", headers=bearer(KEY))).status_code == 403
        assert (await authenticator.key_named("sso:ada"), (await authenticator.key_named("ada")).name) == (None, "ada")
        assert (await authenticator.job_owner("sso:ada"), (await authenticator.job_owner("ada")).name) == (None, "ada")


async def test_header_of_a_client_that_is_no_proxy_is_ignored():
    sections = {**SIGNED_IN, "server": {"forwarded_allow_ips": ["10.0.0.1"]}}
    async with gateway(HELLO, **sections) as site:
        forged = {"x-forwarded-user": "ada", "x-forwarded-groups": "admins"}
        assert (await site.client.get("/admin/overview", headers=forged)).status_code == 401
        assert PROMPT in (await site.client.get("/", headers=forged)).text
