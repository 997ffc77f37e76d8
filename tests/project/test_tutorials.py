"""Test that the commands and programs of the tutorials run, with a scripted model behind the gateway.

A block of shell or Python that names the gateway's address is a program, as readers paste it.
"""

import json
import os
import re
import subprocess
import sys

import pytest
from starlette.applications import Starlette
from starlette.responses import JSONResponse, StreamingResponse
from starlette.routing import Route

from gateway.config import parse
from gateway.formats import format_names
from gateway.launch import CLIENTS, OfferedModel, misfits
from support.paths import ROOT
from support.threaded_gateway import listening, served

ADDRESS = "http://127.0.0.1:8900"
CONFIG = """
backends: {{demo: {{kind: llamacpp, url: "{url}"}}}}
models: {{smollm2: {{format: hermes_json}}, qwen: {{aliases: ["claude-*"]}}}}
"""
HONEST = 'curl() { command curl --fail-with-body "$@"; }\n'  # it fails if the status says so
CALL = '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Oslo"}}\n</tool_call>'
PROGRAMS = [
    pytest.param(language, code, id=f"{page.stem}-{number}")
    for page in sorted((ROOT / "docs/tutorials").glob("*.md"))
    for number, (language, code) in enumerate(
        re.findall(r"^```(sh|python)\n(.*?)^```$", page.read_text("utf-8"), re.MULTILINE | re.DOTALL), 1
    )
]


async def chat(http):
    """Answer as a model that calls a tool if one is offered, and then says what it returned."""
    body = await http.json()
    needs_call = "tools" in body or "grammar" in body
    text = CALL if needs_call and body["messages"][-1]["role"] != "tool" else "It is 7 degrees."
    usage = {"prompt_tokens": 9, "completion_tokens": 5, "total_tokens": 14}
    whole = {"id": "c", "created": 1, "model": body["model"]}
    if not body.get("stream"):
        choice = {"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": "stop"}
        return JSONResponse({**whole, "object": "chat.completion", "choices": [choice], "usage": usage})
    deltas = [{"delta": {"role": "assistant", "content": text}}, {"delta": {}, "finish_reason": "stop"}]
    chunks = [{"choices": [{"index": 0, **delta}]} for delta in deltas] + [{"choices": [], "usage": usage}]
    frames = [json.dumps({**whole, "object": "chat.completion.chunk", **chunk}) for chunk in chunks]
    return StreamingResponse((f"data: {frame}\n\n" for frame in [*frames, "[DONE]"]), media_type="text/event-stream")


@pytest.mark.parametrize(("page", "client"), [("claude-code", "claude"), ("codex", "codex")])
def test_tutorial_gives_the_model_the_window_that_its_client_needs(page, client):
    text = (ROOT / f"docs/tutorials/{page}.md").read_text("utf-8")
    window = int(re.search(r"num_ctx: (\d+)", text)[1])
    assert [*misfits(CLIENTS[client], OfferedModel("qwen", window))] == []
    least = int(re.search(r"a context of ([\d,]+) tokens", text)[1].replace(",", ""))
    assert [*misfits(CLIENTS[client], OfferedModel("qwen", least))] == []


@pytest.fixture(scope="module")
def url():
    """Yield the URL of a gateway with the models of the tutorials."""
    with (
        listening(Starlette(routes=[Route("/v1/chat/completions", chat, methods=["POST"])])) as backend,
        served(parse(CONFIG.format(url=backend), "tutorials.yaml", {}, format_names())) as url,
    ):
        yield url


@pytest.mark.parametrize(("language", "code"), PROGRAMS)
def test_tutorial_program_ends_well(language, code, url, tmp_path):
    assert ADDRESS in code
    code = code.replace(ADDRESS, url)
    command = ["bash", "-euo", "pipefail", "-c", HONEST + code] if language == "sh" else [sys.executable, "-c", code]
    environment = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "NO_PROXY": "127.0.0.1"}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, (done.stdout, done.stderr)
    assert done.stdout.strip()
    if "get_weather" in code:
        assert done.stdout == "get_weather: In Oslo it is 7 degrees, with light rain.\nIt is 7 degrees.\n"
