"""Test formats of each grammar with a real llama.cpp that a grammar makes write the format's example.

The server parses nothing. Its kind is set to refuse tools, so the gateway turns the server's parser off;
llama.cpp takes no grammar beside tools.
"""

import asyncio
import io
import json

import httpx
import pytest
from msgspec.structs import replace
from openai import AsyncOpenAI

from gateway import demo
from gateway.backends import KINDS
from gateway.config import parse
from gateway.formats import FORMATS, format_names
from gateway.server.app import create_app
from support.threaded_gateway import listening

WEATHER = {
    "name": "get_weather",
    "parameters": {"type": "object", "properties": {"city": {"type": "string"}, "days": {"type": "integer"}}},
}
TOOLS = [{"type": "function", "function": WEATHER}]
REQUIRED_FORMATS = (
    "hermes_json", "llama3_json", "granite_json", "cohere4", "mistral", "deepseek_v31", "kimi_k2", "qwen_xml",
    "minimax_m2", "dsml_v4", "kimi_k3", "glm47_xml", "pythonic", "lfm2_pythonic", "gemma4", "harmony", "minimax_m3",
    "functionary32",
)  # fmt: skip
SLOTS = 4
LONG = 600  # seconds; the fixture asks for all formats at once
pytestmark = pytest.mark.timeout(LONG)


@pytest.fixture(scope="module")
def answers():
    """Yield the response for each format's example; all are requested at once."""
    raw = ("--threads", "1", "--skip-chat-parsing", "--reasoning-format", "none")
    with demo.start_demo(*raw, out=io.StringIO()) as server:
        models = {
            name: {"backends": ["raw"], "upstream_model": demo.MODEL, "format": name} for name in REQUIRED_FORMATS
        }
        config = {"backends": {"raw": {"kind": "llamacpp", "url": server}}, "models": models}
        app = create_app(parse(json.dumps(config), "real.yaml", {}, format_names()))
        with listening(app) as url:
            httpx.get(f"{url}/health").raise_for_status()  # the application has started
            app.state.directory.backends["raw"].kind = replace(KINDS["llamacpp"], refuses_tools=True)
            yield asyncio.run(_all_answers(url))


async def _all_answers(url):
    free = asyncio.Semaphore(SLOTS)
    async with AsyncOpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0, timeout=LONG) as client:

        async def answer(name):
            grammar = f"root ::= {json.dumps(FORMATS[name].example, ensure_ascii=False)}"
            messages = [{"role": "user", "content": f"Repeat: {FORMATS[name].example}"}]
            async with (
                free,
                client.chat.completions.stream(
                    model=name, messages=messages, tools=TOOLS, extra_body={"grammar": grammar}, temperature=0
                ) as stream,
            ):
                return (await stream.get_final_completion()).choices[0]

        return dict(zip(REQUIRED_FORMATS, await asyncio.gather(*map(answer, REQUIRED_FORMATS)), strict=True))


@pytest.mark.parametrize("name", REQUIRED_FORMATS)
def test_format_example_from_a_real_server_is_a_tool_call(answers, name):
    choice = answers[name]
    (call,) = choice.message.tool_calls
    assert (call.function.name, json.loads(call.function.arguments)) == ("get_weather", {"city": "Paris", "days": 3})
    assert choice.finish_reason == "tool_calls"
    assert not any(mark in (choice.message.content or "") for mark in "<{[|")
