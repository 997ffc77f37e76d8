"""Test `gateway doctor` and `gateway check --probe` with a strict server of the Messages API."""

import asyncio
import io
import json

import pytest

from gateway.cli import main
from gateway.cli.doctor import DoctorOptions, examine_servers
from support.anthropic_server import MessagesServer, error, faults, listed, text, tool_use
from support.cli import RUNNER
from support.upstream import KEY

LISTED = listed("claude", max_input_tokens=200_000, capabilities={"image_input": {"supported": True}})
UNSETTLED = ("thoughts", "cancellation", "responses", "stop")  # the model does not think, and its messages are short


def answer(body):
    """Return what a model that does as it is told says."""
    choice, conversation_text = body.get("tool_choice") or {}, json.dumps(body["messages"][-1])
    if "image" in conversation_text:
        return [text("Red.")]
    if "output_config" in body:
        return [text(json.dumps({"colour": "blue", "number": 7}))]
    if "tools" not in body or choice.get("type") == "none":
        return [text("4 + 3 = 7.")]
    cities = (
        ["London", "Paris"]
        if "London" in conversation_text and not choice.get("disable_parallel_tool_use")
        else ["Paris"]
    )
    name, member = ("get_time", "timezone") if choice.get("name") == "get_time" else ("get_weather", "city")
    return [tool_use(name, f"toolu_{city}", **{member: city}) for city in cities]


@pytest.fixture
async def server():
    async with MessagesServer(answer, LISTED).serving() as server:
        yield server


async def test_doctor_verdicts_of_a_messages_server_follow_its_api(server):
    wanted = DoctorOptions(url=server.url)
    (found,) = await asyncio.to_thread(examine_servers, wanted, io.StringIO(), {})
    (model,) = found.models
    states = {name: verdict.state for name, verdict in model.verdicts.items() if name not in UNSETTLED}
    assert found.kind == "anthropic" and set(states.values()) == {"good", "wanting"}
    assert {name for name, state in states.items() if state == "wanting"} == {"n", "logprobs"}
    assert model.verdicts["messages"].words == "the server has it"
    posts = [post for post in server.posts if post.path == "/v1/messages"]
    assert posts and not any(faults(post.json) for post in posts)


async def test_check_command_probes_a_messages_server(server, tmp_path):
    file = tmp_path / "gateway.yaml"
    claude = {"kind": "anthropic", "url": server.url, "api_key": "${K}"}
    file.write_text(json.dumps({"backends": {"claude": claude}, "store": {"url": f"sqlite:///{tmp_path}/s.db"}}))
    args = ["check", "--probe", "-c", str(file)]
    good = await asyncio.to_thread(RUNNER.invoke, main.app, args, env={"K": KEY})
    assert (good.exit_code, good.stdout.splitlines()[1]) == (0, f"claude: anthropic at {server.url}: 1 model: claude")
    request = server.gets[-1]
    assert (request.headers["x-api-key"], request.headers["anthropic-version"]) == (KEY, "2023-06-01")
    server.answer_lists_with(error("authentication_error", "invalid x-api-key", 401))
    bad = await asyncio.to_thread(RUNNER.invoke, main.app, args, env={"K": KEY})
    assert bad.exit_code == 1
    assert "the server refuses the API key (HTTP 401); check backends.claude.api_key" in bad.stdout
