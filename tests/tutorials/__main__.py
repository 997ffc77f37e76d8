"""Follow tutorials, all by default but Open WebUI, and print the minutes of each.

    python -m tutorials [--open-webui FOLDER] [TUTORIAL…]

It needs the packages of the network, and the clients of `tests/clients/run --install codex claude_code`. Not as in the
pages: each server has a free port, a scripted Ollama stands in for that of the reader, and the agents run without a
terminal. FOLDER is an environment with Open WebUI, which takes gigabytes.
"""

import argparse
import re
import shlex
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx

from support.ollama import NAME
from support.paths import ROOT
from support.ports import free_port
from support.terminal import say
from support.threaded_gateway import listening
from support.wait import until_blocking
from tutorials.model import FINAL_TEXT, Lister
from tutorials.reader import ADDRESS, Reader, blocks, commands

CLIENTS = ROOT / ".venv-clients"
QUESTION = "List the files here, and say in one sentence what they are."


def first_response(reader: Reader) -> None:
    """Set up, ask by curl, and use the SDK."""
    (start,) = commands("first-response")
    with reader.serving(f"{start} ARGS='--port 0'") as url:
        reader.install("openai")
        assert len([*reader.try_programs("first-response", url)]) == len(blocks("first-response", "sh", "python"))


def agent_with_tools(reader: Reader) -> None:
    """Run the agent over the small model."""
    with reader.serving("make run ARGS='--port 0'") as url:
        reader.install("openai")
        (output,) = reader.try_programs("agent-with-tools", url)
        assert output.startswith("get_weather: In "), output


def codex(reader: Reader) -> None:
    """Serve, let the doctor examine the model, write the settings, and ask."""
    serve, doctor, ask = commands("codex")
    with ollama() as (model, url), configured(reader, "codex", url) as folder:
        assert "tools_streamed" in reader.run(doctor, folder=folder, ends=(0, 1))
        with reader.serving(f"{serve} --port 0", folder=folder) as gateway:
            reader.run(f"gateway launch codex --write --url {gateway}", folder=folder)
            settings = (reader.home / ".codex/config.toml").read_text("utf-8")
            ((_, wanted),) = blocks("codex", "toml")
            assert {*wanted.replace(ADDRESS, gateway).splitlines()} <= {*settings.splitlines()}, settings
            assert FINAL_TEXT in reader.run(ask)
            assert_listed(model)


def claude_code(reader: Reader) -> None:
    """Serve, ask by curl, set the variables, and ask."""
    serve, *exports, claude = commands("claude-code")
    with (
        ollama() as (model, url),
        configured(reader, "claude-code", url) as folder,
        reader.serving(f"{serve} --port 0", folder=folder) as gateway,
    ):
        assert [FINAL_TEXT in output for output in reader.try_programs("claude-code", gateway)] == [True]
        variables = "\n".join(exports).replace(ADDRESS, gateway)
        shown = reader.run(f"gateway launch claude --url {gateway}", folder=folder)
        assert all(each.removeprefix("export ") in shown for each in variables.splitlines()[:3]), shown
        assert FINAL_TEXT in reader.run(f"{variables}\n{claude} -p {shlex.quote(QUESTION)} --allowedTools Bash")
        assert_listed(model)


def open_webui(reader: Reader) -> None:
    """Start the page, create the account, find the models and chat."""
    _, start = commands("open-webui")
    with reader.serving("make run ARGS='--port 0'") as gateway:
        assert all(reader.try_programs("open-webui", gateway))
        *variables, program, serve = start.replace(ADDRESS, gateway).split()
        more = dict(each.split("=", 1) for each in variables) | {"DATA_DIR": str(reader.home), "HF_HUB_OFFLINE": "1"}
        port = free_port()
        command = f"{program} {serve} --host 127.0.0.1 --port {port}"
        with (
            reader.serving(command, pattern=re.compile("(Scheduler) worker started"), **more),
            httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=120, trust_env=False) as browser,
        ):
            until_blocking(lambda: is_healthy(browser))
            chat(browser)


def is_healthy(browser: httpx.Client) -> bool:
    """Return True once the page is served."""
    try:
        return browser.get("/health").is_success
    except httpx.TransportError:
        return False


def chat(browser: httpx.Client) -> None:
    """Do what the page does."""
    account = {"name": "Ann", "email": "ann@a.example", "password": "correct horse battery"}
    token = browser.post("/api/v1/auths/signup", json=account).raise_for_status().json()["token"]
    browser.headers["authorization"] = f"Bearer {token}"
    models = browser.get("/api/models").raise_for_status().json()["data"]
    assert "smollm2" in [each["id"] for each in models], models
    question = [{"role": "user", "content": "Hello!"}]
    body = {"model": "smollm2", "messages": question, "max_tokens": 40, "stream": True}
    answer = browser.post("/api/chat/completions", json=body).raise_for_status()
    assert '"content"' in answer.text and "[DONE]" in answer.text, answer.text


@contextmanager
def ollama() -> Iterator[tuple[Lister, str]]:
    """Serve the Ollama of the reader within the block."""
    model = Lister([], window=32768)
    with listening(model.app) as url:
        yield model, url


@contextmanager
def configured(reader: Reader, page: str, ollama: str) -> Iterator[Path]:
    """Write the configuration of a page into a new folder of the reader."""
    ((_, text),) = blocks(page, "yaml")
    with tempfile.TemporaryDirectory(dir=reader.home) as folder:
        file = Path(folder) / "gateway.yaml"
        file.write_text(text.replace("http://127.0.0.1:11434", ollama).replace("qwen3:8b", NAME), "utf-8")
        yield file.parent


def assert_listed(model: Lister) -> None:
    """Check that the agent ran the command in the clone."""
    results = [message["content"] for message in model.seen if message["role"] == "tool"]
    assert any("README.md" in result for result in results), model.seen[-3:]


TUTORIALS: dict[str, Callable[[Reader], None]] = {
    "first-response": first_response,
    "agent-with-tools": agent_with_tools,
    "codex": codex,
    "claude-code": claude_code,
    "open-webui": open_webui,
}


def main() -> None:
    parser = argparse.ArgumentParser("tutorials")
    parser.add_argument("--open-webui", type=Path, metavar="FOLDER")
    parser.add_argument("tutorials", nargs="*", metavar="TUTORIAL", help=", ".join(TUTORIALS))
    options = parser.parse_args()
    chosen = options.tutorials or [name for name in TUTORIALS if name != "open-webui" or options.open_webui]
    path = [CLIENTS / "codex/bin", CLIENTS / "codex/node_modules/.bin"]
    path += (CLIENTS / "claude_code/node_modules/@anthropic-ai").glob("claude-code-*")
    if options.open_webui:
        path.append(options.open_webui / "bin")
    with tempfile.TemporaryDirectory() as folder:
        began = time.monotonic()
        reader = Reader(Path(folder), path)
        for name in chosen:
            if name != "first-response":
                reader.run("make .venv/run")
                began = time.monotonic()
            TUTORIALS[name](reader)
            say(f"ok   {name}: {(time.monotonic() - began) / 60:.1f} minutes")


if __name__ == "__main__":
    main()
