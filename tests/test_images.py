"""Images by URL reach servers that cannot fetch them, and the gateway fetches nothing that its clients could not reach."""

import asyncio
import base64
import gzip
import ssl
from contextlib import asynccontextmanager, suppress
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network

import meaning  # noqa: F401 - the same addresses in every run
import pytest
import trustme
from hypothesis import given
from hypothesis import strategies as st
from meaning import untraced
from msgspec.structs import replace
from scripted import HELLO, gateway, on_both_loops, problem, said, whole

from gateway import config, images
from gateway.errors import BadRequest
from gateway.ledger import Ledger
from gateway.request import Request
from gateway.server.addresses import allowed, is_public
from gateway.server.images import Fetching, resolved

PNG = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR"
IMAGES = {
    "image/png": PNG,
    "image/jpeg": b"\xff\xd8\xff\xe0\0\x10JFIF",
    "image/gif": b"GIF89a\1\0\1\0",
    "image/webp": b"RIFF\x24\0\0\0WEBPVP8 ",
}
FETCH, CANNOT = ("openai", "vllm", "sglang"), ("llamacpp", "ollama", "lmstudio", "transformers")
HERE = "127.0.0.1/32"
FAILED = "failed_to_download_image"
PARAM = "messages[0].content[0].image_url.url"


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
def test_an_address_that_is_not_everybodys_is_refused(address):
    assert not is_public(ip_address(address)) and not allowed([])(address)


@pytest.mark.parametrize("address", PUBLIC)
def test_an_address_of_the_internet_is_allowed(address):
    assert is_public(ip_address(address)) and allowed([])(address)


@given(st.ip_addresses())
def test_no_address_is_public_that_is_not_global(address):
    special = address.is_multicast or address.is_private or address.is_reserved or address.is_loopback
    if not address.is_global or special or address.is_link_local or address.is_unspecified:
        assert not is_public(address)


@given(st.ip_addresses(v=4))
def test_an_address_inside_of_another_is_not_public(address):
    number = int(address)
    for inside in (number, 0xFFFF << 32 | number, 0xFFFF << 48 | number, 0x64FF9B << 96 | number):
        assert not is_public(IPv6Address(inside))
    assert not is_public(IPv6Address(0x2002 << 112 | number << 80 | 1))
    assert not is_public(IPv6Address(0x20010000 << 96 | number << 64 | number ^ 0xFFFFFFFF))


@given(st.ip_addresses(v=6))
def test_of_the_others_only_what_is_given_out_is_public(address):
    if is_public(address):
        assert address in ip_network("2000::/3") and not (address.teredo or address.sixtofour or address.ipv4_mapped)


def test_networks_may_be_allowed_besides():
    check = allowed(["10.1.0.0/16", "fd00::/8"])
    assert check("10.1.2.3") and check("fd00::1") and check("8.8.8.8")
    assert not (check("10.2.0.1") or check("::ffff:10.1.2.3") or check("fe80::1"))
    assert not is_public(IPv4Address("10.1.2.3"))


# The web, as far as a test has it


class Web:
    """A server: what it says to each path, and what it was asked."""

    def __init__(self, pages):
        self.pages = pages
        self.asked, self.arrived, self.left = [], asyncio.Event(), asyncio.Event()

    async def welcome(self, reader, writer):
        with suppress(ConnectionError, asyncio.IncompleteReadError):
            head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
            path = head.split(" ")[1]
            self.asked.append((path, dict(line.split(": ", 1) for line in head.split("\r\n")[1:-2])))
            self.arrived.set()
            page = self.pages[path]
            if isinstance(page, bytes):
                writer.write(page)
                await writer.drain()
            else:
                await page(reader, writer)
        writer.close()
        with suppress(ConnectionError, ssl.SSLError):
            await writer.wait_closed()
        self.left.set()


@asynccontextmanager
async def web(pages=None, host="127.0.0.1", context=None, port=0):
    site = Web(pages or {"/a": page(PNG)})
    async with await asyncio.start_server(site.welcome, host, port, ssl=context) as server:
        site.port = server.sockets[0].getsockname()[1]
        site.url = f"http://{host}:{site.port}"
        yield site


def page(body, status=200, **headers):
    lines = {"content-length": len(body), **{name.replace("_", "-"): value for name, value in headers.items()}}
    said = "".join(f"{name}: {value}\r\n" for name, value in lines.items())
    return f"HTTP/1.1 {status} Said\r\n{said}\r\n".encode() + body


def moved(location, status=302):
    return page(b"", status, location=location)


def names(**addresses):
    """A resolver for the names under .test."""

    async def resolve(host, port):
        return addresses[host.removesuffix(".test")]

    return resolve


async def fetch(*urls, resolve=None, tls=None, networks=(HERE,), **limits):
    settings = config.Images(fetch=True, networks=networks, **limits)
    fetched = await Fetching(settings, resolve, tls).all({url: f"p{i}" for i, url in enumerate(urls)})
    return [fetched[url] for url in urls]


async def refused(*urls, **how):
    with pytest.raises(BadRequest) as caught:
        await fetch(*urls, **how)
    return caught.value.problem


# Fetching


@pytest.mark.parametrize("type", IMAGES)
async def test_the_type_of_an_image_is_that_of_its_bytes(type):
    async with web({"/a": page(IMAGES[type], content_type="text/html")}) as site:
        assert await fetch(f"{site.url}/a") == [IMAGES[type]]
    assert images.data_url(IMAGES[type]) == f"data:{type};base64,{base64.b64encode(IMAGES[type]).decode()}"


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"<svg/>",
        b"%PDF-1.7",
        b"\x89PNG",
        b"\xff\xd8",
        b"GIF88a",
        b"RIFF\0\0\0\0WAVE",
        b"BM\0\0",
        gzip.compress(PNG, mtime=0),
    ],
)
async def test_what_is_no_image_is_refused_whatever_it_is_called(body):
    async with web({"/a": page(body, content_type="image/png")}) as site:
        told = await refused(f"{site.url}/a")
    assert (told.status, told.code, told.param) == (400, "unsupported_image_media_type", "p0")
    assert told.message == "Invalid 'p0': expected an image of the type PNG, JPEG, GIF or WebP."


async def test_nothing_is_unpacked():
    async with web({"/a": page(gzip.compress(PNG + bytes(1 << 20)), content_encoding="gzip")}) as site:
        assert (await refused(f"{site.url}/a", max_bytes=4096)).code == "unsupported_image_media_type"
        ((_, headers),) = site.asked
    assert headers["accept-encoding"] == "identity"


async def test_a_request_says_no_more_than_it_must(monkeypatch):
    """No proxy of the environment is asked, nor does a netrc file have a say."""
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    async with web({"/a?b=%20c": page(PNG)}) as site:
        await fetch(f"{site.url}/a?b=%20c#d")
        ((_, headers),) = site.asked
    assert headers.pop("user-agent").startswith("gateway/")
    assert headers.pop("Connection") == "keep-alive"
    assert headers == {"host": f"127.0.0.1:{site.port}", "accept": "image/*", "accept-encoding": "identity"}


@on_both_loops
async def test_the_connection_goes_to_the_address_that_was_looked_at_under_the_urls_name():
    looked = []

    async def resolve(host, port):
        looked.append((host, port))
        return ["127.0.0.1"] if len(looked) == 1 else ["127.0.0.2"]

    async with web() as site:
        assert await fetch(f"http://bücher.test:{site.port}/a", resolve=resolve) == [PNG]
        ((_, headers),) = site.asked
    assert headers["host"] == f"xn--bcher-kva.test:{site.port}"
    assert looked == [("xn--bcher-kva.test", site.port)]


async def test_an_address_of_the_sixth_version_is_no_different():
    async with web(host="::1") as site:
        assert await fetch(f"http://[::1]:{site.port}/a", networks=("::1/128",)) == [PNG]
        assert await fetch(f"http://six.test:{site.port}/a", networks=("::1/128",), resolve=names(six=["::1"])) == [PNG]
        assert [headers["host"] for _, headers in site.asked] == [f"[::1]:{site.port}", f"six.test:{site.port}"]


async def test_a_name_with_one_address_that_is_not_public_is_refused():
    async with web() as site:
        for others in (["10.0.0.1"], ["::1"], ["169.254.169.254", "127.0.0.1"]):
            told = await refused(f"http://a.test:{site.port}/a", resolve=names(a=["127.0.0.1", *others]))
            assert told.code == FAILED
        assert site.asked == []


async def test_of_several_addresses_the_first_that_takes_a_connection_answers():
    async with web() as site:
        resolve = names(a=["127.0.0.2", "127.0.0.1"], b=[])
        assert await fetch(f"http://a.test:{site.port}/a", resolve=resolve, networks=("127.0.0.0/8",)) == [PNG]
        assert (await refused(f"http://b.test:{site.port}/a", resolve=resolve)).code == FAILED


@on_both_loops
async def test_names_are_those_of_the_system():
    assert "127.0.0.1" in await resolved("localhost", 80)
    for odd in ("2130706433", "0x7f.1", "0177.0.0.1", "127.1"):
        assert await resolved(odd, 80) == ["127.0.0.1"]


@pytest.mark.parametrize(
    "url",
    [
        "http://127.0.0.1:{port}/a", "http://localhost:{port}/a", "http://[::ffff:127.0.0.1]:{port}/a", "http://127.1:{port}/a",
        "http://2130706433:{port}/a", "http://0x7f000001:{port}/a", "http://0:{port}/a", "http://[::]:{port}/a",
    ],
)  # fmt: skip
async def test_this_machine_is_not_to_be_reached_by_any_name(url):
    async with web() as site:
        assert (await refused(url.format(port=site.port), networks=())).code == FAILED
        assert site.asked == []


async def test_a_user_in_a_url_is_refused():
    async with web() as site:
        for user in ("me", "me:secret", "1.2.3.4\\"):
            assert (await refused(f"http://{user}@127.0.0.1:{site.port}/a")).code == FAILED
        assert site.asked == []


# Redirects


async def test_three_redirects_are_followed_and_no_fourth():
    hops = {f"/{i}": moved(f"/{i + 1}", status) for i, status in enumerate((301, 302, 307, 308))}
    async with web({**hops, "/4": page(PNG)}) as site:
        assert await fetch(f"{site.url}/1") == [PNG]
        assert (await refused(f"{site.url}/0")).code == FAILED
        assert [path for path, _ in site.asked] == ["/1", "/2", "/3", "/4", "/0", "/1", "/2", "/3"]


async def test_each_redirect_is_looked_at_anew():
    """The other server is there, and is not asked by any of the ways to name it."""
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
        ):
            site.pages["/to"] = moved(location)

            async def both(host, port):
                return [host] if ":" in host or host[0].isdigit() else await resolve(host, port)

            assert (await refused(f"http://site.test:{site.port}/to", resolve=both)).code == FAILED, location
        assert inside.asked == [] and {path for path, _ in site.asked} == {"/to"}


async def test_a_redirect_takes_nothing_along():
    async with web({"/to": moved("/a").replace(b"\r\n\r\n", b"\r\nset-cookie: a=b\r\n\r\n"), "/a": page(PNG)}) as site:
        assert await fetch(f"{site.url}/to") == [PNG]
        _, (_, headers) = site.asked
    assert not {"cookie", "referer", "authorization"} & headers.keys()


# TLS


@asynccontextmanager
async def encrypted(name):
    """A server that has a certificate for this name, and a context that trusts it."""
    ca, server = trustme.CA(), ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    ca.issue_cert(name).configure_cert(server)
    client = ssl.create_default_context()
    ca.configure_trust(client)
    async with web(context=server) as site:
        yield site, client


@on_both_loops
async def test_a_certificate_has_to_be_that_of_the_name():
    async with encrypted("pictures.test") as (site, trusting):
        resolve = names(pictures=["127.0.0.1"], others=["127.0.0.1"])
        assert await fetch(f"https://pictures.test:{site.port}/a", resolve=resolve, tls=trusting) == [PNG]
        for url, tls in (
            (f"https://others.test:{site.port}/a", trusting),
            (f"https://127.0.0.1:{site.port}/a", trusting),
            (f"https://pictures.test:{site.port}/a", None),
        ):
            assert (await refused(url, resolve=resolve if ".test" in url else None, tls=tls)).code == FAILED
        assert len(site.asked) == 1


# Limits


async def endless(reader, writer):
    writer.write(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n")
    while True:
        writer.write(b"10000\r\n" + PNG.ljust(65536, b"\0") + b"\r\n")
        await writer.drain()


async def hanging(reader, writer):
    writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\n" + PNG)
    await reader.read()


@on_both_loops
async def test_an_image_that_never_ends_is_let_go():
    async with web({"/a": endless}) as site:
        told = await refused(f"{site.url}/a", max_bytes=200_000)
        assert (told.status, told.code, told.param) == (400, "image_file_too_large", "p0")
        assert told.message == "Invalid 'p0': the images of a request may have 200000 bytes in all."
        await asyncio.wait_for(site.left.wait(), 5)


async def test_the_images_of_a_request_share_a_limit():
    pages = {f"/{i}": page(PNG + bytes(100 - len(PNG))) for i in range(3)}
    async with web(pages) as site:
        urls = [f"{site.url}/{i}" for i in range(3)]
        assert await fetch(*urls, max_bytes=300) == [PNG.ljust(100, b"\0")] * 3
        assert (await refused(*urls, max_bytes=299)).code == "image_file_too_large"


async def test_what_a_length_says_counts_for_nothing():
    short = page(PNG).replace(b"content-length: %d" % len(PNG), b"content-length: 99999999999")
    long = page(PNG + bytes(100)).replace(b"content-length: 116", b"content-length: %d" % len(PNG))
    async with web({"/short": short, "/long": long}) as site:
        assert (await refused(f"{site.url}/short")).code == FAILED
        assert await fetch(f"{site.url}/long") == [PNG]


async def test_a_few_are_fetched_at_once():
    present, peak, enough = set(), [], asyncio.Event()

    async def slow(reader, writer):
        present.add(writer)
        peak.append(len(present))
        if len(present) == 4:
            enough.set()
        await enough.wait()
        await asyncio.sleep(0.01)
        present.discard(writer)
        writer.write(page(PNG))

    async with web({f"/{i}": slow for i in range(7)}) as site:
        assert await fetch(*(f"{site.url}/{i}" for i in range(7))) == [PNG] * 7
    assert max(peak) == 4


@on_both_loops
async def test_one_that_fails_ends_the_others():
    async with web({"/good": hanging, "/bad": page(b"", 404)}) as site:
        async with asyncio.timeout(5):
            assert (await refused(f"{site.url}/good", f"{site.url}/bad")).param == "p1"
        await asyncio.wait_for(site.left.wait(), 5)


@on_both_loops
async def test_whatever_goes_wrong_is_told_in_the_same_words():
    """Nobody learns from them whether there is a name, a machine or a port."""
    pages = {"/404": page(PNG, 404), "/500": page(PNG, 500), "/204": page(b"", 204), "/302": page(b"", 302), "/loop": moved("/loop"),
             "/junk": b"junk\r\n\r\n", "/nothing": b"", "/slow": hanging}  # fmt: skip
    async with web(pages) as site:
        closed = site.port
        told = [await refused(f"{site.url}{path}", seconds=1 if path == "/slow" else 10) for path in pages]

    async def unknown(host, port):
        raise OSError(host)

    told += [await refused(f"http://a.test:{closed}/", resolve=unknown), await refused(f"http://127.0.0.1:{closed}/")]
    told += [await refused(url) for url in ("http://10.0.0.1/", "http://169.254.169.254/", "http://", "http://" + "a" * 70_000,
                                            "http://" + "a" * 300 + "/", "http://\0/", "http://127.0.0.1:99999999/")]  # fmt: skip
    (same,) = {(one.status, one.code, one.message, one.param) for one in told}
    assert same == (400, FAILED, "Invalid 'p0': the image could not be downloaded.", "p0")


# In requests


def image(url, **more):
    return {"type": "image_url", "image_url": {"url": url, **more}}


def asking(*parts, role="user"):
    return [{"role": role, "content": [*parts]}]


def fetching(**more):
    return {"images": {"fetch": True, "networks": [HERE], **more}}


def inline(data, type="image/png"):
    return f"data:{type};base64,{base64.b64encode(data).decode()}"


def seen(asked):
    """The images that a server was sent, in base64."""
    for message in asked["messages"]:
        yield from message.get("images", ())
        for part in message["content"] if isinstance(message["content"], list) else ():
            if part["type"] == "image_url":
                yield part["image_url"]["url"].removeprefix("data:image/png;base64,")


@pytest.mark.parametrize("kind", CANNOT)
async def test_an_image_is_sent_itself_where_the_server_cannot_fetch_it(kind):
    native = {"message": {"role": "assistant", "content": "Hi"}, "done": True, "done_reason": "stop"}
    async with web() as there, gateway(whole({**said(), **native}), backend={"kind": kind}, **fetching()) as site:
        answer = await site.chat(messages=asking({"type": "text", "text": "What?"}, image(f"{there.url}/a")))
        assert [*seen(site.asked)] == [base64.b64encode(PNG).decode()]
        assert "translated:image_url" in answer.headers["x-gateway-warnings"]


@pytest.mark.parametrize("kind", FETCH)
async def test_a_url_is_passed_where_the_server_fetches_it(kind):
    async with web() as there, gateway(whole(said()), backend={"kind": kind}, **fetching()) as site:
        parts = [image(f"{there.url}/a", detail="low"), image("file:///x"), image("data:,x")]
        answer = await site.chat(messages=asking(*parts))
        assert site.asked["messages"] == asking(*parts) and there.asked == []
        assert "x-gateway-warnings" not in answer.headers


@pytest.mark.parametrize("kind", CANNOT)
async def test_without_leave_to_fetch_it_is_said_what_to_do(kind):
    async with web() as there, gateway(HELLO, backend={"kind": kind}, images={"networks": [HERE]}) as site:
        answer = await site.chat(
            messages=[
                *asking({"type": "text", "text": "x"}),
                *asking(image("data:image/png;base64,QQ=="), image(f"{there.url}/a")),
            ]
        )
        assert problem(answer) == (
            400,
            "invalid_request_error",
            "unsupported_value",
            "messages[1].content[1].image_url.url",
        )
        assert "images.fetch" in answer.json()["error"]["message"] and "data URL" in answer.json()["error"]["message"]
        assert there.asked == [] and site.upstream.posts == []


async def test_the_rest_of_a_part_and_of_a_message_stays():
    text = {"type": "text", "text": "x"}
    async with web({"/a": page(PNG), "/b": page(IMAGES["image/gif"])}) as there:
        messages = [
            {"role": "user", "content": "plain", "name": "Ann"},
            *asking(text, image(f"{there.url}/a", detail="low"), image(inline(PNG)), image(f"{there.url}/b")),
            *asking(image(f"{there.url}/a")),
        ]
        async with gateway(HELLO, backend={"kind": "llamacpp"}, **fetching()) as site:
            await site.chat(messages=messages, stream=True)
            gif = image(inline(IMAGES["image/gif"], "image/gif"))
            assert site.asked["messages"] == [
                messages[0],
                *asking(text, image(inline(PNG), detail="low"), image(inline(PNG)), gif),
                *asking(image(inline(PNG))),
            ]
        assert sorted(path for path, _ in there.asked) == ["/a", "/b"]


BAD = {
    "data:image/png;base64,": "invalid_base64_image",
    "data:image/png;base64,QQ": "invalid_base64_image",
    "data:image/png;base64,Q Q=": "invalid_base64_image",
    "data:image/png;base64,QQ==ü": "invalid_base64_image",
    "data:image/svg+xml,<svg/>": "invalid_base64_image",
    "data:": "invalid_base64_image",
    "DATA:image/png;BASE64,QQ==": None,
    "QQ==": "invalid_image_url",
    "": "invalid_image_url",
    "file:///etc/passwd": "invalid_image_url",
    "ftp://example.com/a.png": "invalid_image_url",
    "//example.com/a.png": "invalid_image_url",
    " http://example.com": "invalid_image_url",
}


@pytest.mark.parametrize("url", BAD)
async def test_what_is_sent_as_an_image_has_to_be_base64(url):
    async with gateway(HELLO, backend={"kind": "llamacpp"}) as site:
        answer = await site.chat(messages=asking(image(url)), stream=True)
        if BAD[url]:
            assert problem(answer) == (400, "invalid_request_error", BAD[url], PARAM) and site.upstream.posts == []
        else:
            assert answer.status_code == 200


async def test_a_url_is_needed_and_is_a_string():
    async with gateway(HELLO) as site:
        for url, code in ({}, "missing_required_parameter"), ({"url": 1}, "invalid_type"):
            answer = await site.chat(messages=asking({"type": "image_url", "image_url": url}))
            assert problem(answer) == (400, "invalid_request_error", code, PARAM)
        for sound, place in ({}, "data"), ({"data": "QQ=="}, "format"):
            answer = await site.chat(messages=asking({"type": "input_audio", "input_audio": sound}))
            param = f"messages[0].content[0].input_audio.{place}"
            assert problem(answer) == (400, "invalid_request_error", "missing_required_parameter", param)


async def test_images_of_the_other_api_are_fetched_as_well():
    async with web() as there, gateway(HELLO, backend={"kind": "llamacpp"}, **fetching()) as site:
        shown = {"type": "input_image", "image_url": f"{there.url}/a"}
        called = {"type": "function_call", "call_id": "c1", "name": "look", "arguments": "{}"}
        output = {"type": "function_call_output", "call_id": "c1", "output": [shown]}
        answer = await site.respond(input=[{"role": "user", "content": [shown]}, called, output], stream=True)
        assert answer.status_code == 200
        assert [*seen(site.asked)] == [base64.b64encode(PNG).decode()] * 2
        assert len(there.asked) == 1
        shown["image_url"] = f"{there.url}/b"
        there.pages["/b"] = page(b"", 404)
        answer = await site.respond(input=[{"role": "user", "content": [shown]}])
        assert problem(answer) == (400, "invalid_request_error", FAILED, "input")


async def test_images_are_counted_as_they_are_sent():
    counted = whole({"input_tokens": 7})
    async with web() as there, gateway(HELLO, backend={"kind": "llamacpp"}, **fetching()) as site:
        site.upstream.shown["/v1/chat/completions/input_tokens"] = counted
        content = [{"type": "input_image", "image_url": f"{there.url}/a"}]
        answer = await site.client.post(
            "/v1/responses/input_tokens", json={"model": "m", "input": [{"role": "user", "content": content}]}
        )
        assert answer.json()["input_tokens"] == 7
        assert [*seen(site.upstream.aside[-1].json)] == [base64.b64encode(PNG).decode()]


async def test_a_client_that_leaves_ends_the_fetching():
    async with web({"/a": hanging}) as there, gateway(HELLO, backend={"kind": "llamacpp"}, **fetching()) as site:
        client = asyncio.create_task(site.chat(messages=asking(image(f"{there.url}/a"))))
        await there.arrived.wait()
        client.cancel()
        await asyncio.wait_for(there.left.wait(), 5)
        assert site.upstream.posts == []


@given(
    st.binary(max_size=40)
    | st.sampled_from(sorted(IMAGES.values())).flatmap(lambda head: st.binary().map(lambda rest: head + rest))
)
@untraced
def test_any_image_is_the_same_in_a_message(data):
    if type := images.media_type(data):
        assert images.data_url(data) == inline(data, type)
        request = Request(model="m", messages=tuple(asking(image("http://x/"))))
        inlined = images.inlined(request, {"http://x/": data})
        assert images.addresses(inlined) == {} and inlined == replace(
            request, messages=tuple(asking(image(inline(data, type))))
        )


def test_a_message_without_images_is_left_alone():
    request = Request(model="m", messages=({"role": "user", "content": "x"}, {"role": "assistant", "content": None}))
    assert images.addresses(request) == {} and Ledger().entries() == []
    assert [
        one is other for one, other in zip(images.inlined(request, {}).messages, request.messages, strict=True)
    ] == [True, True]


# Configuration


def test_networks_are_checked():
    parse = lambda text: config.parse(text, "gateway.yaml", {}, [])  # noqa: E731
    assert parse("images: {networks: [10.1.0.0/16, '::1']}").images.networks == ("10.1.0.0/16", "::1/128")
    for networks, fault in (
        ("[10.1.0.1/16]", "images.networks[0]: not a network like 10.1.0.0/16: 10.1.0.1/16 has host bits set"),
        (
            "[inside]",
            "images.networks[0]: not a network like 10.1.0.0/16: 'inside' does not appear to be an IPv4 or IPv6 network",
        ),
    ):
        with pytest.raises(config.ConfigError) as caught:
            parse(f"images: {{networks: {networks}}}")
        assert fault in str(caught.value)
