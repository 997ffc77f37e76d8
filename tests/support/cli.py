"""Run the command `gateway` in this process."""

import http.server
import io
import socketserver
import textwrap
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
from typer.testing import CliRunner

from gateway.cli import main

RUNNER = CliRunner(env={"GATEWAY_CONFIG": None})


def run(*words: str, **env: str | None) -> tuple[int, str, str]:
    """Return exit code, standard output and standard error."""
    done = RUNNER.invoke(main.app, words, env=env, prog_name="gateway")
    return done.exit_code, done.stdout, done.stderr


class Terminal(io.StringIO):
    """Output that claims to be a terminal."""

    def isatty(self) -> bool:
        """Return True."""
        return True


def status_of(url: str) -> int | None:
    """Return the status of a GET, or None if there is no response."""
    try:
        return httpx.get(url, trust_env=False, timeout=5).status_code
    except httpx.TransportError:
        return None


@contextmanager
def closing_server() -> Iterator[int]:
    """Run a server that closes each connection after the first bytes, and yield its port."""

    class Closing(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            self.request.recv(1000)

    with socketserver.TCPServer(("127.0.0.1", 0), Closing) as server:
        yield from _served(server, server.server_address[1])


@contextmanager
def model_server(models: str, status: int = 200) -> Iterator[int]:
    """Serve this list of models, or another body with its status, and yield the port."""

    class Answer(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = models.encode()
            self.send_response(status)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Log nothing."""

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Answer) as server:
        yield from _served(server, server.server_port)


def _served(server: socketserver.BaseServer, port: int) -> Iterator[int]:
    """Serve in a thread until the caller has used the port."""
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield port
    finally:
        server.shutdown()
        thread.join()


def config_writer(folder: Path) -> Callable[[str], str]:
    """Return a function that writes a configuration into the folder and returns its path."""
    file = folder / "gateway.yaml"

    def write(text: str) -> str:
        file.write_text(textwrap.dedent(text), "utf-8")
        return str(file)

    return write
