"""Test the guard for URLs of clients: only public addresses, whatever names, redirects and servers contain."""

import asyncio
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway import config
from gateway.errors import BadRequest
from gateway.server.fetch.fetcher import Fetcher, FetchKind
from gateway.server.fetch.ssrf_guard import FetchFailed, SsrfGuard, address_filter, is_public, resolved
from support.app import on_both_loops
from support.wait import DEADLINE, idle, until
from support.web import HERE, PNG, encrypted, endless, hanging, moved, names, page, web

SORT = FetchKind("image", "image/*", "image_file_too_large")
FAILED = "failed_to_download_image"
PORTS = (80, 443)


# Addresses

PRIVATE = [
    "0.0.0.0", "0.1.2.3", "10.0.0.1", "100.64.0.1", "100.100.100.200", "100.127.255.255", "127.0.0.1", "127.1.2.3",
    "168.63.129.16", "169.254.169.254", "172.16.0.1", "172.31.255.255", "192.0.0.8", "192.0.0.170", "192.0.0.192",
    "192.0.2.1", "192.88.99.1", "192.168.1.1", "198.18.0.1", "198.51.100.1", "203.0.113.1", "224.0.0.1", "239.1.1.1",
    "240.0.0.1", "255.255.255.255",
    "::", "::1", "::127.0.0.1", "::8.8.8.8", "::ffff:127.0.0.1", "::ffff:8.8.8.8", "::ffff:0:8.8.8.8", "64:ff9b::808:808",
    "64:ff9b::7f00:1", "64:ff9b:1::1", "100::1", "2001::1", "2001:0:7f00:1::", "2001:2::1", "2001:10::1", "2001:20::1",
    "2001:db8::1", "2002:7f00:1::1", "2002:808:808::1", "3fff::1", "4000::1", "5f00::1", "fc00::1", "fd00:ec2::254",
    "fe80::1", "fe80::1%eth0", "fec0::1", "ff02::1", "ff0e::1",
]  # fmt: skip
PUBLIC = ["1.1.1.1", "8.8.8.8", "100.63.255.255", "100.128.0.0", "172.32.0.1", "193.0.0.1", "223.255.255.255",
          "2001:200::1", "2001:4860:4860::8888", "2606:4700::1111", "2a00:1450::1"]  # fmt: skip


@pytest.mark.parametrize("address", PRIVATE)
def test_address_that_is_private_is_refused(address):
    assert not is_public(ip_address(address)) and not address_filter([], PORTS)(address, 80)


@pytest.mark.parametrize("address", PUBLIC)
def test_address_that_is_public_is_allowed(address):
    assert is_public(ip_address(address)) and address_filter([], PORTS)(address, 80)


@given(st.ip_addresses())
def test_address_that_is_not_global_is_not_public(address):
    special = address.is_multicast or address.is_private or address.is_reserved or address.is_loopback
    if not address.is_global or special or address.is_link_local or address.is_unspecified:
        assert not is_public(address)


@given(st.ip_addresses(v=4))
def test_address_that_embeds_another_is_not_public(address):
    number = int(address)
    for inside in (number, 0xFFFF << 32 | number, 0xFFFF << 48 | number, 0x64FF9B << 96 | number):
        assert not is_public(IPv6Address(inside))
    assert not is_public(IPv6Address(0x2002 << 112 | number << 80 | 1))
    assert not is_public(IPv6Address(0x20010000 << 96 | number << 64 | number ^ 0xFFFFFFFF))


@given(st.ip_addresses(v=6))
def test_address_of_ipv6_is_public_only_in_assigned_space(address):
    if is_public(address):
        assert address in ip_network("2000::/3") and not (address.teredo or address.sixtofour or address.ipv4_mapped)


def test_address_of_a_configured_network_is_allowed():
    check = address_filter(["10.1.0.0/16", "fd00::/8"], PORTS)
    assert check("10.1.2.3", 80) and check("fd00::1", 80) and check("fd00::1%eth0", 80) and check("8.8.8.8", 80)
    assert not (check("10.2.0.1", 80) or check("::ffff:10.1.2.3", 80) or check("fe80::1", 80))
    assert not is_public(IPv4Address("10.1.2.3"))


@pytest.mark.parametrize("port", [0, 22, 25, 79, 444, 6379, 8080, 65535])
def test_address_that_is_public_has_few_ports_and_a_network_has_all(port):
    check = address_filter(["10.1.0.0/16"], PORTS)
    assert check("8.8.8.8", 443) and not check("8.8.8.8", port) and check("10.1.2.3", port)
    assert address_filter([], [port])("8.8.8.8", port)


@pytest.mark.parametrize(
    "address",
    [
        "169.254.169.254", "169.254.170.2", "169.254.170.23", "100.100.100.200", "168.63.129.16", "192.0.0.192",
        "fd00:ec2::254", "fd00:ec2:0:0:0:0:0:254", "fd00:ec2::254%eth0", "fd00:ec2::23", "fd20:ce::254",
        "::ffff:169.254.169.254", "::ffff:a9fe:aa02", "::169.254.169.254", "64:ff9b::6464:64c8", "2002:a9fe:a9fe::1",
    ],
)  # fmt: skip
def test_address_of_cloud_metadata_is_refused_in_any_network(address):
    assert not address_filter(["0.0.0.0/0", "::/0", address.partition("%")[0]], PORTS)(address, 80)
    assert address_filter(["::/0"], PORTS)("::ffff:10.1.2.3", 80) and address_filter(["::/0"], PORTS)("2002::1", 80)


# Fetching


async def fetch(*urls, resolve=None, tls=None, networks=(HERE,), seconds=10, **limits):
    """Fetch as a request does; `seconds` may be a fraction, which a file may not have."""
    settings = config.FetchSettings(networks=networks, **limits).model_copy(update={"seconds": seconds})
    guard = SsrfGuard(address_filter(settings.networks, settings.ports), resolve, tls)
    fetched = await Fetcher(settings, SORT, guard).all({url: f"p{i}" for i, url in enumerate(urls)})
    return [fetched[url].data for url in urls]


async def refused(*urls, **how):
    with pytest.raises(BadRequest) as caught:
        await fetch(*urls, **how)
    return caught.value.problem


async def test_fetch_request_has_few_headers_and_uses_no_proxy(monkeypatch):
    """Neither a proxy of the environment nor a netrc file is used."""
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    async with web({"/a?b=%20c": page(PNG)}) as site:
        await fetch(f"{site.url}/a?b=%20c#d")
        ((_, headers),) = site.requests
    assert headers.pop("user-agent").startswith("gateway/")
    assert headers == {"host": f"127.0.0.1:{site.port}", "accept": "image/*", "accept-encoding": "identity"}


@on_both_loops
async def test_fetch_connects_to_the_checked_address_under_the_url_name():
    looked = []

    async def resolve(host, port):
        looked.append((host, port))
        return ["127.0.0.1"] if len(looked) == 1 else ["127.0.0.2"]

    async with web() as site:
        assert await fetch(f"http://bücher.test:{site.port}/a", resolve=resolve) == [PNG]
        ((_, headers),) = site.requests
    assert headers["host"] == f"xn--bcher-kva.test:{site.port}"
    assert looked == [("xn--bcher-kva.test", site.port)]


async def test_fetch_works_over_ipv6():
    async with web(host="::1") as site:
        assert await fetch(f"http://[::1]:{site.port}/a", networks=("::1/128",)) == [PNG]
        assert await fetch(f"http://six.test:{site.port}/a", networks=("::1/128",), resolve=names(six=["::1"])) == [PNG]
        assert [headers["host"] for _, headers in site.requests] == [f"[::1]:{site.port}", f"six.test:{site.port}"]


async def test_fetch_refuses_a_name_with_any_private_address():
    async with web() as site:
        for others in (["10.0.0.1"], ["::1"], ["169.254.169.254", "127.0.0.1"]):
            found = await refused(f"http://a.test:{site.port}/a", resolve=names(a=["127.0.0.1", *others]))
            assert found.code == FAILED
        assert site.requests == []


async def test_fetch_uses_the_first_address_that_accepts_a_connection():
    async with web() as site:
        resolve = names(a=["127.0.0.2", "127.0.0.1"], b=[])
        assert await fetch(f"http://a.test:{site.port}/a", resolve=resolve, networks=("127.0.0.0/8",)) == [PNG]
        assert (await refused(f"http://b.test:{site.port}/a", resolve=resolve)).code == FAILED


@on_both_loops
async def test_fetch_resolves_names_as_the_system_does():
    assert "127.0.0.1" in await resolved("localhost", 80)
    for odd in ("2130706433", "0x7f.1", "0177.0.0.1", "127.1"):
        assert await resolved(odd, 80) == ["127.0.0.1"]


ODD = [
    "127.0.0.2", "127.2", "0x7f.2", "0x7f000002", "2130706434", "017700000002", "0177.0.0.2", "127.0.0.2.", "127。0。0。2",
    "１２７.０.０.２", "①②⑦.⓪.⓪.②", "127.0.0.2%00.test", "[::ffff:127.0.0.2]", "[::ffff:7f00:2]", "[::127.0.0.2]",
    "[64:ff9b::7f00:2]", "[2002:7f00:2::]", "[2001:0:7f00:2::]", "[::ffff:127.0.0.2%25lo]",
]  # fmt: skip
THIS = [
    "127.0.0.1",
    "localhost",
    "LOCALHOST",
    "0",
    "0.0.0.0",
    "[::]",
    "[::1]",
    "[::1%25lo]",
    "[0:0:0:0:0:0:0:1]",
    "[fe80::1%25lo]",
]


@pytest.mark.parametrize("host", [*THIS, *ODD])
async def test_fetch_refuses_this_machine_under_any_name(host):
    async with web(host="127.0.0.2" if host in ODD else "127.0.0.1") as site:
        assert (await refused(f"http://{host}:{site.port}/a", networks=())).code == FAILED
        assert site.requests == []


async def test_fetch_checks_the_address_and_not_the_name():
    hosts = {
        "metadata.google.internal": "169.254.169.254",
        "localhost.example.com": "127.0.0.1",
        "a.nip.io": "10.0.0.1",
    }

    async def resolve(host, port):
        return [hosts[host]]

    for host in hosts:
        assert (await refused(f"http://{host}/", networks=(), resolve=resolve)).code == FAILED


@pytest.mark.parametrize(
    ("url", "port"),
    [
        ("http://a.test/", 80),
        ("https://a.test/", 443),
        ("http://a.test:443/", 443),
        ("https://a.test:0/", 0),
        ("http://a.test:25/", 25),
    ],
)
async def test_fetch_checks_the_port_with_the_address(url, port):
    looked = []
    guard = SsrfGuard(lambda *where: looked.append(where), names(a=["127.0.0.1"]))
    with pytest.raises(FetchFailed):
        async with guard.answer(httpx.Request("GET", url)):
            pass
    assert looked == [("127.0.0.1", port)]


async def test_fetch_refuses_a_user_in_the_url():
    async with web() as site:
        for user in ("me", "me:secret", "1.2.3.4\\"):
            assert (await refused(f"http://{user}@127.0.0.1:{site.port}/a")).code == FAILED
        assert site.requests == []


# Redirects


async def test_redirect_is_followed_three_times_at_most():
    hops = {f"/{i}": moved(f"/{i + 1}", status) for i, status in enumerate((301, 302, 307, 308))}
    async with web({**hops, "/4": page(PNG)}) as site:
        assert await fetch(f"{site.url}/1") == [PNG]
        assert (await refused(f"{site.url}/0")).code == FAILED
        assert [path for path, _ in site.requests] == ["/1", "/2", "/3", "/4", "/0", "/1", "/2", "/3"]


async def test_redirect_target_is_checked_like_the_first_url():
    """The other server runs, and no spelling of its address reaches it."""
    async with web() as site, web(host="127.0.0.2") as inside:
        resolve = names(site=["127.0.0.1"], inside=["127.0.0.2"])
        for location in (
            f"http://inside.test:{inside.port}/a",
            f"http://127.0.0.2:{inside.port}/a",
            f"//inside.test:{inside.port}/a",
            f"http://[::ffff:127.0.0.2]:{inside.port}/a",
            "http://169.254.169.254/latest/meta-data",
            "file:///etc/passwd",
            f"ftp://site.test:{site.port}/a",
            "data:image/png;base64,iVBORw0KGgo=",
            f"http://me:secret@site.test:{site.port}/a",
            "http://[::1",
            "http://site.test:99999999/a",
            *(f"http://{host}:{inside.port}/a" for host in ODD),
        ):
            site.pages["/to"] = moved(location)

            async def both(host, port):
                return await (resolve if host.endswith(".test") and "%" not in host else resolved)(host, port)

            assert (await refused(f"http://site.test:{site.port}/to", resolve=both)).code == FAILED, location
        assert inside.requests == [] and {path for path, _ in site.requests} == {"/to"}


async def test_redirect_carries_no_cookie_and_no_referer():
    async with web({"/to": moved("/a").replace(b"\r\n\r\n", b"\r\nset-cookie: a=b\r\n\r\n"), "/a": page(PNG)}) as site:
        assert await fetch(f"{site.url}/to") == [PNG]
        _, (_, headers) = site.requests
    assert not {"cookie", "referer", "authorization"} & headers.keys()


async def test_redirect_from_https_to_http_is_refused():
    async with encrypted("safe.test") as (safe, tls), web() as plain:
        resolve = names(safe=["127.0.0.1"], plain=["127.0.0.1"])
        safe.pages |= {"/down": moved(f"http://plain.test:{plain.port}/a"), "/same": moved("/a")}
        plain.pages["/up"] = moved(f"https://safe.test:{safe.port}/a")
        above, below = f"https://safe.test:{safe.port}", f"http://plain.test:{plain.port}"
        assert await fetch(f"{above}/same", f"{below}/up", resolve=resolve, tls=tls) == [PNG, PNG]
        assert (await refused(f"{above}/down", resolve=resolve, tls=tls)).code == FAILED
        assert [path for path, _ in plain.requests] == ["/up"]


# TLS


@on_both_loops
async def test_certificate_must_match_the_name_of_the_url():
    async with encrypted("pictures.test") as (site, trusting):
        resolve = names(pictures=["127.0.0.1"], others=["127.0.0.1"])
        assert await fetch(f"https://pictures.test:{site.port}/a", resolve=resolve, tls=trusting) == [PNG]
        for url, tls in (
            (f"https://others.test:{site.port}/a", trusting),
            (f"https://127.0.0.1:{site.port}/a", trusting),
            (f"https://pictures.test:{site.port}/a", None),
        ):
            assert (await refused(url, resolve=resolve if ".test" in url else None, tls=tls)).code == FAILED
        assert len(site.requests) == 1


# Limits


@on_both_loops
async def test_limit_of_bytes_ends_a_fetch_that_never_ends():
    async with web({"/a": endless}) as site:
        found = await refused(f"{site.url}/a", max_bytes=200_000)
        assert (found.status, found.code, found.param) == (400, "image_file_too_large", "p0")
        assert found.message == "Invalid 'p0': the images of the request exceed the limit of 200000 bytes in total."
        await until(lambda: site.connections == 0)


async def test_limit_of_bytes_covers_all_images_of_a_request():
    pages = {f"/{i}": page(PNG + bytes(100 - len(PNG))) for i in range(3)}
    async with web(pages) as site:
        urls = [f"{site.url}/{i}" for i in range(3)]
        assert await fetch(*urls, max_bytes=300) == [PNG.ljust(100, b"\0")] * 3
        assert (await refused(*urls, max_bytes=299)).code == "image_file_too_large"


async def test_limit_of_bytes_ignores_the_content_length():
    short = page(PNG).replace(b"content-length: %d" % len(PNG), b"content-length: 99999999999")
    long = page(PNG + bytes(100)).replace(b"content-length: 116", b"content-length: %d" % len(PNG))
    async with web({"/short": short, "/long": long}) as site:
        assert (await refused(f"{site.url}/short")).code == FAILED
        assert await fetch(f"{site.url}/long") == [PNG]


async def test_limit_of_parallel_fetches_is_four():
    present, peak, enough = set(), [], asyncio.Event()

    async def slow(reader, writer):
        present.add(writer)
        peak.append(len(present))
        if len(present) == 4:
            enough.set()
        await enough.wait()
        await idle(0.01)
        present.discard(writer)
        writer.write(page(PNG))

    async with web({f"/{i}": slow for i in range(7)}) as site:
        assert await fetch(*(f"{site.url}/{i}" for i in range(7))) == [PNG] * 7
    assert max(peak) == 4


@on_both_loops
async def test_fetch_that_fails_ends_the_other_fetches():
    async with web({"/good": hanging, "/bad": page(b"", 404)}) as site:
        assert (await refused(f"{site.url}/good", f"{site.url}/bad", seconds=DEADLINE)).param == "p1"
        await until(lambda: site.connections == 0)


async def dripping(reader, writer):
    writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 1000000\r\n\r\n")
    while True:
        writer.write(b"x")
        await writer.drain()
        await idle(0.01)


async def babbling(reader, writer):
    """Send informational responses for ever."""
    while True:
        writer.write(b"HTTP/1.1 102 Processing\r\n\r\n")
        await writer.drain()


async def boasting(reader, writer):
    writer.write(b"HTTP/1.1 200 OK\r\n")
    while True:
        writer.write(b"x-more: %b\r\n" % (b"x" * 1000))
        await writer.drain()


@pytest.mark.parametrize("endless", [dripping, babbling, boasting])
@on_both_loops
async def test_timeout_of_a_fetch_ends_a_slow_server(endless):
    async with web({"/a": endless}) as site:
        assert (await refused(f"{site.url}/a", seconds=0.5)).code == FAILED
        await until(lambda: site.connections == 0)


@on_both_loops
async def test_fetch_error_is_the_same_for_every_cause():
    """The error does not show if a name, a machine or a port exists."""
    pages = {"/404": page(PNG, 404), "/500": page(PNG, 500), "/204": page(b"", 204), "/302": page(b"", 302), "/loop": moved("/loop"),
             "/junk": b"junk\r\n\r\n", "/nothing": b"", "/slow": hanging}  # fmt: skip
    async with web(pages) as site:
        closed = site.port
        problems = [await refused(f"{site.url}{path}", seconds=0.1 if path == "/slow" else DEADLINE) for path in pages]

    async def unknown(host, port):
        raise OSError(host)

    problems += [
        await refused(f"http://a.test:{closed}/", resolve=unknown),
        await refused(f"http://127.0.0.1:{closed}/"),
    ]
    problems += [await refused(url) for url in ("http://10.0.0.1/", "http://169.254.169.254/", "http://", "http://" + "a" * 70_000,
                                            "http://" + "a" * 300 + "/", "http://\0/", "http://127.0.0.1:99999999/")]  # fmt: skip
    (same,) = {(one.status, one.code, one.message, one.param) for one in problems}
    assert same == (400, FAILED, "Invalid 'p0': the image could not be downloaded.", "p0")


# Other requests


def local_guard():
    return SsrfGuard(address_filter([HERE], PORTS))


async def send(request):
    async with local_guard().answer(request) as answer:
        return answer.status_code, await answer.aread()


async def test_guard_sends_a_request_of_any_method_unchanged():
    received = []

    async def receive(reader, writer):
        received.append(await reader.readexactly(7))
        writer.write(page(b"", 307, location="/else"))

    async with web({"/a": receive}) as site:
        request = httpx.Request("POST", f"{site.url}/a", headers={"authorization": "Bearer x"}, json={"a": 1})
        assert await send(request) == (307, b""), "nobody else gets what was meant for this one"
        ((_, headers),) = site.requests
    assert received == [b'{"a":1}'] and (headers["authorization"], headers["content-type"]) == (
        "Bearer x",
        "application/json",
    )


async def test_redirect_drops_authorization_and_cookie():
    async with web({"/to": moved("/a"), "/a": page(PNG)}) as site:
        for accept in ({"accept": "image/*"}, {}):
            request = httpx.Request(
                "GET", f"{site.url}/to", headers={"authorization": "Bearer x", "cookie": "y", **accept}
            )
            assert await send(request) == (200, PNG)
            (_, first), (_, second) = site.requests[-2:]
            assert (
                first["authorization"] == "Bearer x"
                and second.keys() & {"authorization", "cookie", "accept"} == accept.keys()
            )


@on_both_loops
async def test_guard_response_can_be_read_until_it_breaks_off():
    go = asyncio.Event()

    async def halting(reader, writer):
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\none")
        await go.wait()
        writer.write(b"two")

    async with web({"/a": halting}) as site:
        pieces = []
        with pytest.raises(FetchFailed):
            async with local_guard().answer(httpx.Request("GET", f"{site.url}/a")) as answer:
                async for piece in answer.aiter_raw():
                    pieces.append(piece)
                    go.set()
    assert pieces == [b"one", b"two"]


# Configuration


def test_config_checks_ports_and_networks_of_fetching():
    parse = lambda text: config.parse(text, "gateway.yaml", {}, [])  # noqa: E731
    both = "images: {networks: [10.1.0.0/16, '::1'], ports: [80, 8443]}\nfiles: {networks: [10.1.0.0/16, '::1'], ports: [80, 8443]}"
    assert parse(both).images == parse(both).files
    assert (parse(both).files.networks, parse(both).files.ports) == (("10.1.0.0/16", "::1/128"), (80, 8443))
    for section, fault in (
        (
            "networks: [10.1.0.1/16]",
            "networks[0]: not a network like 10.1.0.0/16 or an address like 10.1.2.3; did you mean 10.1.0.0/16?",
        ),
        (
            "networks: [inside]",
            "networks[0]: not a network like 10.1.0.0/16 or an address like 10.1.2.3",
        ),
        ("ports: [0]", "ports[0]: should be 1 or more, not 0"),
        ("ports: [65536]", "ports[0]: should be 65535 or less, not 65536"),
    ):
        with pytest.raises(config.ConfigError) as caught:
            parse(f"files: {{{section}}}")
        assert f"files.{fault}" in str(caught.value)
