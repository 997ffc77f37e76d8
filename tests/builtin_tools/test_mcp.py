"""Test a real MCP server behind the gateway: the client's items, and the requests to the model."""

import gc
import json
import logging

import pytest
from mcp.server.mcpserver import Context

from gateway import config
from gateway.installation import install_command
from gateway.server.tools import ToolRegistry
from support.app import gateway, listening, problem
from support.mcp_requests import ADD, ASKING, ECHO, MCP, calling, of_type
from support.mcp_server import PIXEL, operators, program, toys
from support.memory import census, watched
from support.responses_events import checked, checked_whole
from support.sse import payloads, text_of
from support.upstream import HELLO, chunk, stream
from support.wait import until
from support.websocket import connected

SECRET = "s3cret-0123456789"


LIST_ITEM = {
    "type": "mcp_list_tools",
    "id": "mcpl_1",
    "server_label": "toys",
    "tools": [{"name": "echo", "input_schema": {"type": "object"}}],
}


@pytest.mark.parametrize("streamed", [True, False], ids=["stream", "whole"])
async def test_mcp_tools_are_called_and_the_model_answers(streamed):
    async with toys() as server, gateway(calling(ECHO, ADD, text="Wait."), HELLO, tools=operators(server)) as site:
        answer = await site.respond(stream=streamed, tools=[MCP])
        response = (checked if streamed else checked_whole)(answer.content)
        assert [item["type"] for item in response["output"]] == [
            "mcp_list_tools", "message", "mcp_call", "mcp_call", "message",
        ]  # fmt: skip
        echo, add = of_type(response, "mcp_call")
        assert (echo["output"], json.loads(add["output"])) == ("heard a", {"sum": 3})
        assert response["usage"]["total_tokens"] == 18
        names = [tool["name"] for tool in response["output"][0]["tools"]]
        assert names == ["echo", "add", "fail", "wait", "show", "much", "leave"]
        offered = [tool["function"]["name"] for tool in site.upstream.posts[0].json["tools"]]
        assert offered == [f"toys__{name}" for name in names]
        roles = [message["role"] for message in site.upstream_body["messages"]]
        assert roles == ["user", "assistant", "tool", "tool"]
        assert "x-gateway-warnings" not in answer.headers


async def test_mcp_session_and_list_of_the_operator_are_kept():
    async with toys() as server, gateway(calling(ECHO), HELLO, calling(ECHO), HELLO, tools=operators(server)) as site:
        await site.respond(tools=[MCP])
        listed = len(server.heads)
        await site.respond(tools=[MCP])
        assert len(server.heads) == listed + 1 and server.calls == [("echo", "a")] * 2


async def test_mcp_list_that_has_changed_is_fetched_again():
    script = calling(("toys__learn", {})), HELLO
    async with toys() as server, gateway(*script, tools=operators(server)) as site:

        async def learn(ctx: Context) -> str:
            server.server.tool(name="new")(server.echo)
            await ctx.notify_tools_changed()
            return "learnt"

        server.server.tool()(learn)
        await site.respond(tools=[MCP])

        async def is_offered():
            await site.respond(tools=[MCP])
            return "toys__new" in [tool["function"]["name"] for tool in site.upstream_body["tools"]]

        await until(is_offered)


async def test_mcp_servers_per_request_are_limited():
    known = {label: {"url": "http://127.0.0.1:1/mcp", "require_approval": "never"} for label in ("a", "b", "c")}
    async with gateway(HELLO, tools={"mcp": {"servers": known, "per_request": 2}}) as site:
        three = [{"type": "mcp", "server_label": label} for label in known]
        assert problem(await site.respond(tools=three))[2:] == ("invalid_value", "tools")
        assert (await site.respond(tools=three[:2])).status_code == 200


async def test_mcp_list_that_the_client_sends_is_not_fetched_again():
    async with toys() as server, gateway(calling(ECHO), HELLO, tools=operators(server)) as site:
        answer = await site.respond(input=[LIST_ITEM, {"role": "user", "content": "q"}], tools=[MCP])
        assert [item["type"] for item in checked_whole(answer.content)["output"]] == ["mcp_call", "message"]
        assert [tool["function"]["name"] for tool in site.upstream_body["tools"]] == ["toys__echo"]
    async with gateway(HELLO) as site:
        answer = await site.respond(input=[LIST_ITEM, {"role": "user", "content": "q"}])
        assert answer.headers["x-gateway-warnings"] == "dropped:input.mcp_list_tools"


async def test_mcp_calls_beside_client_tools_are_continued():
    """The next request continues with both tool outputs."""
    function = {"type": "function", "name": "mine"}
    async with toys() as server, gateway(calling(ECHO, ("mine", {})), HELLO, tools=operators(server)) as site:
        first = checked_whole((await site.respond(tools=[MCP, function])).content)
        assert [item["type"] for item in first["output"]] == ["mcp_list_tools", "mcp_call", "function_call"]
        output = {"type": "function_call_output", "call_id": first["output"][2]["call_id"], "output": "yes"}
        more = await site.respond(previous_response_id=first["id"], input=[output], tools=[MCP, function])
        assert [item["type"] for item in checked_whole(more.content)["output"]] == ["message"]
        results = [message["content"] for message in site.upstream_body["messages"] if message["role"] == "tool"]
        assert results == ["heard a", "yes"] and server.calls == [("echo", "a")]
        replayed = [{"role": "user", "content": "Hello"}, *first["output"], output]
        again = await site.respond(input=replayed, tools=[MCP, function], store=False)
        assert [item["type"] for item in checked_whole(again.content)["output"]] == ["message"]
        assert [
            message["content"] for message in site.upstream_body["messages"] if message["role"] == "tool"
        ] == results


async def test_mcp_results_may_have_images_and_resources():
    async with toys() as server, gateway(calling(("toys__show", {})), HELLO, tools=operators(server)) as site:
        made = of_type(checked_whole((await site.respond(tools=[MCP])).content), "mcp_call")[0]
        assert made["output"] == "a picture\n[image: image/png]\na note\nmore: https://example.com/more"
        assert PIXEL in json.dumps(site.upstream_body["messages"])


async def test_mcp_tool_choice_may_name_a_tool_of_a_server():
    async with toys() as server, gateway(calling(ECHO), HELLO, tools=operators(server)) as site:
        choice = {"type": "mcp", "server_label": "toys", "name": "echo"}
        response = checked_whole((await site.respond(tools=[MCP], tool_choice=choice)).content)
        assert [item["type"] for item in response["output"]] == ["mcp_list_tools", "mcp_call", "message"]
        named = {"type": "function", "function": {"name": "toys__echo"}}
        assert [post.json.get("tool_choice") for post in site.upstream.posts] == [named, None]
        assert response["tool_choice"] == choice


async def test_mcp_calls_are_limited_by_max_tool_calls():
    async with toys() as server, gateway(calling(ECHO, ECHO), HELLO, tools=operators(server)) as site:
        response = checked_whole((await site.respond(tools=[MCP], max_tool_calls=1)).content)
        assert len(of_type(response, "mcp_call")) == 1 == len(server.calls)
        assert "tools" not in site.upstream_body and response["max_tool_calls"] == 1


# Approval


async def requested_approval(site):
    response = checked((await site.respond(tools=[ASKING], stream=True)).content)
    (request,) = of_type(response, "mcp_approval_request")
    assert (request["name"], json.loads(request["arguments"]), response["status"]) == (
        "echo",
        {"text": "a"},
        "completed",
    )
    return response, request


@pytest.mark.parametrize("replayed", [True, False], ids=["replayed", "by id"])
async def test_mcp_approval_runs_the_call_once(replayed):
    async with toys() as server, gateway(calling(ECHO), HELLO, tools=operators(server)) as site:
        first, request = await requested_approval(site)
        assert server.calls == []
        given = {"type": "mcp_approval_response", "approval_request_id": request["id"], "approve": True}
        before = [{"role": "user", "content": "Hello"}, *first["output"]] if replayed else []
        on = {} if replayed else {"previous_response_id": first["id"]}
        answer = await site.respond(input=[*before, given], tools=[ASKING], stream=True, **on)
        response = checked(answer.content)
        assert [item["type"] for item in response["output"]] == ["mcp_call", "message"]
        made = response["output"][0]
        assert (made["approval_request_id"], made["output"]) == (request["id"], "heard a")
        assert site.upstream_body["messages"][-1]["content"] == "heard a" and server.calls == [("echo", "a")]
        # the request after that runs no call
        await site.respond(previous_response_id=response["id"], input="more", tools=[ASKING])
        assert server.calls == [("echo", "a")]
        if not replayed:
            messages = [
                (one["role"], one["content"]) for one in site.upstream_body["messages"] if one["role"] != "assistant"
            ]
            assert messages == [("user", "Hello"), ("tool", "heard a"), ("user", "more")]


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({"approve": False}, "This call was not made: the user did not approve it."),
        ({"approve": False, "reason": "Too loud."}, "This call was not made: the user did not approve it. Too loud."),
        (None, "This call was not made: the user has not approved it."),
    ],
)  # fmt: skip
async def test_mcp_call_without_approval_is_not_run(given, text):
    async with toys() as server, gateway(calling(ECHO), HELLO, tools=operators(server)) as site:
        first, request = await requested_approval(site)
        item = (
            {"type": "mcp_approval_response", "approval_request_id": request["id"], **given}
            if given
            else {"role": "user", "content": "No."}
        )
        answer = await site.respond(previous_response_id=first["id"], input=[item], tools=[ASKING])
        assert [item["type"] for item in checked_whole(answer.content)["output"]] == ["message"]
        assert text in [message["content"] for message in site.upstream_body["messages"]] and server.calls == []


async def test_mcp_approval_of_an_unknown_request_is_refused():
    async with toys() as server, gateway(HELLO, tools=operators(server)) as site:
        given = {"type": "mcp_approval_response", "approval_request_id": "mcpr_x", "approve": True}
        assert problem(await site.respond(input=[given], tools=[MCP]))[0] == 400
        wrong = {"type": "mcp_approval_response", "approval_request_id": "mcpr_x", "approve": "yes"}
        assert problem(await site.respond(input=[wrong], tools=[MCP]))[2:] == ("invalid_type", "input[0].approve")
    async with gateway(HELLO) as site:
        assert problem(await site.respond(input=[given]))[2] == "unsupported_value"


async def test_mcp_approval_of_a_tool_that_is_not_offered_runs_nothing():
    async with toys() as server, gateway(calling(ECHO), HELLO, tools=operators(server)) as site:
        first, request = await requested_approval(site)
        given = {"type": "mcp_approval_response", "approval_request_id": request["id"], "approve": True}
        other = {**ASKING, "allowed_tools": ["add"]}
        for tools in ([other], []):
            answer = await site.respond(previous_response_id=first["id"], input=[given], tools=tools)
            assert [item["type"] for item in checked_whole(answer.content)["output"]][-1] == "message"
            assert "not available" in site.upstream_body["messages"][-1]["content"] and server.calls == []


# Servers that the client names


async def test_mcp_server_of_the_client_needs_the_permission_of_the_operator(caplog):
    caplog.set_level(logging.INFO)
    definition = {**MCP, "require_approval": "never", "headers": {"x-key": SECRET}, "authorization": SECRET}
    async with toys() as server:
        mine = {**definition, "server_url": server.url}
        tools = {"mcp": {"hosts": ["127.0.0.1"], "networks": ["127.0.0.1/32"]}}
        async with gateway(calling(ECHO), HELLO, tools=tools) as site:
            answer = await site.respond(tools=[mine])
            response = checked_whole(answer.content)
            assert of_type(response, "mcp_call")[0]["output"] == "heard a"
            assert {head["x-key"] for head in server.heads} == {SECRET}
            assert {head["authorization"] for head in server.heads} == {f"Bearer {SECRET}"}
            assert SECRET not in answer.text and SECRET not in json.dumps(site.upstream_body)
            stored = await site.client.get(f"/v1/responses/{response['id']}")
            assert (
                SECRET not in caplog.text
                and SECRET not in stored.text
                and stored.json()["tools"][0]["server_url"] == server.url
            )
        for hosts, networks in (([], []), (["mcp.example.com"], ["127.0.0.1/32"])):
            async with gateway(HELLO, tools={"mcp": {"hosts": hosts, "networks": networks}}) as site:
                answer = await site.respond(tools=[mine])
                assert answer.headers["x-gateway-warnings"] == "dropped:tools.mcp" and "tools" not in site.upstream_body
        async with gateway(HELLO, tools={"mcp": {"hosts": ["*"]}}) as site:  # the private network stays closed
            answer = await site.respond(tools=[mine])
            (listed,) = of_type(checked_whole(answer.content), "mcp_list_tools")
            assert listed["error"] == "The server cannot be reached." and listed["tools"] == []


@pytest.mark.parametrize(
    ("definition", "runs"),
    [
        ({"server_label": "toys"}, True),
        ({"server_label": "other"}, False),
        ({"server_label": "x", "server_url": "https://mcp.example.com/mcp"}, True),
        ({"server_label": "x", "server_url": "https://MCP.example.com:8443/"}, True),
        ({"server_label": "x", "server_url": "https://a.below.example.org/"}, True),
        ({"server_label": "x", "server_url": "https://below.example.org/"}, False),
        ({"server_label": "x", "server_url": "https://mcp.example.com.evil.net/"}, False),
        ({"server_label": "x", "server_url": "ftp://mcp.example.com/"}, False),
        ({"server_label": "x", "server_url": "https://[broken/"}, False),
        ({"server_label": "x", "connector_id": "connector_gmail"}, False),
    ],
)
def test_mcp_runs_the_servers_that_the_operator_allows(definition, runs):
    mcp = config.McpSettings(
        servers={"toys": config.McpServerSettings(url="http://toys/mcp")},
        hosts=("mcp.example.com", "*.below.example.org"),
    )
    workshop = ToolRegistry(config.ToolSettings(mcp=mcp))
    assert workshop.builtin_tool_filter({"type": "mcp", **definition}) is runs
    assert workshop.builtin_tool_filter({"type": "web_search"}) is False


def test_mcp_is_off_without_servers_or_the_sdk(caplog):
    assert ToolRegistry(config.ToolSettings()).builtin_tool_filter is None and not caplog.records
    mcp = config.McpSettings(hosts=("*",))
    assert ToolRegistry(config.ToolSettings(mcp=mcp), package="no_such_package").builtin_tool_filter is None
    assert install_command("gateway[mcp]") in caplog.text


async def test_mcp_headers_of_the_client_are_not_sent_to_operator_servers():
    async with toys() as server, gateway(HELLO, tools=operators(server, headers={"x-ours": SECRET})) as site:
        answer = await site.respond(tools=[{**MCP, "headers": {"x-key": "k"}, "authorization": "t"}])
        listed = answer.headers["x-gateway-warnings"]
        assert "dropped:tools.mcp.headers" in listed and "dropped:tools.mcp.authorization" in listed
        assert all("x-key" not in head and head["x-ours"] == SECRET for head in server.heads)
        assert SECRET not in answer.text


async def test_mcp_server_label_and_namespace_have_to_differ():
    async with toys() as server, gateway(HELLO, tools=operators(server)) as site:
        namespace = {"type": "namespace", "name": "toys", "tools": [{"type": "function", "name": "echo"}]}
        assert problem(await site.respond(tools=[MCP, namespace]))[2:] == ("invalid_value", "tools")


# Other transports


async def test_mcp_server_may_be_a_program():
    async with gateway(calling(ECHO), HELLO, tools=program()) as site:
        response = checked_whole((await site.respond(tools=[MCP])).content)
        assert of_type(response, "mcp_call")[0]["output"] == "heard a"


async def test_mcp_server_may_use_the_sse_transport():
    async with (
        toys(sse=True) as server,
        gateway(calling(ECHO), HELLO, tools=operators(server, transport="sse")) as site,
    ):
        response = checked_whole((await site.respond(tools=[MCP])).content)
        assert of_type(response, "mcp_call")[0]["output"] == "heard a"


@pytest.mark.parametrize("how", [{"json_response": True}, {"stateless_http": True}], ids=["json", "stateless"])
async def test_mcp_server_may_answer_in_json_or_without_sessions(how):
    async with toys(**how) as server, gateway(calling(ECHO), HELLO, tools=operators(server)) as site:
        response = checked_whole((await site.respond(tools=[MCP])).content)
        assert of_type(response, "mcp_call")[0]["output"] == "heard a"


async def test_mcp_list_is_sent_once_over_a_websocket():
    script = calling(ECHO), HELLO, calling(ADD), HELLO
    async with (
        toys() as server,
        listening(*script, tools=operators(server)) as site,
        connected(site) as socket,
    ):
        await socket.create(tools=[MCP], store=False)
        first = (await socket.events())[-1]["response"]
        await socket.create(tools=[MCP], store=False, previous_response_id=first["id"])
        second = (await socket.events())[-1]["response"]
        assert [item["type"] for item in first["output"]] == ["mcp_list_tools", "mcp_call", "message"]
        assert [item["type"] for item in second["output"]] == ["mcp_call", "message"]


# Chat completions


@pytest.mark.parametrize("streamed", [True, False], ids=["stream", "whole"])
async def test_chat_uses_the_mcp_tools_of_the_operator(streamed):
    model = {"mcp": ["toys"]}
    script = calling(ECHO, text="Wait."), HELLO
    async with (
        toys() as server,
        gateway(*script, model=model, tools=operators(server, require_approval="always")) as site,
    ):
        answer = await site.chat(stream=streamed, stream_options={"include_usage": True} if streamed else None)
        if streamed:
            assert text_of(answer.text) == "Wait.\n\nHi" and payloads(answer.text)[-2]["usage"]["total_tokens"] == 18
        else:
            (choice,) = answer.json()["choices"]
            assert choice["message"]["content"] == "Wait.\n\nHi" and "tool_calls" not in choice["message"]
            assert answer.json()["usage"]["total_tokens"] == 18
        assert server.calls == [("echo", "a")]


async def test_chat_of_several_choices_has_no_mcp_tools():
    two = stream(chunk("a", finish="stop"), chunk("b", index=1, finish="stop"))
    async with toys() as server, gateway(two, model={"mcp": ["toys"]}, tools=operators(server)) as site:
        answer = await site.chat(n=2)
        assert (
            answer.headers["x-gateway-warnings"].split(", ")[0] == "dropped:tools.mcp"
            and "tools" not in site.upstream_body
        )


async def test_mcp_tools_are_not_offered_to_other_models():
    async with toys() as server, gateway(HELLO, tools=operators(server)) as site:
        await site.chat()
        assert "tools" not in site.upstream_body and server.heads == []


# Memory


@pytest.mark.parametrize("streamed", [True, False], ids=["stream", "whole"])
async def test_mcp_response_leaves_no_garbage(streamed):
    names = (
        "gateway.builtin_tools",
        "gateway.pipeline.pipeline",
        "gateway.server.tools.toolset",
        "gateway.server.tools.toolset",
    )
    async with (
        toys() as server,
        gateway(*[calling(ECHO, ADD, text="Wait."), HELLO] * 3, tools=operators(server)) as site,
    ):
        await site.respond(stream=streamed, tools=[MCP])
        gc.collect()
        with watched():
            for _ in range(2):
                answer = await site.respond(stream=streamed, tools=[MCP])
                assert answer.status_code == 200
            assert [name for name in census() if name.startswith(names)] == []
