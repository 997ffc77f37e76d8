"""Test what `gateway serve` shows at a terminal: backends at the start, and a line for each request."""

import asyncio
import os
import re
import signal
import subprocess
import sys
from contextlib import closing, contextmanager
from pathlib import Path

import httpx
import pytest

import gateway
from support.app import HELLO_MESSAGES
from support.cli import config_writer
from support.ports import free_port
from support.pseudo_terminal import PseudoTerminal
from support.upstream import CLOSE, HELLO, Upstream
from support.wait import DEADLINE, until

# Undoes a `nohup` of the tests, which the child would inherit.
HEEDS_HANGUPS = """
import os, signal, sys
signal.signal(signal.SIGHUP, signal.SIG_DFL)
os.execvp(sys.argv[1], sys.argv[1:])
"""


@contextmanager
def serving_at_a_terminal(folder, *options, under=(), **env):
    """Run `gateway serve` with the file in the folder, with its errors on a terminal; yield the terminal.

    under: the command that starts it.
    """
    inherited = {name: value for name, value in os.environ.items() if name not in ("NO_COLOR", "GATEWAY_CONFIG")}
    env = {**inherited, "PYTHONPATH": str(Path(gateway.__file__).parents[1]), "TERM": "xterm", **env}
    null = subprocess.DEVNULL
    with closing(PseudoTerminal()) as terminal:
        start = [sys.executable, "-c", HEEDS_HANGUPS, *under]
        command = [*start, sys.executable, "-m", "gateway", "serve", "--port", "0", *options]
        with subprocess.Popen(command, stdin=null, stdout=null, stderr=terminal.theirs, env=env, cwd=folder) as child:
            terminal.child = child
            try:
                yield terminal
            finally:
                child.send_signal(signal.SIGINT)
                child.wait(30)


async def lines_of(terminal, *texts):
    """Return the lines at the terminal when it has all these texts."""
    for text in texts:
        await asyncio.to_thread(terminal.read_until, text.encode())
    return terminal.output.decode().splitlines()


@pytest.mark.parametrize("env", [{}, {"NO_COLOR": "1"}])
async def test_serve_at_a_terminal_shows_backends_and_requests(env, tmp_path):
    async with Upstream([HELLO, [CLOSE]], ("m",)).serving() as upstream:
        gone = f"http://127.0.0.1:{free_port()}"
        backends = f"backends: {{up: {{url: '{upstream.url}'}}, laptop: {{kind: ollama, url: '{gone}'}}}}"
        config_writer(tmp_path)(f"{backends}\nmodels: {{m: {{backends: [up], retries: 0}}}}")
        with serving_at_a_terminal(tmp_path, **env) as terminal:
            refused = f"laptop: ollama at {gone}: connection refused; is `ollama serve` running?"
            lines = await lines_of(terminal, f"up: openai at {upstream.url}: 1 model: m", refused)
            assert lines[0] == "Using ./gateway.yaml; --config names another file."
            port = re.search(r"port (\d+)", lines[1])[1]
            async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=DEADLINE) as client:
                for id in ("first", "second"):
                    body = {"model": "m", "messages": HELLO_MESSAGES, "stream": True}
                    await client.post("/v1/chat/completions", json=body, headers={"x-request-id": id})
            end = "first\r\n" if env else "first\x1b[0m\r\n"
            lines = await lines_of(terminal, end, end.replace("first", "second"))
    assert any("  m at up  auto  7+2 tokens  first token " in line for line in lines)
    assert any("warning: " in line and "request second: backend up: upstream_lost" in line for line in lines)
    assert ("\x1b" in "".join(lines)) is not bool(env)
    assert not any(line.startswith("{") for line in lines)


NOHUP = ["sh", "-c", """trap '' HUP; exec "$@" """, "sh"]  # like `nohup`, which would take the terminal away


@pytest.mark.parametrize("workers", ["1", "2"])
async def test_serve_ends_with_its_terminal_and_reloads_on_the_same_signal_before(workers, tmp_path):
    config_writer(tmp_path)("backends: {}")
    with serving_at_a_terminal(tmp_path, "--workers", workers) as terminal:
        await lines_of(terminal, "port ")
        terminal.child.send_signal(signal.SIGHUP)
        await lines_of(terminal, "the configuration was reloaded: no changes")
        terminal.hang_up()
        for _ in range(2):  # the system and the shell
            terminal.child.send_signal(signal.SIGHUP)
        await asyncio.to_thread(terminal.child.wait, DEADLINE)


async def test_serve_under_nohup_outlives_its_terminal(tmp_path):
    write = config_writer(tmp_path)
    write("backends: {}\nserver: {watch_seconds: 0}")
    with serving_at_a_terminal(tmp_path, under=NOHUP) as terminal:
        await lines_of(terminal, "port ")
        terminal.child.send_signal(signal.SIGHUP)
        lines = await lines_of(terminal, "the configuration was reloaded: no changes")
        port = re.search(r"port (\d+)$", "\n".join(lines), re.MULTILINE)[1]
        terminal.hang_up()
        write("backends: {up: {url: 'http://127.0.0.1:1'}}\nmodels: {m: {backends: [up]}}\nserver: {watch_seconds: 0}")
        terminal.child.send_signal(signal.SIGHUP)
        async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=DEADLINE) as client:

            async def models():
                return [one["id"] for one in (await client.get("/v1/models")).json()["data"]]

            await until(models, ["m"])
