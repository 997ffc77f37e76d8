"""Run the command `gateway` in this process."""

import socket

from typer.testing import CliRunner

from gateway import cli

RUNNER = CliRunner(env={"GATEWAY_CONFIG": None})


def run(*words: str, **env: str) -> tuple[int, str, str]:
    """Exit code, standard output and standard error."""
    done = RUNNER.invoke(cli.app, words, env=env, prog_name="gateway")
    return done.exit_code, done.stdout, done.stderr


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return server.getsockname()[1]
