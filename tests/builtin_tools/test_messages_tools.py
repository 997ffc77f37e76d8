"""Test tools of the Messages API that run at the gateway: web search, with its blocks and citations."""

from urllib.parse import urlsplit

import pytest

from support.app import HELLO_MESSAGES, gateway
from support.mcp_requests import calling
from support.messages_events import checked, checked_whole
from support.search_services import OSLO, respond_with, searching
from support.upstream import HELLO
from support.web_search import ASK, CITED, tool_results

SEARCH = {"type": "web_search_20250305", "name": "web_search", "max_uses": 3}


@pytest.mark.parametrize("streamed", [True, False], ids=["stream", "whole"])
async def test_web_search_of_a_message_runs_at_the_gateway(streamed):
    async with searching() as web, gateway(calling(ASK), CITED, tools=web.tools(pages=False)) as site:
        answer = await site.message(stream=streamed, tools=[SEARCH])
        message = (checked if streamed else checked_whole)(answer.content)
        (content,) = tool_results(site)
    use, result, *texts = message["content"]
    assert (use["type"], use["name"], use["input"]) == ("server_tool_use", "web_search", {"query": "capitals"})
    assert result["type"] == "web_search_tool_result" and result["content"][0]["url"] == OSLO["url"]
    assert "Oslo is the capital of Norway." in content and "".join(block["text"] for block in texts)
    assert message["usage"]["server_tool_use"]["web_search_requests"] == 1 and message["stop_reason"] == "end_turn"


async def test_web_search_of_a_message_is_left_out_if_the_gateway_has_none():
    async with gateway(HELLO) as site:
        answer = await site.message(tools=[SEARCH])
        assert "tools" not in site.upstream_body
    assert checked_whole(answer.content)["content"] == [{"type": "text", "text": "Hi"}]
    assert "dropped:tools.web_search" in answer.headers["x-gateway-warnings"]


async def test_web_search_of_a_message_is_cited_by_its_texts():
    twice = (calling(ASK), CITED) * 2
    async with searching() as web, gateway(*twice, tools=web.tools(pages=False)) as site:
        streamed, at_once = [(await site.message(stream=stream, tools=[SEARCH])).content for stream in (True, False)]
    for message in (checked(streamed), checked_whole(at_once)):
        cited = [one for block in message["content"] for one in block.get("citations", ())]
        assert {one["type"] for one in cited} == {"web_search_result_location"} and cited[0]["url"] == OSLO["url"]


async def test_web_search_of_a_message_goes_back_with_what_it_found():
    async with searching() as web, gateway(calling(ASK), CITED, HELLO, tools=web.tools(pages=False)) as site:
        first = checked_whole((await site.message(tools=[SEARCH])).content)["content"]
        turns = [*HELLO_MESSAGES, {"role": "assistant", "content": first}, *HELLO_MESSAGES]
        await site.message(tools=[SEARCH], messages=turns)
        (content,) = tool_results(site)
    assert "Oslo is the capital of Norway." in content


FAILURES = {
    "the service is busy": (ASK, respond_with({}, 429), "web_search", "too_many_requests"),
    "the service is down": (ASK, respond_with({}, 500), "web_search", "unavailable"),
    "no query": (("web_search__search", {}), respond_with({}), "web_search", "invalid_tool_input"),
    "an unknown page": (("web_search__open_page", {"url": "https://a.example"}), respond_with({}), "web_fetch", "url_not_allowed"),
}  # fmt: skip


@pytest.mark.parametrize("streamed", [True, False], ids=["stream", "whole"])
async def test_web_search_of_a_message_has_the_error_codes_of_the_api(streamed):
    for call, service, tool, code in FAILURES.values():
        async with searching(search=service) as web, gateway(calling(call), HELLO, tools=web.tools()) as site:
            answer = await site.message(stream=streamed, tools=[SEARCH])
        use, result, _ = (checked if streamed else checked_whole)(answer.content)["content"]
        assert (use["name"], result["type"]) == (tool, f"{tool}_tool_result")
        assert result["content"] == {"type": f"{tool}_tool_result_error", "error_code": code}


async def test_web_search_of_a_response_has_no_error_code():
    async with searching(search=respond_with({}, 429)) as web, gateway(calling(ASK), HELLO, tools=web.tools()) as site:
        output = (await site.respond(tools=[{"type": "web_search"}])).json()["output"]
    assert output[0]["status"] == "failed" and "error_code" not in output[0]


# Limits


@pytest.mark.parametrize("streamed", [True, False], ids=["stream", "whole"])
@pytest.mark.parametrize("limit", ["rounds", "calls"])
async def test_message_pauses_at_the_operators_limit_and_the_client_goes_on(limit, streamed):
    tools = {limit: 1}
    async with searching() as web, gateway(calling(ASK), CITED, tools={**web.tools(pages=False), **tools}) as site:
        answer = await site.message(stream=streamed, tools=[SEARCH])
        paused = (checked if streamed else checked_whole)(answer.content)
        turns = [*HELLO_MESSAGES, {"role": "assistant", "content": paused["content"]}]
        final = checked_whole((await site.message(tools=[SEARCH], messages=turns)).content)
        sent = site.upstream_body
    assert [block["type"] for block in paused["content"]] == ["server_tool_use", "web_search_tool_result"]
    assert (paused["stop_reason"], final["stop_reason"]) == ("pause_turn", "end_turn")
    assert [one["role"] for one in sent["messages"]] == ["user", "assistant", "tool"] and sent["tools"]


async def test_message_with_a_call_of_the_client_does_not_pause():
    theirs = {"name": "f", "input_schema": {"type": "object"}}
    both = calling(ASK, ("f", {}))
    async with searching() as web, gateway(both, tools={**web.tools(pages=False), "rounds": 1}) as site:
        message = checked_whole((await site.message(tools=[SEARCH, theirs])).content)
    assert message["stop_reason"] == "tool_use"
    assert [block["type"] for block in message["content"]] == ["server_tool_use", "web_search_tool_result", "tool_use"]


async def test_message_that_makes_calls_beyond_the_limit_pauses_with_those_that_ran():
    async with searching() as web, gateway(calling(ASK, ASK), tools={**web.tools(pages=False), "calls": 1}) as site:
        message = checked_whole((await site.message(tools=[SEARCH])).content)
    assert (message["stop_reason"], len(message["content"])) == ("pause_turn", 2)


@pytest.mark.parametrize("streamed", [True, False], ids=["stream", "whole"])
async def test_search_beyond_max_uses_fails_and_the_model_goes_on(streamed):
    search = {**SEARCH, "max_uses": 1}
    async with searching() as web, gateway(calling(ASK), calling(ASK), CITED, tools=web.tools(pages=False)) as site:
        answer = await site.message(stream=streamed, tools=[search])
        message = (checked if streamed else checked_whole)(answer.content)
        found, refused = tool_results(site)
    results = [block["content"] for block in message["content"] if block["type"] == "web_search_tool_result"]
    assert results[1] == {"type": "web_search_tool_result_error", "error_code": "max_uses_exceeded"}
    assert results[0][0]["url"] == OSLO["url"] and "Oslo" in found and "max_uses" in refused
    assert message["usage"]["server_tool_use"]["web_search_requests"] == 1 and message["stop_reason"] == "end_turn"


async def test_search_and_fetch_have_limits_of_their_own():
    both = [{**SEARCH, "max_uses": 1}, {"type": "web_fetch_20250910", "name": "web_fetch"}]
    async with searching() as web:
        web.answers["/search"] = {"results": [{**OSLO, "url": f"{web.url}/page"}]}
        opens = calling(("web_search__open_page", {"url": f"{web.url}/page"}))
        async with gateway(calling(ASK), opens, opens, calling(ASK), HELLO, tools=web.tools()) as site:
            message = checked_whole((await site.message(tools=both)).content)
    results = [block["content"] for block in message["content"] if block["type"].endswith("_tool_result")]
    assert [isinstance(one, dict) and one.get("error_code") for one in results] == [
        False, None, None, "max_uses_exceeded",
    ]  # fmt: skip


async def test_calls_of_other_tools_do_not_count_as_uses_of_the_search():
    theirs = {"name": "f", "input_schema": {"type": "object"}}
    both = calling(("f", {}), ASK)
    async with searching() as web, gateway(both, tools=web.tools(pages=False)) as site:
        message = checked_whole((await site.message(tools=[{**SEARCH, "max_uses": 1}, theirs])).content)
        page = checked_whole((await site.message(tools=[{**SEARCH, "max_uses": None}])).content)
    for one in (message, page):
        assert isinstance(next(b for b in one["content"] if b["type"] == "web_search_tool_result")["content"], list)


async def test_search_of_a_message_leaves_out_blocked_domains():
    search = {**SEARCH, "blocked_domains": [urlsplit(OSLO["url"]).hostname]}
    async with searching() as web, gateway(calling(ASK), CITED, tools=web.tools(pages=False)) as site:
        message = checked_whole((await site.message(tools=[search])).content)
        (content,) = tool_results(site)
    (result,) = [block["content"] for block in message["content"] if block["type"] == "web_search_tool_result"]
    assert OSLO["url"] not in [one["url"] for one in result] and OSLO["url"] not in content
