"""Run the command `gateway` in this process."""

import io
import socket

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


def free_port() -> int:
    """Return a free port."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        return server.getsockname()[1]
