"""Test the checks of Origin and Host: without API keys a web page may use the gateway only if it is allowed."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from starlette.requests import HTTPConnection

from gateway.config import Config
from gateway.errors import Forbidden
from gateway.server.middleware.auth import OriginCheck
from support.app import gateway, problem
from support.upstream import HELLO

KEY = "k" * 20
STRANGER = (403, "invalid_request_error", "origin_not_allowed", None)
UNKNOWN = (403, "invalid_request_error", "host_not_allowed", None)
ENDPOINTS = ("/v1/chat/completions", "/v1/responses", "/v1/completions", "/v1/embeddings", "/v1/conversations")


@pytest.mark.parametrize("path", ENDPOINTS)
async def test_origin_of_a_foreign_page_is_refused_on_every_endpoint(path):
    """The content types are those of forms, for which no browser sends a preflight request."""
    async with gateway(HELLO) as site:
        for kind in ("text/plain", "application/x-www-form-urlencoded"):
            headers = {"origin": "http://evil.example", "content-type": kind}
            assert problem(await site.client.post(path, content=b'{"model": "m"}', headers=headers)) == STRANGER
        assert site.upstream.posts == []


@pytest.mark.parametrize(
    ("origin", "well"),
    [
        ("http://gateway", True),  # the host that the tests' client asks
        ("https://gateway", True),
        ("http://gateway:80", False),
        ("http://gateway.evil.example", False),
        ("http://chat.example", True),
        ("http://chat.example:81", False),
        ("HTTP://EVIL.EXAMPLE", False),  # no browser writes it so
        ("null", False),
        ("", False),
        ("app://obsidian.md", True),
        ("vscode-webview://1f3a", True),
        ("chrome-extension://abc", True),
        ("http://[", False),
    ],
)
async def test_origin_must_be_the_gateway_allowed_or_an_application(origin, well):
    async with gateway(HELLO, server={"cors": ["http://chat.example"]}) as site:
        answer = await site.chat(headers={"origin": origin}, stream=True)
        assert (answer.status_code == 200) is well
        assert well or problem(answer) == STRANGER


async def test_origin_of_any_page_may_be_allowed():
    async with gateway(HELLO, server={"cors": ["*"]}) as site:
        assert (await site.chat(headers={"origin": "http://anybody.example"}, stream=True)).status_code == 200


async def test_origin_is_not_checked_where_keys_are_configured():
    async with gateway(HELLO, auth={"keys": [KEY]}) as site:
        headers = {"origin": "http://evil.example", "host": "evil.example"}
        assert (await site.chat(headers=headers)).status_code == 401
        headers["authorization"] = f"Bearer {KEY}"
        assert (await site.chat(headers=headers, stream=True)).status_code == 200


@pytest.mark.parametrize(
    ("host", "well"),
    [
        ("localhost", True),
        ("localhost:8900", True),
        ("LOCALHOST", True),
        ("127.0.0.1:8900", True),
        ("[::1]:8900", True),
        ("192.168.1.7", True),
        ("gateway", True),
        ("box.home.arpa", True),
        ("box.local", False),
        ("host.docker.internal:8900", False),
        ("named.internal", True),  # in server.cors
        ("chat.example:8900", True),  # named in server.cors
        ("evil.example", False),
        ("evil.example:8900", False),
        ("127.0.0.1.evil.example", False),
        ("localhost.evil.example", False),
        ("evil.example.", False),
        ("1.2.3", False),
        ("[", False),
        ("a b.example", False),
    ],
)
async def test_host_that_may_be_rebound_is_refused_without_keys(host, well):
    """The name may resolve to this machine after the page has loaded (DNS rebinding)."""
    async with gateway(HELLO, server={"cors": ["https://chat.example", "http://named.internal"]}) as site:
        answer = await site.client.get("/v1/models", headers={"host": host})
        assert (answer.status_code == 200) is well
        assert well or problem(answer) == UNKNOWN


@pytest.mark.parametrize("auth", [{"open": True}, {"keys": [KEY]}])
async def test_host_is_not_checked_where_the_gateway_is_open_or_has_keys(auth):
    async with gateway(HELLO, auth=auth) as site:
        headers = {"host": "api.example", "authorization": f"Bearer {KEY}"}
        assert (await site.chat(headers=headers, stream=True)).status_code == 200


@given(host=st.text(st.characters(max_codepoint=255)), origin=st.none() | st.text(st.characters(max_codepoint=255)))
def test_origin_and_host_of_any_text_pass_or_are_forbidden(host, origin):
    pairs = [("host", host), *([] if origin is None else [("origin", origin)])]
    http = HTTPConnection(
        {"type": "http", "headers": [(name.encode(), value.encode("latin-1")) for name, value in pairs]}
    )
    for check in (OriginCheck(Config()).check_origin, OriginCheck(Config()).check):
        try:
            check(http)
        except Forbidden as error:
            assert error.problem.status == 403
