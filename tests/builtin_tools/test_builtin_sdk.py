"""Test hosted tools with openai-python: a real MCP server, a search service, and scripted and real models."""

from io import StringIO

import pytest
from openai import AsyncOpenAI

from gateway import demo
from gateway.config import parse
from gateway.formats import format_names
from support.app import listening as site_of
from support.mcp_requests import calling
from support.mcp_server import operators, toys
from support.search_services import Searching, searching
from support.threaded_gateway import listening, served
from support.wait import DEADLINE
from support.web_search import ASK, CITED, SEARCH

TOYS = {"type": "mcp", "server_label": "toys", "require_approval": "never", "allowed_tools": ["echo"]}
REAL = """
backends: {{up: {{kind: llamacpp, url: "{model}"}}}}
models: {{smollm2: {{web_search: true}}}}
tools: {{calls: 1, web_search: {{service: searxng, url: "{web}"}}}}
"""


@pytest.mark.parametrize("streamed", [True, False], ids=["stream", "whole"])
async def test_sdk_reads_mcp_and_web_search_in_one_response(streamed):
    script = calling(("toys__echo", {"text": "a"}), ASK), CITED
    request = {"model": "m", "input": "q", "tools": [TOYS, SEARCH], "include": ["web_search_call.action.sources"]}
    async with (
        toys() as server,
        searching() as web,
        site_of(*script, tools={**operators(server), **web.tools()}) as site,
        AsyncOpenAI(base_url=f"{site.client.base_url}/v1", api_key="none", timeout=DEADLINE, max_retries=0) as client,
    ):
        if streamed:
            async with client.responses.stream(**request) as stream:
                types = [event.type async for event in stream]
                response = await stream.get_final_response()
            assert "response.web_search_call.searching" in types and "response.mcp_call.completed" in types
            assert types.count("response.output_text.annotation.added") == 2
        else:
            response = await client.responses.create(**request)
        listed, called, searched, message = response.output
        assert (listed.tools[0].name, called.output, called.error) == ("echo", "heard a", None)
        assert searched.action.sources[0].url.endswith("/oslo")
        assert response.output_text.startswith("Oslo [1]") and len(message.content[0].annotations) == 2
        again = await client.responses.retrieve(response.id)
        assert [item.type for item in again.output] == [item.type for item in response.output]


async def test_web_search_works_with_a_real_model():
    with (
        demo.start_demo("--threads", "1", "--temp", "0", out=StringIO()) as model,
        listening(Searching()) as web,
        served(parse(REAL.format(model=model, web=web), "real.yaml", {}, format_names())) as url,
    ):
        async with AsyncOpenAI(base_url=f"{url}/v1", api_key="none", timeout=DEADLINE, max_retries=0) as client:
            response = await client.responses.create(
                model="smollm2",
                input="What is the capital of Norway?",
                tools=[{"type": "web_search", "search_context_size": "low"}],
                tool_choice="required",
                max_output_tokens=60,
            )
    searched, *_, message = response.output
    assert (searched.type, searched.status, searched.action.type) == ("web_search_call", "completed", "search")
    assert searched.action.query and message.type == "message" and message.content[0].text
    assert response.status in ("completed", "incomplete") and response.usage.output_tokens > 5
