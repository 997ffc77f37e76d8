"""Test file search at the gateway: the requests to the vector store, the tool outputs, and the client's items."""

import json

import pytest

from support.app import gateway, problem
from support.mcp_requests import calling
from support.responses_events import checked, checked_whole
from support.search_services import KEY, respond_with, searching
from support.upstream import HELLO
from support.web_search import saying, tool_results

FILES = {"type": "file_search", "vector_store_ids": ["vs_1", "vs_2"]}
ASK = ("file_search__search", {"query": "holidays"})


def search_page(*files):
    """Return a search result page of OpenAI's API for these (name, score) pairs."""
    data = [
        {
            "file_id": f"file_{name}",
            "filename": f"{name}.md",
            "score": score,
            "attributes": {"year": 2026},
            "content": [{"type": "text", "text": f"{name} says so."}],
        }
        for name, score in files
    ]
    return {"object": "vector_store.search_results.page", "data": data, "has_more": False, "next_page": None}


STORES = {
    "v1/vector_stores/vs_1/search": search_page(("one", 0.5), ("two", 0.9)),
    "v1/vector_stores/vs_2/search": search_page(("three", 0.7)),
}


def file_search_at(web, **options):
    return {"file_search": {"url": f"{web.url}/v1", "api_key": KEY, **options}}


@pytest.mark.parametrize("streamed", [True, False], ids=["stream", "whole"])
async def test_file_search_results_are_cited(streamed):
    async with (
        searching(**STORES) as web,
        gateway(calling(ASK), saying("So [", "1]."), tools=file_search_at(web)) as site,
    ):
        more = {"max_num_results": 2, "filters": {"type": "eq", "key": "year", "value": 2026}}
        include = ["file_search_call.results"]
        answer = await site.respond(stream=streamed, tools=[{**FILES, **more}], include=include)
        made, message = (checked if streamed else checked_whole)(answer.content)["output"]
        assert (made["type"], made["status"], made["queries"]) == ("file_search_call", "completed", ["holidays"])
        assert [one["filename"] for one in made["results"]] == ["two.md", "three.md"]
        assert made["results"][0] == {
            "file_id": "file_two", "filename": "two.md", "score": 0.9, "attributes": {"year": 2026}, "text": "two says so.",
        }  # fmt: skip
        (cited,) = message["content"][0]["annotations"]
        assert cited == {"type": "file_citation", "index": 3, "file_id": "file_two", "filename": "two.md"}
        assert (
            "[1] two.md\ntwo says so.\n\n[2] three.md" in tool_results(site)[0]
            and "<untrusted>" in tool_results(site)[0]
        )
        assert sorted(web.paths) == ["/v1/vector_stores/vs_1/search", "/v1/vector_stores/vs_2/search"]
        assert all(body == {"query": "holidays", **more} for _, _, body, _ in web.requests)
        assert all(heads["authorization"] == f"Bearer {KEY}" for *_, heads in web.requests)
        assert KEY not in answer.text + json.dumps(site.upstream_body)


async def test_file_search_results_are_shown_on_request_and_sent_again():
    async with searching(**STORES) as web, gateway(calling(ASK), HELLO, tools=file_search_at(web)) as site:
        first = checked_whole((await site.respond(tools=[FILES])).content)
        assert first["output"][0]["results"] is None
        await site.respond(previous_response_id=first["id"], input="More?", tools=[FILES])
        assert "three says so." in tool_results(site)[0]


async def test_file_search_can_be_forced():
    async with searching(**STORES) as web, gateway(calling(ASK), HELLO, tools=file_search_at(web)) as site:
        response = checked_whole((await site.respond(tools=[FILES], tool_choice={"type": "file_search"})).content)
        assert response["output"][0]["type"] == "file_search_call"
        assert [post.json.get("tool_choice") for post in site.upstream.posts] == ["required", None]


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ({"query": 5}, "The argument 'query' must be a string"),
        ({}, "The argument 'query' must be a string"),
        ([], "its arguments are not a JSON object"),
    ],
    ids=["a number", "nothing", "a list"],
)
async def test_file_search_call_with_invalid_arguments_fails(arguments, error):
    async with (
        searching() as web,
        gateway(calling(("file_search__search", arguments)), HELLO, tools=file_search_at(web)) as site,
    ):
        made = checked_whole((await site.respond(tools=[FILES])).content)["output"][0]
        assert (made["status"], made["queries"]) == ("failed", []) and error in tool_results(site)[0]


async def test_file_search_in_a_missing_store_fails():
    stores = {**STORES, "v1/vector_stores/vs_2/search": respond_with({"error": {}}, 404)}
    async with searching(**stores) as web, gateway(calling(ASK), HELLO, tools=file_search_at(web)) as site:
        response = checked_whole((await site.respond(tools=[FILES])).content)
        assert (response["status"], response["output"][0]["status"]) == ("completed", "failed")
        assert response["output"][0]["queries"] == ["holidays"] and tool_results(site) == [
            "The file search returned HTTP 404."
        ]


@pytest.mark.parametrize(
    ("wrong", "param"),
    [
        ({"vector_store_ids": None}, "tools[0].vector_store_ids"),
        ({"vector_store_ids": []}, "tools[0].vector_store_ids"),
        ({"vector_store_ids": ["../../admin"]}, "tools[0].vector_store_ids[0]"),
        ({"vector_store_ids": [".."]}, "tools[0].vector_store_ids[0]"),
        ({"max_num_results": 51}, "tools[0].max_num_results"),
        ({"filters": "a"}, "tools[0].filters"),
    ],
)
async def test_file_search_with_invalid_fields_is_refused(wrong, param):
    async with gateway(HELLO) as site:
        assert problem(await site.respond(tools=[{**FILES, **wrong}]))[3] == param


async def test_hosted_tools_that_are_not_configured_are_dropped_or_refused():
    """Other hosted tools are configured."""
    async with searching() as web, gateway(HELLO, tools={**file_search_at(web), **web.tools()}) as site:
        container = {"type": "code_interpreter", "container": {"type": "auto"}}
        for tool in (container, {"type": "image_generation"}):
            answer = await site.respond(tools=[tool])
            assert (
                answer.headers["x-gateway-warnings"] == f"dropped:tools.{tool['type']}"
                and "tools" not in site.upstream_body
            )
            forced = await site.respond(tools=[tool, FILES], tool_choice={"type": tool["type"]})
            assert problem(forced)[2:] == ("unsupported_value", "tool_choice")
        assert problem(await site.respond(tools=[{"type": "computer"}]))[2:] == ("unsupported_value", "tools[0].type")
    async with gateway(HELLO) as site:
        assert (await site.respond(tools=[FILES])).headers["x-gateway-warnings"] == "dropped:tools.file_search"
