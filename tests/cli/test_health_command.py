"""Test `gateway health` with and without TLS, and with servers that are no gateway."""

import asyncio
import socket
import subprocess
import sys
import threading
from contextlib import contextmanager, suppress

import pytest

from gateway.cli import healthcheck
from gateway.server.http.tls import Certificates
from support.cli import run
from support.paths import ROOT
from support.ports import free_port
from support.tls import issue, serving, whole
from support.upstream import Upstream
from support.wait import DEADLINE, until

WELL = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}"


@contextmanager
def answering(answer, context=None):
    """Serve this answer to each connection; yield the port and the request lines."""
    requests = []

    def wrapped(connection):
        with connection:  # which may speak plainly to TLS
            return context.wrap_socket(connection, server_side=True) if context else connection.dup()

    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve():
            while True:
                try:
                    connection, _ = server.accept()
                except OSError:
                    return
                with suppress(OSError), wrapped(connection) as it:
                    requests.append(it.recv(4096).split(b"\r\n")[0])
                    it.sendall(answer)

        thread = threading.Thread(target=serve)
        thread.start()
        port = server.getsockname()[1]
        yield port, requests
        server.shutdown(socket.SHUT_RDWR)
        thread.join(10)
        assert not thread.is_alive()


@pytest.mark.parametrize(
    ("answer", "code"),
    [
        (WELL, 0),
        (b"HTTP/1.1 503 Service Unavailable\r\ncontent-length: 0\r\n\r\n", 1),
        (b"SSH-2.0-OpenSSH_9.2\r\n", 1),
        (b"", 1),
    ],
)
def test_health_command_reports_the_health_at_a_url(answer, code):
    with answering(answer) as (port, requests):
        url = f"http://127.0.0.1:{port}"
        message = "" if code == 0 else f"no gateway responds at {url}\n"
        assert run("health", url) == (code, "", message)
    assert requests == [b"GET /health HTTP/1.1"]


def test_health_command_fails_if_the_port_is_closed():
    assert run("health", f"http://127.0.0.1:{free_port()}")[0] == 1


def test_health_command_times_out_on_silence(monkeypatch):
    monkeypatch.setattr(healthcheck, "_SECONDS", 0.05)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        assert run("health", f"http://127.0.0.1:{silent.getsockname()[1]}")[0] == 1


@pytest.mark.parametrize("tls", [False, True])
def test_health_command_finds_the_local_gateway_with_and_without_tls(tls, tmp_path, monkeypatch):
    if tls:
        issue(tmp_path)
    context = Certificates(whole(tmp_path)).context if tls else None
    with answering(WELL, context) as (port, requests):
        monkeypatch.setattr(healthcheck, "HERE", tuple(url.replace("8900", str(port)) for url in healthcheck.HERE))
        assert run("health") == (0, "", "")
    assert len(requests) == 1


@pytest.mark.parametrize("url", ["127.0.0.1:8900", "ftp://a", "http://", "http://a:b"])
def test_health_command_refuses_an_invalid_url(url):
    code, _, err = run("health", url)
    assert code == 2
    assert "Invalid value" in err


def test_health_command_imports_few_modules():
    script = (
        "import sys; from gateway.cli.main import app; from gateway.cli import healthcheck;"
        "print(sorted({'httpx', 'fastapi', 'pydantic', 'msgspec', 'asyncio', 'uvicorn'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


async def test_health_command_is_not_logged_by_the_gateway(tmp_path, monkeypatch):
    monkeypatch.setattr(healthcheck, "_SECONDS", DEADLINE)
    async with asyncio.timeout(60), Upstream([], ()).serving() as upstream, serving(tmp_path, upstream) as gateway:
        await until(
            lambda: gateway.output.count("\n") == 2
        )  # the last lines of the start: of the backend and the store
        start = gateway.output
        port = gateway.client.base_url.port
        statuses = [
            await asyncio.to_thread(healthcheck.is_alive, f"{scheme}://127.0.0.1:{port}")
            for scheme in ("http", "https")
        ]
    assert statuses == [False, True]
    assert gateway.output == start
