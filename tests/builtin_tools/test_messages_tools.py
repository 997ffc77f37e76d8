"""Test tools of the Messages API that run at the gateway: web search, with its blocks and citations."""

import pytest

from support.app import gateway
from support.mcp_requests import calling
from support.messages_events import checked, checked_whole
from support.search_services import OSLO, searching
from support.upstream import HELLO
from support.web_search import ASK, CITED, told

SEARCH = {"type": "web_search_20250305", "name": "web_search", "max_uses": 3}


@pytest.mark.parametrize("streamed", [True, False], ids=["stream", "whole"])
async def test_web_search_of_a_message_runs_at_the_gateway(streamed):
    async with searching() as web, gateway(calling(ASK), CITED, tools=web.tools(pages=False)) as site:
        answer = await site.message(stream=streamed, tools=[SEARCH])
        message = (checked if streamed else checked_whole)(answer.content)
        (content,) = told(site)
    use, result, *texts = message["content"]
    assert (use["type"], use["name"], use["input"]) == ("server_tool_use", "web_search", {"query": "capitals"})
    assert result["type"] == "web_search_tool_result" and result["content"][0]["url"] == OSLO["url"]
    assert "Oslo is the capital of Norway." in content and "".join(block["text"] for block in texts)
    assert message["usage"]["server_tool_use"]["web_search_requests"] == 1 and message["stop_reason"] == "end_turn"


async def test_web_search_of_a_message_is_left_out_if_the_gateway_has_none():
    async with gateway(HELLO) as site:
        answer = await site.message(tools=[SEARCH])
        assert "tools" not in site.asked
    assert checked_whole(answer.content)["content"] == [{"type": "text", "text": "Hi"}]
    assert "dropped:tools.web_search" in answer.headers["x-gateway-warnings"]
