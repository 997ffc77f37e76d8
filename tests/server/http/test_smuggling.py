"""Test requests that a proxy may read differently: each gets one response, or the connection is closed.

A sound request follows on the same connection, and its response is the last 200.  If the end of a request is
ambiguous, no response follows: the connection is closed.
"""

import asyncio
import re

import pytest

from support.app import listening
from support.upstream import HELLO
from support.wait import DEADLINE

BODY = b'{"model":"m","messages":[{"role":"user","content":"hi"}]}'
POST = b"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\n"
GET = b"GET /health HTTP/1.1\r\nhost: x\r\n"
HEALTH = GET + b"connection: close\r\n\r\n"
CHUNKED = POST + b"transfer-encoding: chunked\r\n\r\n"
HANDSHAKE = b"connection: upgrade\r\nupgrade: websocket\r\nsec-websocket-version: 13\r\n"
CHUNKS = b"%x\r\n%b\r\n0\r\n\r\n" % (len(BODY), BODY)


def sized(*lines, body=BODY, line=POST):
    return line + b"".join(one + b"\r\n" for one in (b"content-length: %d" % len(body), *lines, b"")) + body


def to(path):
    return sized(line=b"POST %b HTTP/1.1\r\nhost: x\r\n" % path)


def coded(*codings):
    return POST + b"".join(b"transfer-encoding: %b\r\n" % one for one in codings) + b"\r\n" + CHUNKS


OPEN, END, TOO_LARGE = [200, 200], [400], [431]
LENGTHS = {
    "one": (sized(), OPEN),
    "chunks": (CHUNKED + CHUNKS, OPEN),
    "a length and chunks": (sized(b"transfer-encoding: chunked", body=CHUNKS), END),
    "chunks and a length": (POST + b"transfer-encoding: chunked\r\ncontent-length: 5\r\n\r\n" + CHUNKS, END),
    "two lengths": (sized(b"content-length: 1"), END),
    "twice the same": (sized(b"content-length: %d" % len(BODY)), END),
    **{f"length {one}": (POST + b"content-length: %b\r\n\r\nhello" % one, END) for one in (b"5, 5", b"+5", b"-5", b"0x5", b"5 5", b"", b"9" * 25)},
    "a length with a space before its colon": (POST + b"content-length : 5\r\n\r\nhello", END),
    "a length beyond the limit": (sized(b"expect: 100-continue", body=b"").replace(b"length: 0", b"length: 9999999999"), [413]),
    **{f"coded {one}": (coded(one), END) for one in (b"chunked, identity", b"identity", b"gzip, chunked", b"xchunked", b"chunkedx", b"chunked, chunked", b"\x0bchunked", b"chunked;q=1", b"")},
    "coded twice": (coded(b"chunked", b"identity"), END),
    "coded twice, the other way round": (coded(b"identity", b"chunked"), END),
    "coded in capitals": (coded(b"Chunked"), OPEN),
    "coded on a folded line": (coded(b"\r\n chunked"), END),
    "chunks of HTTP/1.0": (CHUNKED.replace(b"1.1", b"1.0") + CHUNKS, [200]),
    "a chunk with an extension": (CHUNKED + CHUNKS.replace(b"\r", b";a=b\r", 1), OPEN),
    "a line feed in an extension": (CHUNKED + CHUNKS.replace(b"\r", b";a=\nb\r", 1), END),
    "a chunk that ends in a line feed": (CHUNKED + CHUNKS.replace(b"\r", b"", 1), END),
    **{f"a chunk of {one}": (CHUNKED + one + b"\r\nhello\r\n0\r\n\r\n", END) for one in (b"-5", b"0x5", b"f" * 17, b"4", b"5 ", b"")},
    "a trailer that names a length": (CHUNKED + CHUNKS[:-2] + b"content-length: 3\r\n\r\n", END),
}  # fmt: skip
HEADS = {
    "a folded line": (sized(b"x-a: 1\r\n 2"), END),
    "line feeds alone": (sized().replace(b"\r\n", b"\n"), END),
    **{f"{one!r} in a value": (sized(b"x-a: 1%bx-b: 2" % one), END) for one in (b"\n", b"\r", b"\0", b"\x01", b"\x7f")},
    "Latin letters in a value": (sized(b"x-a: \xe9"), OPEN),
    **{f"the name {one!r}": (sized(one + b": 1"), END) for one in (b"x a", b"x-a ", b"", b"x\0a", b"x\xe9a", b"x(a)")},
    "no colon": (sized(b"xa"), END),
    "80 kB": (sized(b"x-a: " + b"a" * 80_000), TOO_LARGE),
    "10,000 lines": (sized(*(b"x-%d: 1" % i for i in range(10_000))), TOO_LARGE),
    "a MB": (sized(b"x-a: " + b"a" * (1 << 20)), TOO_LARGE),
    "a MB of address": (to(b"/" + b"a" * (1 << 20)), TOO_LARGE),
    "no host": (sized(line=POST.replace(b"host: x\r\n", b"")), END),
    "two hosts": (sized(b"host: y"), END),
    "an empty host": (sized(line=POST.replace(b"host: x", b"host:")), OPEN),
    "words to be refused before they come": (sized(b"expect: 100-continue", b"content-encoding: br"), [415]),
    "words to come": (sized(b"expect: 100-continue"), [100, 200]),
    "more behind the end": (sized(b"connection: close"), [200]),
}  # fmt: skip
PATHS = {
    **{f"at {one.decode()}": (to(one), [404, 200]) for one in (
        b"/v1/./chat/completions", b"/v1/%2e%2e/v1/chat/completions", b"/x/../v1/chat/completions",
        b"/v1/chat/completions%00", b"/v1/chat/completions%0d%0a", b"/%ff", b"*",
    )},
    **{f"as if at {one.decode()}": (to(one), OPEN) for one in (
        b"//v1/chat/completions", b"/v1/chat/completions/", b"/chat//completions",
        b"/v1/%63hat/completions", b"/v1/chat%2fcompletions", b"/v1/chat/completions#a", b"http://other/v1/chat/completions",
    )},
    **{f"nowhere: {one!r}": (to(one), END) for one in (b"\\v1\\chat\\completions", b"/\xff", b"v1", b"a:1", b"/a b")},
    "a tunnel": (b"CONNECT a:1 HTTP/1.1\r\nhost: a\r\n\r\n", END),
    "another method in a header": (sized(b"x-http-method-override: GET", b"x-method-override: GET", line=b"POST /health HTTP/1.1\r\nhost: x\r\n"), [405, 200]),
    "another method in the query": (to(b"/health?_method=GET"), [405, 200]),
    "a method that echoes": (b"TRACE /health HTTP/1.1\r\nhost: x\r\n\r\n", [405, 200]),
    **{f"the method {one.decode()}": (sized(line=POST.replace(b"POST", one)), END) for one in (b"post", b"Post", b"FOO", b"", b"GET POST")},
    "the preface of HTTP/2": (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", END),
    **{f"the version {one.decode()}": (sized(line=POST.replace(b"HTTP/1.1", one)), END) for one in (b"", b"HTTP/0.9", b"HTTP/1.2", b"HTTP/2.0", b"http/1.1", b"HTTP/1.1 ")},
    "HTTP/1.0": (GET.replace(b"1.1", b"1.0") + b"connection: keep-alive\r\n\r\n", [200]),
    "empty lines first": (b"\r\n\r\n" + sized(), OPEN),
    "a space first": (b" " + sized(), END),
}  # fmt: skip
# A body that reads like a request.
BODIES = {
    "of a GET": (sized(body=HEALTH, line=GET), OPEN),
    "with nobody there": (sized(body=HEALTH, line=POST.replace(b"chat", b"chit")), [404, 200]),
    "that nobody decodes": (sized(b"content-encoding: br", body=HEALTH), [415, 200]),
    "that is no JSON": (sized(body=HEALTH), [400, 200]),
    "with another method": (sized(body=HEALTH, line=POST.replace(b"POST", b"PUT")), [405, 200]),
    "in chunks": (CHUNKED + b"%x\r\n%b\r\n0\r\n\r\n" % (len(HEALTH), HEALTH), [400, 200]),
    "of a handshake": (sized(HANDSHAKE[:-2], body=HEALTH, line=GET), END),
    "of a handshake by POST": (sized(HANDSHAKE[:-2], body=HEALTH), END),
    "of a handshake in chunks": (GET + HANDSHAKE + b"transfer-encoding: chunked\r\n\r\n" + CHUNKS, END),
}


async def statuses(port, data):
    """Return the statuses of all responses until the connection is closed."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(data + HEALTH)
        return [int(one) for one in re.findall(rb"HTTP/1\.1 (\d+) ", await reader.read())]
    except ConnectionError:
        return []
    finally:
        writer.close()


@pytest.mark.parametrize("table", [LENGTHS, HEADS, PATHS, BODIES])
async def test_request_smuggling_gets_one_response_or_a_closed_connection(table, caplog):
    async with listening(HELLO) as site, asyncio.timeout(DEADLINE):
        port = site.client.base_url.port
        found = {case: await statuses(port, data) for case, (data, _) in table.items()}
    assert found == {case: wanted for case, (_, wanted) in table.items()}
    assert "Traceback" not in caplog.text


async def test_request_head_without_an_end_closes_the_connection():
    async with listening(HELLO) as site, asyncio.timeout(DEADLINE):
        _, writer = await asyncio.open_connection("127.0.0.1", site.client.base_url.port)
        with pytest.raises(ConnectionError):
            writer.write(POST + b"x-a: ")
            while True:
                writer.write(b"a" * 60_000)
                await writer.drain()
                await asyncio.sleep(0)
        writer.close()
