"""Test the headers of a proxy: a trusted proxy sets the client address and scheme, and every other peer is ignored."""

import httpx
import pytest
from fastapi import Request
from websockets.asyncio.client import connect
from websockets.exceptions import InvalidStatus

from gateway.config import ConfigError, parse
from gateway.server.app import create_app
from support.app import listening, settings
from support.upstream import HELLO

PROXIES = ["10.0.0.0/8", "192.168.1.5", "::1"]
PEER = ("10.0.0.1", 5000)


async def client_and_scheme_of(*headers, peer=PEER, proxies=PROXIES):
    """Return the client and the scheme that the application sees."""
    app = create_app(settings("http://127.0.0.1:9", server={"forwarded_allow_ips": proxies}))

    @app.get("/seen")
    async def seen(request: Request) -> list:
        return [request.scope["client"], request.scope["scheme"], request.headers["host"]]

    transport = httpx.ASGITransport(app, client=peer)
    async with httpx.AsyncClient(transport=transport, base_url="http://gateway", verify=False) as client:
        found, scheme, host = (await client.get("/seen", headers=headers)).json()
    assert host == "gateway"
    return found and tuple(found), scheme


@pytest.mark.parametrize(
    ("header", "client"),
    [
        (["203.0.113.9"], ("203.0.113.9", 0)),
        (["203.0.113.9:4711"], ("203.0.113.9", 4711)),
        (["2001:db8::9"], ("2001:db8::9", 0)),
        (["[2001:db8::9]:4711"], ("2001:db8::9", 4711)),
        (["1.2.3.4, 203.0.113.9"], ("203.0.113.9", 0)),
        (["1.2.3.4", "203.0.113.9"], ("203.0.113.9", 0)),
        (["1.2.3.4, 203.0.113.9, 10.0.0.7,192.168.1.5"], ("203.0.113.9", 0)),
        (["1.2.3.4, 203.0.113.9, 0:0:0:0:0:0:0:1, [::1]:80"], ("203.0.113.9", 0)),
        (["junk, 203.0.113.9"], ("203.0.113.9", 0)),
        (["10.0.0.7"], ("10.0.0.7", 0)),
        (["1.2.3.4, unknown"], ("unknown", 0)),
        (["1.2.3.4, 10.0.0.7:x"], ("10.0.0.7:x", 0)),
        (["1.2.3.4,"], PEER),
        ([""], PEER),
        ([], PEER),
    ],
)
async def test_client_address_is_the_last_that_is_no_proxy(header, client):
    assert await client_and_scheme_of(*(("x-forwarded-for", one) for one in header)) == (client, "http")


@pytest.mark.parametrize("address", ["10.0.0.1", "192.168.1.5"])
async def test_proxy_is_known_by_its_ipv4_address_at_a_socket_of_ipv6(address):
    sent = [("x-forwarded-for", "203.0.113.9"), ("x-forwarded-proto", "https")]
    seen = await client_and_scheme_of(*sent, peer=(f"::ffff:{address}", 5000))
    assert seen == (("203.0.113.9", 0), "https")


@pytest.mark.parametrize(
    ("peer", "proxies"),
    [
        (("::ffff:203.0.113.9", 1), PROXIES),
        (("203.0.113.9", 1), PROXIES),
        (("192.168.1.6", 1), PROXIES),
        (("2001:db8::1", 1), PROXIES),
        (PEER, []),
        (("127.0.0.1", 1), []),
    ],
)
async def test_forwarded_headers_of_an_untrusted_peer_are_ignored(peer, proxies):
    sent = [("x-forwarded-for", "1.2.3.4"), ("x-forwarded-for", "10.0.0.1"), ("x-forwarded-proto", "https")]
    assert await client_and_scheme_of(*sent, peer=peer, proxies=proxies) == (peer, "http")


async def test_forwarded_headers_of_a_peer_without_address_are_ignored():
    assert await client_and_scheme_of(("x-forwarded-for", "1.2.3.4"), peer=None) == (None, "http")


@pytest.mark.parametrize(
    ("header", "scheme"),
    [
        ("https", "https"),
        (" https ", "https"),
        ("http", "http"),
        ("https, http", "http"),
        ("ftp", "http"),
        ("", "http"),
    ],
)
async def test_forwarded_scheme_is_a_single_known_value_or_ignored(header, scheme):
    assert await client_and_scheme_of(("x-forwarded-proto", header)) == (PEER, scheme)


async def test_forwarded_headers_of_other_names_are_ignored():
    sent = {
        "forwarded": "for=1.2.3.4;proto=https",
        "x-real-ip": "1.2.3.4",
        "x-forwarded-host": "evil",
        "cf-connecting-ip": "1.2.3.4",
    }
    assert await client_and_scheme_of(*sent.items()) == (PEER, "http")


async def test_origin_scheme_must_be_the_forwarded_scheme():
    """Without a header of the proxy, TLS may have ended in front of the gateway."""
    server = {"forwarded_allow_ips": ["127.0.0.1"]}
    async with listening(HELLO, server=server) as site:
        host = f"127.0.0.1:{site.client.base_url.port}"
        for page, proto, welcome in (
            ("https", "https", True), ("http", "https", False), ("http", "http", True), ("https", None, True), ("http", None, True),
        ):  # fmt: skip
            headers = {"origin": f"{page}://{host}", **({"x-forwarded-proto": proto} if proto else {})}
            asking = connect(f"ws://{host}/v1/responses", additional_headers=headers)
            if welcome:
                async with asking:
                    pass
            else:
                with pytest.raises(InvalidStatus, match="403"):
                    await asking


def test_config_of_proxies_takes_addresses_and_networks():
    parsed = lambda value: parse(f"server: {{forwarded_allow_ips: {value}}}", "gateway.yaml", {}, [])  # noqa: E731
    assert parsed("[10.0.0.0/8, '::1']").server.forwarded_allow_ips == ("10.0.0.0/8", "::1/128")
    for wrong in ("'*'", "proxy.lan", "10.0.0.1/8"):
        with pytest.raises(ConfigError, match=r"forwarded_allow_ips\[0\]: not a network like"):
            parsed(f"[{wrong}]")
