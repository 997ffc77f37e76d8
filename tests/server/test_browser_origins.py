"""Web pages: what they make a browser send is not answered where nobody needs a key, unless they may ask."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from starlette.requests import HTTPConnection

from gateway.config import Config
from gateway.errors import Forbidden
from gateway.server.pages import Pages
from support.app import gateway, problem
from support.upstream import HELLO

KEY = "k" * 20
STRANGER = (403, "invalid_request_error", "origin_not_allowed", None)
UNKNOWN = (403, "invalid_request_error", "host_not_allowed", None)
ENDPOINTS = ("/v1/chat/completions", "/v1/responses", "/v1/completions", "/v1/embeddings", "/v1/conversations")


@pytest.mark.parametrize("path", ENDPOINTS)
async def test_a_page_of_strangers_cannot_use_the_models(path):
    """As a form, or with a type of content for which no browser asks first."""
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
async def test_an_origin_is_the_gateways_or_allowed_or_that_of_an_application(origin, well):
    async with gateway(HELLO, server={"cors": ["http://chat.example"]}) as site:
        answer = await site.chat(headers={"origin": origin}, stream=True)
        assert (answer.status_code == 200) is well
        assert well or problem(answer) == STRANGER


async def test_all_origins_may_be_allowed():
    async with gateway(HELLO, server={"cors": ["*"]}) as site:
        assert (await site.chat(headers={"origin": "http://anybody.example"}, stream=True)).status_code == 200


async def test_with_keys_a_page_has_to_have_one():
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
        ("box.local", True),
        ("host.docker.internal:8900", True),
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
async def test_without_keys_a_name_that_may_be_anybodys_is_none_of_the_gateway(host, well):
    """It may begin to mean this machine when the page is there already (DNS rebinding)."""
    async with gateway(HELLO, server={"cors": ["https://chat.example"]}) as site:
        answer = await site.client.get("/v1/models", headers={"host": host})
        assert (answer.status_code == 200) is well
        assert well or problem(answer) == UNKNOWN


@pytest.mark.parametrize("auth", [{"open": True}, {"keys": [KEY]}])
async def test_whoever_opens_it_or_has_keys_may_call_it_anything(auth):
    async with gateway(HELLO, auth=auth) as site:
        headers = {"host": "api.example", "authorization": f"Bearer {KEY}"}
        assert (await site.chat(headers=headers, stream=True)).status_code == 200


@given(host=st.text(st.characters(max_codepoint=255)), origin=st.none() | st.text(st.characters(max_codepoint=255)))
def test_whatever_a_head_says_it_passes_or_is_forbidden(host, origin):
    said = [("host", host), *([] if origin is None else [("origin", origin)])]
    http = HTTPConnection(
        {"type": "http", "headers": [(name.encode(), value.encode("latin-1")) for name, value in said]}
    )
    for check in (Pages(Config()).check, Pages(Config()).check_name):
        try:
            check(http)
        except Forbidden as error:
            assert error.problem.status == 403
