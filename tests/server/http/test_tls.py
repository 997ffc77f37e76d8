"""Test the gateway over TLS: clients connect, certificates are renewed while it runs, and faults are reported."""

import asyncio
import json
import signal
import socket
import ssl
from contextlib import asynccontextmanager, closing, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path

import httpx
import pytest
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
)
from openai import AsyncOpenAI
from websockets.asyncio.client import connect
from websockets.exceptions import InvalidStatus

from gateway.config import BackendSettings as BackendConfig
from gateway.config import Config, ConfigError
from gateway.server.http.tls import Certificates
from gateway.server.process.config_source import (
    ConfigSource,
    ConfigWatcher,
    read_config,
    resolve_config,
    startup_banner,
)
from gateway.server.upstream.backend import Backend
from support.app import HELLO_MESSAGES, listening, on_both_loops
from support.cli import run
from support.raw_requests import request_bytes
from support.serve_process import first, rest, streaming
from support.sse import text_of
from support.tls import CA, TRUSTING, issue, replace, serving, trusting, whole
from support.upstream import CLOSE, DONE, HELLO, Upstream, chunk, head, paused
from support.wait import DEADLINE
from support.websocket import Socket, texts

LARGE = "Hi, " * 20_000  # larger than pieces that are joined with their frame


async def handshake(port, name="localhost", context=None):
    """Return what a new connection gets: the serial number of the certificate, the TLS version and the ALPN protocol."""
    _, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context or trusting(), server_hostname=name)
    with closing(writer):
        tls = writer.get_extra_info("ssl_object")
        return tls.getpeercert()["serialNumber"], tls.version(), tls.selected_alpn_protocol()


async def chat(url):
    """POST a streamed chat completion on a connection of its own."""
    async with httpx.AsyncClient(base_url=url, verify=TRUSTING, timeout=DEADLINE) as client:
        return await client.post(
            "/v1/chat/completions", json={"model": "m", "messages": HELLO_MESSAGES, "stream": True}
        )


# As a process


@pytest.mark.parametrize("workers", [1, 2])
async def test_tls_serves_http_sdk_and_websocket_clients(workers, tmp_path):
    script = [head(), chunk(LARGE), chunk(finish="stop"), DONE, CLOSE]
    async with (
        asyncio.timeout(60),
        Upstream([script], ()).serving() as upstream,
        serving(tmp_path, upstream, workers=workers) as gateway,
    ):
        port = gateway.client.base_url.port
        assert text_of((await chat(gateway.client.base_url)).text) == LARGE
        async with (
            httpx.AsyncClient(verify=TRUSTING) as http,
            AsyncOpenAI(base_url=f"https://127.0.0.1:{port}/v1", api_key="x", http_client=http) as client,
        ):
            stream = await client.chat.completions.create(model="m", messages=HELLO_MESSAGES, stream=True)
            assert "".join([one.choices[0].delta.content or "" async for one in stream if one.choices]) == LARGE
            assert (await client.responses.create(model="m", input="Hello", store=False)).output_text == LARGE
        headers = {"origin": f"https://localhost:{port}"}
        async with connect(f"wss://localhost:{port}/v1/responses", ssl=TRUSTING, additional_headers=headers) as ws:
            assert texts(await Socket(ws).respond()) == [LARGE]
        assert gateway.client.base_url.scheme == "https"


@pytest.mark.parametrize("workers", [1, 2])
async def test_tls_certificate_renewed_on_disk_is_used_by_new_connections(workers, tmp_path):
    go = asyncio.Event()
    async with (
        asyncio.timeout(60),
        Upstream([paused(go), HELLO], ()).serving() as upstream,
        serving(tmp_path, upstream, workers=workers, watch_seconds=0.05) as gateway,
        streaming(gateway) as answer,
    ):
        port = gateway.client.base_url.port
        pieces, body = await first(answer, "Hel")
        old = await handshake(port)
        issue(tmp_path)
        await until_renewed(port, old)
        go.set()
        assert text_of(await rest(pieces, body)) == "Hello"
        assert text_of((await chat(gateway.client.base_url)).text) == "Hi"


async def until_renewed(port, old):
    """Wait until all workers present another certificate, to clients that name the server and to clients that do not."""
    unnamed = trusting()
    unnamed.check_hostname = False
    async with asyncio.timeout(DEADLINE):
        right = 0
        while right < 8:
            one, another = await handshake(port), await handshake(port, name="", context=unnamed)
            right = right + 1 if old not in (one, another) else 0


async def test_tls_sighup_reads_the_certificate_again_unless_its_key_differs(tmp_path):
    async with (
        asyncio.timeout(60),
        Upstream([HELLO], ()).serving() as upstream,
        serving(tmp_path, upstream, watch_seconds=0, clean=False) as gateway,
    ):
        port = gateway.client.base_url.port
        old, key = await handshake(port), (tmp_path / "key.pem").read_bytes()
        gateway.child.send_signal(signal.SIGHUP)
        await gateway.wait_for("no changes")
        issue(tmp_path)
        new_key = (tmp_path / "key.pem").read_bytes()
        replace(tmp_path / "key.pem", key)
        gateway.child.send_signal(signal.SIGHUP)
        await gateway.wait_for("server.tls.key: ")
        await gateway.wait_for("key.pem does not match the first certificate in ")
        assert await handshake(port) == old and (await chat(gateway.client.base_url)).status_code == 200
        replace(tmp_path / "key.pem", new_key)
        gateway.child.send_signal(signal.SIGHUP)
        await gateway.wait_for("the changes apply")
        await until_renewed(port, old)


# In this process


@asynccontextmanager
async def encrypted(folder, *scripts, **sections):
    """Run a gateway over TLS in this loop, and yield its port."""
    issue(folder)
    async with listening(*scripts, server={"tls": whole(folder).model_dump()}, **sections) as site:
        yield site.client.base_url.port


@on_both_loops
async def test_tls_websocket_refuses_origins_of_another_scheme_or_port(tmp_path):
    async with encrypted(tmp_path, HELLO) as port:
        for origin in (f"http://localhost:{port}", "https://localhost", f"https://other:{port}", "https://[x"):
            with pytest.raises(InvalidStatus, match="403"):
                await connect(
                    f"wss://localhost:{port}/v1/responses", ssl=trusting(), additional_headers={"origin": origin}
                )


@on_both_loops
async def test_tls_connection_has_version_1_2_or_later_and_http_1_1(tmp_path):
    older, choosing, old = trusting(), trusting(), trusting()
    older.maximum_version = ssl.TLSVersion.TLSv1_2
    choosing.set_alpn_protocols(["h2", "http/1.1"])
    async with encrypted(tmp_path, HELLO) as port:
        assert (await handshake(port))[1:] == ("TLSv1.3", None)
        assert (await handshake(port, context=older))[1:] == ("TLSv1.2", None)
        assert (await handshake(port, context=choosing))[1:] == ("TLSv1.3", "http/1.1")
        for name, context in (("localhost", ssl.create_default_context()), ("another.example", old)):
            with pytest.raises(ssl.SSLError):
                await handshake(port, name, context)
    assert Certificates(whole(tmp_path)).context.minimum_version == ssl.TLSVersion.TLSv1_2


@on_both_loops
async def test_tls_carries_a_large_body_between_others(tmp_path):
    image = "data:image/png;base64," + "iVBOR/+A" * (1 << 18)
    parts = [{"type": "image_url", "image_url": {"url": image}}]
    large, small = request_bytes(messages=[{"role": "user", "content": parts}]), request_bytes()
    async with encrypted(tmp_path, HELLO) as port, asyncio.timeout(DEADLINE):
        reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=TRUSTING, server_hostname="localhost")
        with closing(writer):
            writer.write(large + small + large + small.replace(b"host", b"connection: close\r\nhost"))
            assert (await reader.read()).count(b"HTTP/1.1 200 ") == 4


@on_both_loops
async def test_tls_listener_closes_connections_without_tls(tmp_path, caplog):
    async with encrypted(tmp_path, HELLO) as port:
        for data in (b"GET /health HTTP/1.1\r\nhost: x\r\n\r\n", b"\x16\x03\x01\x00\x05hello", b"\0" * 5000, b""):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            with closing(writer):
                writer.write(data)
                writer.write_eof()
                with suppress(ConnectionError):
                    assert b"HTTP" not in await reader.read()
            assert text_of((await chat(f"https://localhost:{port}")).text) == "Hi"
    assert not [one for one in caplog.records if one.levelname in ("WARNING", "ERROR")]


@on_both_loops
async def test_tls_client_that_does_not_read_is_disconnected(tmp_path):
    over = asyncio.Event()

    async def pour(writer):
        frame = chunk("~" * 16_000)
        try:
            while True:
                writer.write(b"%x\r\n%b\r\n" % (len(frame), frame))
                await writer.drain()
        finally:
            over.set()

    cut = {"stream": {"client_seconds": 0.3}, "model": {"format": "native"}}
    async with encrypted(tmp_path, [head(), pour], **cut) as port:
        body = json.dumps({"model": "m", "messages": HELLO_MESSAGES, "stream": True}).encode()
        sock = socket.create_connection(("127.0.0.1", port))
        sock.setblocking(False)
        _, writer = await asyncio.open_connection(sock=sock, ssl=TRUSTING, server_hostname="localhost", limit=4096)
        with closing(writer):
            writer.write(
                b"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-length: %d\r\n\r\n" % len(body) + body
            )
            await over.wait()


async def test_tls_certificates_keep_the_old_pair_if_the_new_one_is_broken(tmp_path, caplog):
    issue(tmp_path)
    certificates = Certificates(whole(tmp_path))
    old = serial_number(certificates)
    issue(tmp_path)
    assert serial_number(certificates) == old
    certificates.renew(whole(tmp_path))
    new = serial_number(certificates)
    assert new != old
    (tmp_path / "key.pem").write_bytes(b"")
    with pytest.raises(OSError, match="PEM"):
        certificates.renew(whole(tmp_path))
    assert serial_number(certificates) == new
    assert not caplog.records


def serial_number(certificates):
    """Return the serial number of the certificate that a client is presented."""
    there, back = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = TRUSTING.wrap_bio(back, there, server_hostname="localhost")
    server = certificates.context.wrap_bio(there, back, server_side=True)
    for one in (client, server, client):
        with suppress(ssl.SSLWantReadError):
            one.do_handshake()
    return client.getpeercert()["serialNumber"]


# The configuration


def write_config(folder, tls, rest=""):
    """Write a configuration with a TLS section, and return its path."""
    file = folder / "gateway.yaml"
    file.write_text(
        f"{rest}server:\n  tls:\n" + "".join(f"    {key}: {json.dumps(value)}\n" for key, value in tls.items())
    )
    return file


def faults(folder, **tls):
    """Return the faults of a configuration with this TLS section, with paths relative to the folder."""
    with pytest.raises(ConfigError) as caught:
        read_config(write_config(folder, tls))
    return [str(fault).replace(f"{folder}/", "") for fault in caught.value.faults]


def test_config_tls_paths_are_relative_to_the_file_or_absolute(tmp_path):
    tls = issue(tmp_path)
    for one in (tls, {key: f"{tmp_path}/{path}" for key, path in tls.items()}):
        assert read_config(write_config(tmp_path, one)).server.tls == whole(tmp_path)
    assert read_config(write_config(tmp_path, {})).server.tls is None


def test_config_tls_key_may_have_a_password_and_share_the_file(tmp_path):
    tls = issue(tmp_path, password="with a space")
    known = read_config(write_config(tmp_path, tls)).server.tls
    assert serial_number(Certificates(known)) and "space" not in repr(known)
    both = tmp_path / "both.pem"
    both.write_bytes((tmp_path / "key.pem").read_bytes() + (tmp_path / "cert.pem").read_bytes())
    same = {"certificate": "both.pem", "key": "both.pem", "password": "with a space"}
    assert serial_number(Certificates(read_config(write_config(tmp_path, same)).server.tls))
    issue(tmp_path)
    assert read_config(write_config(tmp_path, {**tls, "password": ""})), "one that is not needed does no harm"


def weak(folder):
    """Write a certificate with an RSA key of 1024 bits."""
    from cryptography import x509
    from cryptography.hazmat.primitives.hashes import SHA256

    key = rsa.generate_private_key(65537, 1024)
    name, now = x509.Name([]), datetime.now(UTC)  # steady: days
    made = x509.CertificateBuilder(name, name, key.public_key(), 1, now, now + timedelta(1)).sign(key, SHA256())
    (folder / "weak.pem").write_bytes(
        made.public_bytes(Encoding.PEM) + key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    )


def test_config_tls_file_faults_name_their_line(tmp_path):
    tls = issue(tmp_path)
    replace(tmp_path / "other.pem", (tmp_path / "key.pem").read_bytes())
    issue(tmp_path, password="p")
    (tmp_path / "junk.pem").write_bytes(b"\xff")
    weak(tmp_path)
    assert faults(tmp_path, certificate="none.pem", key="nor.pem") == [
        "gateway.yaml:3: server.tls.certificate: none.pem cannot be read: No such file or directory",
        "gateway.yaml:4: server.tls.key: nor.pem cannot be read: No such file or directory",
    ]
    assert faults(tmp_path, certificate="junk.pem", key="junk.pem") == [
        "gateway.yaml:3: server.tls.certificate: junk.pem contains no PEM certificate",
        "gateway.yaml:4: server.tls.key: junk.pem contains no PEM private key",
    ]
    fault = "gateway.yaml:4: server.tls.key: other.pem does not match the first certificate in cert.pem"
    assert faults(tmp_path, certificate="cert.pem", key="other.pem") == [fault]
    fault = "gateway.yaml:4: server.tls.key: key.pem is encrypted; set server.tls.password"
    assert faults(tmp_path, **tls) == faults(tmp_path, **tls, password="") == [fault]
    assert faults(tmp_path, **tls, password="q") == ["gateway.yaml:5: server.tls.password: does not decrypt key.pem"]
    (fault,) = faults(tmp_path, certificate="weak.pem", key="weak.pem")
    assert (
        fault.startswith("gateway.yaml:3: server.tls.certificate: weak.pem cannot be used: ") and "too small" in fault
    )


def test_config_tls_section_faults_name_their_line_and_key(tmp_path):
    tls = issue(tmp_path)
    assert faults(tmp_path, certificate="cert.pem") == [
        "gateway.yaml:2: server.tls.key: is missing; for example key: tls/key.pem"
    ]
    assert faults(tmp_path, **tls, pasword="x") == [
        "gateway.yaml:5: server.tls.pasword: unknown key; did you mean 'password'? one of: certificate, key, password"
    ]
    assert faults(tmp_path, certificate=["x"], key="key.pem") == [
        "gateway.yaml:3: server.tls.certificate: should be a string, not a list"
    ]
    with pytest.raises(ConfigError) as caught:
        read_config(write_config(tmp_path, {**tls, "key": "nowhere.pem"}, rest="prot: 1\n"))
    assert [(fault.line, fault.key) for fault in caught.value.faults] == [(1, "prot"), (5, "server.tls.key")]


@pytest.mark.parametrize(
    ("days", "verb", "hint"),
    [(-1, "is not", ""), (1, "is", "; renew it soon"), (13, "is", "; renew it soon"), (15, "is", "")],
)
def test_tls_certificate_that_ends_is_used_and_logged(days, verb, hint, tmp_path, caplog):
    until = datetime.now(UTC) + timedelta(days)  # steady: days
    file = str(write_config(tmp_path, issue(tmp_path, not_after=until)))
    code, out, err = run("check", "--verbose", "--config", file)
    message = f"{tmp_path}/cert.pem {verb} valid: from 2000-01-01 to {until:%Y-%m-%d}{hint}"
    warns = days != 15
    assert code == 0 and f"# server.tls.certificate: {message}\n" == (
        err if warns else out.splitlines(keepends=True)[-1]
    )
    assert "    certificate: " in out
    assert run("check", "--config", file)[1:] == ("ok: 0 backends, 0 models\n", err)
    Certificates(whole(tmp_path))
    assert [one.getMessage() for one in caplog.records] == ([f"server.tls.certificate: {message}"] if warns else [])


def test_greeting_says_https_with_tls(tmp_path):
    file = write_config(tmp_path, issue(tmp_path))
    with resolve_config(ConfigSource(file), {}, None) as (_, greeted):
        assert greeted.startswith("gateway listens on https://127.0.0.1:8900/v1 ")
    assert "curl 'https://[::1]:1/v1/models'\n" in startup_banner("::1", 1, None, scheme="https")


# Watching


def test_config_watch_reads_a_certificate_once_its_files_are_stable(tmp_path, caplog):
    source = ConfigSource(write_config(tmp_path, issue(tmp_path)), {})
    watch = ConfigWatcher(source.read(), source)
    assert watch.poll() is None
    (tmp_path / "cert.pem").rename(tmp_path / "away.pem")
    for _ in range(3):
        assert watch.poll() is None
    assert "cert.pem cannot be read" in caplog.text and caplog.text.count("ERROR") == 1, "it is told once"
    issue(tmp_path)
    assert watch.poll() is None, "somebody may be writing it"
    assert watch.poll() == source.read()
    assert watch.poll() is None and watch.poll() is None
    assert caplog.text.count("ERROR") == 1


def test_config_watch_keeps_tls_on_and_follows_its_paths(tmp_path, caplog):
    tls = issue(tmp_path)
    source = ConfigSource(write_config(tmp_path, tls), {})
    watch = ConfigWatcher(source.read(), source)
    source.file.write_text("server: {watch_seconds: 1}")
    watch.request_reload()
    assert watch.poll().server == Config(server={"watch_seconds": 1, "tls": whole(tmp_path)}).server
    assert "server.tls: the change takes effect when the gateway is restarted" in caplog.text
    more = tmp_path / "more"
    more.mkdir()
    issue(more)
    write_config(tmp_path, {key: f"more/{path}" for key, path in tls.items()})
    watch.request_reload()
    assert watch.poll().server.tls == whole(more), "it may be elsewhere"
    assert Path(watch.config.server.tls.key).parent == more


async def test_backend_with_an_untrusted_certificate_gets_no_request():
    requests, context = [], ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    CA.issue_cert("127.0.0.1").configure_cert(context)

    async def answer(reader, writer):
        requests.append(await reader.readuntil(b"\r\n\r\n"))
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n")
        writer.close()

    async def alive(tls):
        async with await asyncio.start_server(answer, "127.0.0.1", 0, ssl=tls) as server:
            port = server.sockets[0].getsockname()[1]
            backend = Backend(
                "b", BackendConfig(url=f"{'https' if tls else 'http'}://127.0.0.1:{port}", api_key="sk-1")
            )
            try:
                return await backend.alive()
            finally:
                await backend.close()

    assert not await alive(context) and not requests
    assert await alive(None) and b"Bearer sk-1" in requests[0]
