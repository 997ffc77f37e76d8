"""Test failures of MCP servers, of backends and of clients during MCP calls."""

import asyncio
import json
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from starlette.responses import Response, StreamingResponse

from gateway import config
from gateway.server.tools.mcp_session import McpSession
from gateway.server.tools.tool_server import ToolServer, ToolServerError
from support.app import gateway, listening
from support.jobs import ended, get, where
from support.mcp_requests import ASKING, ECHO, MCP, calling, of_type
from support.mcp_server import TOOL, Liar, operators, program, toys
from support.responses_events import checked, checked_whole
from support.sqlite_file import run_statement
from support.sse import events
from support.upstream import CLOSE, HELLO, KEY, chunk, head, whole
from support.wait import until

WAIT = ("toys__wait", {})


def patient(server):
    """Return the section `tools` with a timeout that no test reaches: only a cancellation ends a call of `wait`."""
    return {**operators(server), "seconds": 600}


async def response_and_calls(site, **fields):
    response = checked_whole((await site.respond(tools=[MCP], **fields)).content)
    return response, of_type(response, "mcp_call")


async def test_mcp_server_that_is_down_is_an_item_and_the_model_answers():
    down = {"mcp": {"servers": {"toys": {"url": "http://127.0.0.1:9/mcp"}}}}
    async with gateway(HELLO, tools=down) as site:
        response = checked((await site.respond(tools=[MCP], stream=True)).content)
        (listed,) = of_type(response, "mcp_list_tools")
        assert (listed["error"], listed["tools"]) == ("The server cannot be reached.", [])
        assert response["status"] == "completed" and "tools" not in site.upstream_body
        forced = await site.respond(tools=[MCP], tool_choice={"type": "mcp", "server_label": "toys"})
        assert "unenforced:tool_choice" in forced.headers["x-gateway-warnings"]


@pytest.mark.parametrize("silent", ["tools_list", "initialize"])
async def test_mcp_timeout_ends_a_slow_start_or_list(silent):
    async with Liar(**{silent: None}).listening() as server:
        slow = operators(server)
        slow["mcp"]["connect_seconds"] = 0.3
        async with gateway(HELLO, tools=slow) as site:
            response, _ = await response_and_calls(site)
            assert "did not list its tools within" in of_type(response, "mcp_list_tools")[0]["error"]


async def test_mcp_timeout_ends_a_slow_tool():
    async with (
        toys() as server,
        gateway(calling(WAIT, ECHO), HELLO, tools={**operators(server), "seconds": 1}) as site,
    ):
        _, (slow, echo) = await response_and_calls(site)
        assert (slow["status"], echo["output"]) == ("failed", "heard a")
        assert slow["error"]["message"] == "The tool did not respond within 1 s (tools.seconds)."
        assert slow["error"]["message"] in [message["content"] for message in site.upstream_body["messages"]]
        await until(server.broken.is_set)


@pytest.mark.parametrize("begun", [True, False], ids=["its answer", "nothing"])
async def test_mcp_timeout_ends_a_held_call_and_keeps_the_session(begun, monkeypatch):
    monkeypatch.setattr("gateway.server.tools.mcp_transport._GRACE", 0.0)
    over = asyncio.Event()

    async def forever():
        try:
            yield b"{"
            await asyncio.Event().wait()
        finally:
            over.set()

    async def call(message):
        if message["params"]["arguments"] == {"text": "b"}:
            return {"content": [{"type": "text", "text": "yes"}]}
        return StreamingResponse(forever(), media_type="application/json") if begun else None

    script = calling(ECHO), HELLO, calling(("toys__echo", {"text": "b"})), HELLO
    async with (
        Liar(tools_call=call).listening() as server,
        gateway(*script, tools={**operators(server), "seconds": 1}) as site,
    ):
        _, (made,) = await response_and_calls(site)
        assert made["status"] == "failed"
        await until((over if begun else server.broken).is_set)
        _, (made,) = await response_and_calls(site)
        assert made["output"] == "yes" and server.methods.count("initialize") == 1


async def test_mcp_tool_that_fails_is_a_failed_item():
    async with (
        toys() as server,
        gateway(calling(("toys__fail", {}), ("toys__echo", {"no": 1})), HELLO, tools=operators(server)) as site,
    ):
        _, made = await response_and_calls(site)
        assert [one["status"] for one in made] == ["failed", "failed"]
        assert made[0]["error"]["type"] == "mcp_tool_execution_error" and "no such thing" in json.dumps(
            made[0]["error"]
        )
        assert "Error executing tool" in site.upstream_body["messages"][2]["content"]


LIES = {
    "an error": ({"error": {"code": -32000, "message": "no way"}}, "The server reported an error: no way"),
    "a long error": ({"error": {"code": 1, "message": "<|x|>" * 9000}}, "reported an error: " + "< |x|>" * 333 + "< "),
    "no result": ({"nothing": 1}, "violates the protocol"),
    "another schema": ({"content": [], "structuredContent": {"a": "x"}}, "violates the protocol"),
    "no JSON": (Response(b"{", media_type="application/json"), "The server reported an error: "),
    "a page": (Response(b"<html>", media_type="text/html"), "The server reported an error: "),
    "a status": (Response(b"", status_code=500), "The server reported an error: "),
    "too much": (Response(b'"' + b"x" * (9 << 20), media_type="application/json"), "The server"),
    "nothing": (Response(b"", status_code=202), "The server reported an error: "),
    "an end": (Response(b": hm\n\n", media_type="text/event-stream"), "The server reported an error: "),
}  # fmt: skip


@pytest.mark.parametrize("name", LIES)
async def test_mcp_result_that_breaks_the_protocol_fails(name):
    answer, wanted = LIES[name]
    schema = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}
    listed = {"tools": [{**TOOL, "outputSchema": schema}]} if name == "another schema" else {"tools": [TOOL]}
    liar = Liar(tools_list=listed, tools_call=answer)
    async with liar.listening() as server, gateway(calling(ECHO), HELLO, tools=operators(server)) as site:
        response, (made,) = await response_and_calls(site)
        assert (made["status"], response["status"]) == ("failed", "completed") and wanted in made["error"]["message"]


@pytest.mark.parametrize(
    "tools", [[{"name": "echo", "inputSchema": "no"}], [{"name": 5}], "no"], ids=["a schema", "a name", "a list"]
)
async def test_mcp_list_that_breaks_the_protocol_is_an_error(tools):
    async with Liar(tools_list={"tools": tools}).listening() as server, gateway(HELLO, tools=operators(server)) as site:
        response, _ = await response_and_calls(site)
        assert "violates the protocol" in of_type(response, "mcp_list_tools")[0]["error"]


@pytest.mark.parametrize("theirs", [True, False], ids=["the client's", "the operator's"])
async def test_mcp_connection_that_breaks_during_a_call_fails_the_call(theirs):
    async def half():
        yield b'{"jsonrpc":'
        raise ConnectionError

    async def call(_):
        return StreamingResponse(half(), media_type="application/json")

    async with Liar(tools_call=call).listening() as server:
        known = {"mcp": {"hosts": ["127.0.0.1"], "networks": ["127.0.0.1/32"]}} if theirs else operators(server)
        definition = {**MCP, "server_url": server.url, "require_approval": "never"} if theirs else MCP
        async with gateway(calling(ECHO), HELLO, tools=known) as site:
            response = checked_whole((await site.respond(tools=[definition])).content)
            (made,) = of_type(response, "mcp_call")
            assert (made["status"], response["status"]) == ("failed", "completed")


async def test_mcp_approval_request_with_invalid_arguments_runs_nothing():
    request = {
        "type": "mcp_approval_request",
        "id": "mcpr_1",
        "server_label": "toys",
        "name": "echo",
        "arguments": "[1]",
    }
    given = {"type": "mcp_approval_response", "approval_request_id": "mcpr_1", "approve": True}
    async with toys() as server, gateway(HELLO, tools=operators(server)) as site:
        items = [{"role": "user", "content": "q"}, request, given]
        (made,) = of_type(checked_whole((await site.respond(input=items, tools=[MCP])).content), "mcp_call")
        assert made["status"] == "failed" and "not a JSON object" in made["error"]["message"] and server.calls == []


def with_change_notice(result):
    """Return an answer that first announces changed tools and resources."""

    async def answer(message):
        changed = [
            {"jsonrpc": "2.0", "method": f"notifications/{what}/list_changed"} for what in ("resources", "tools")
        ]
        frames = [*changed, {"jsonrpc": "2.0", "id": message["id"], "result": result}]
        body = "".join(f"event: message\ndata: {json.dumps(one)}\n\n" for one in frames)
        return Response(body, media_type="text/event-stream")

    return answer


async def test_mcp_change_notice_during_a_call_refreshes_the_list():
    call = with_change_notice({"content": [{"type": "text", "text": "yes"}]})
    script = calling(ECHO), HELLO
    async with Liar(tools_call=call).listening() as server, gateway(*script, tools=operators(server)) as site:
        for listed in (1, 2, 2):
            await response_and_calls(site)
            assert server.methods.count("tools/list") == listed


async def test_mcp_list_that_changes_while_it_is_sent_is_fetched_again():
    listing = with_change_notice({"tools": [TOOL]})
    async with Liar(tools_list=listing).listening() as server, gateway(HELLO, tools=operators(server)) as site:
        for listed in (1, 2, 3):
            await response_and_calls(site)
            assert server.methods.count("tools/list") == listed


async def test_mcp_list_of_endless_pages_is_limited():
    async def page(message):
        cursor = int((message.get("params") or {}).get("cursor", 0))
        return {"tools": [{**TOOL, "name": f"t{cursor}"}], "nextCursor": str(cursor + 1)}

    async with Liar(tools_list=page).listening() as server, gateway(HELLO, tools=operators(server)) as site:
        response, _ = await response_and_calls(site)
        assert [tool["name"] for tool in of_type(response, "mcp_list_tools")[0]["tools"]] == [
            f"t{i}" for i in range(100)
        ]


async def test_mcp_result_that_is_too_long_is_cut():
    much = calling(("toys__much", {"size": 5000}))
    async with toys() as server, gateway(much, HELLO, tools={**operators(server), "result_bytes": 1000}) as site:
        answer = await site.respond(tools=[MCP], stream=True)
        (made,) = of_type(checked(answer.content), "mcp_call")
        assert made["output"].startswith("x" * 1000 + "\n[The rest") and len(made["output"]) < 1100
        assert made["output"] == site.upstream_body["messages"][-1]["content"]
        assert "truncated:mcp_call.output" in answer.text


async def test_mcp_session_that_the_server_forgot_is_begun_again():
    forgotten = iter(
        [
            Response(status_code=404),
            {"content": [{"type": "text", "text": "again"}]},
            Response(status_code=404),
            Response(status_code=404),
        ]
    )

    async def call(_):
        return next(forgotten)

    script = [calling(ECHO), HELLO, calling(ECHO), HELLO]
    async with Liar(tools_call=call).listening() as server, gateway(*script, tools=operators(server)) as site:
        _, (made,) = await response_and_calls(site)
        assert made["output"] == "again" and server.methods.count("initialize") == 2
        _, (made,) = await response_and_calls(site)
        assert made["status"] == "failed" and "Session terminated" in made["error"]["message"]


async def test_mcp_program_that_ends_is_started_again():
    script = [calling(("toys__leave", {})), HELLO, calling(ECHO), HELLO]
    async with gateway(*script, tools=program()) as site:
        _, (made,) = await response_and_calls(site)
        assert made["status"] == "failed" and "Connection closed" in made["error"]["message"]
        _, (made,) = await response_and_calls(site)
        assert made["output"] == "heard a"


async def test_mcp_program_that_is_missing_is_an_error():
    program = {"command": ["/no/such/program"]}
    async with gateway(HELLO, tools={"mcp": {"servers": {"toys": program}}}) as site:
        response, _ = await response_and_calls(site)
        assert of_type(response, "mcp_list_tools")[0]["error"] == "The server cannot be reached."


async def test_mcp_session_that_is_closed_fails_its_callers():
    async with Liar(initialize=None).listening() as server:
        session = McpSession(ToolServer(server.url), config.McpSettings())
        waiting = asyncio.create_task(session.tools())
        await until(lambda: server.methods != [])
        await session.close()
        with pytest.raises(ToolServerError):
            await waiting
        await session.close()


# Clients, jobs and restarts


@pytest.mark.parametrize("streamed", [True, False], ids=["stream", "whole"])
async def test_disconnect_cancels_the_mcp_call(streamed):
    async with toys() as server, listening(calling(WAIT), tools=patient(server)) as site:
        asking = asyncio.create_task(site.respond(tools=[MCP], stream=streamed))
        await server.begun.wait()
        asking.cancel()
        await until(server.broken.is_set)
        assert len(site.upstream.posts) == 1


async def test_keep_alive_events_are_sent_during_an_mcp_call():
    quick = {"stream": {"grace_seconds": 0.02, "keepalive_seconds": 0.02}}
    async with toys() as server, listening(calling(WAIT), HELLO, tools=operators(server), **quick) as site:
        _, text = await site.respond_slowly(server.go, tools=[MCP])
        assert of_type(checked(text.encode()), "mcp_call")[0]["output"] == "waited"


async def test_backend_failure_after_mcp_calls_is_sent():
    async with toys() as server, gateway(calling(ECHO), [head(), chunk("Hel"), CLOSE], tools=operators(server)) as site:
        response = checked((await site.respond(tools=[MCP], stream=True)).content)
        assert [item["type"] for item in response["output"]] == ["mcp_list_tools", "mcp_call", "message"]
        assert (response["status"], response["output"][2]["status"]) == ("failed", "incomplete")


async def test_backend_refusal_after_mcp_calls_fails_the_response():
    refused = whole({"error": {"message": "no", "type": "invalid_request_error"}}, status=400)
    async with toys() as server, gateway(calling(ECHO), refused, tools=operators(server)) as site:
        response = checked((await site.respond(tools=[MCP], stream=True)).content)
        assert response["status"] == "failed" and of_type(response, "mcp_call")[0]["output"] == "heard a"


async def test_job_runs_mcp_calls_in_the_background():
    async with toys() as server, gateway(calling(WAIT), HELLO, tools=operators(server)) as site:
        accepted = (await site.respond(tools=[MCP], background=True)).json()
        await server.begun.wait()
        assert (await get(site, accepted["id"])).json()["status"] == "in_progress"
        server.go.set()
        response = await ended(site, accepted["id"])
        assert response["status"] == "completed" and of_type(response, "mcp_call")[0]["output"] == "waited"


async def test_job_cancellation_cancels_the_mcp_call():
    async with toys() as server, gateway(calling(WAIT), HELLO, tools=patient(server)) as site:
        accepted = (await site.respond(tools=[MCP], background=True)).json()
        await server.begun.wait()
        await site.client.post(f"/v1/responses/{accepted['id']}/cancel")
        response = await ended(site, accepted["id"])
        assert response["status"] == "cancelled" and of_type(response, "mcp_call")[0]["status"] == "failed"
        await until(server.broken.is_set)


@pytest.mark.parametrize("streamed", [True, False], ids=["stream", "polled"])
async def test_restart_during_an_mcp_call_does_not_repeat_the_call(streamed, store_url):
    store = where(store_url)
    async with toys() as server:
        options = {"tools": operators(server), "server": {"drain_seconds": 0}, **store}
        async with gateway(calling(WAIT), **options) as site:
            body = json.dumps(
                {"model": "m", "input": "q", "tools": [MCP], "background": True, "stream": streamed}
            ).encode()
            accepted = asyncio.create_task(site.respond(body))
            await server.begun.wait()
            if not streamed:
                id = (await accepted).json()["id"]
        if streamed:
            id = events((await accepted).text)[0]["response"]["id"]
        async with gateway(HELLO, **options) as site:
            response = await ended(site, id)
            assert response["status"] == "failed" and site.upstream.posts == []


async def test_store_keeps_no_secrets_of_mcp_tools(tmp_path):
    secret = {**MCP, "headers": {"x": KEY + "h"}, "authorization": KEY + "a"}
    later = {"type": "additional_tools", "role": "developer", "tools": [secret]}
    async with (
        toys() as server,
        gateway(calling(WAIT), HELLO, tools=operators(server), **where(f"sqlite:///{tmp_path}/g.db")) as site,
    ):
        accepted = (
            await site.respond(input=[later, {"role": "user", "content": "q"}], tools=[secret], background=True)
        ).json()
        await server.begun.wait()
        with closing(sqlite3.connect(tmp_path / "g.db")) as db:
            ((kept,),) = db.execute("select body from requests").fetchall()
            assert b'"server_label":"toys"' in kept and b'"background":true' in kept
            assert all(KEY not in line for line in db.iterdump())
        server.go.set()
        await ended(site, accepted["id"])


async def test_disconnect_cancels_an_approved_mcp_call():
    async with toys() as server, listening(calling(WAIT), tools=patient(server)) as site:
        wanted = {**ASKING, "allowed_tools": ["wait"]}
        first = (await site.respond(tools=[wanted])).json()
        (request,) = of_type(first, "mcp_approval_request")
        given = {"type": "mcp_approval_response", "approval_request_id": request["id"], "approve": True}
        asking = asyncio.create_task(site.respond(previous_response_id=first["id"], input=[given], tools=[wanted]))
        await server.begun.wait()
        asking.cancel()
        await until(server.broken.is_set)


async def test_job_held_by_another_gateway_runs_no_mcp_call(tmp_path):
    go = asyncio.Event()
    first, *rest = calling(ECHO)
    store = where(f"sqlite:///{tmp_path}/g.db")
    async with toys() as server, gateway([first, go, *rest], tools=operators(server), **store) as site:
        await site.respond(tools=[MCP], background=True)
        await site.upstream.arrived.wait()
        await run_statement(tmp_path / "g.db", "update jobs set holder = 'another', held_until = 9000000000000")
        go.set()
        await site.app.state.handler.jobs.wait_idle()
        assert server.calls == []


async def test_mcp_program_that_does_not_end_is_killed_even_if_its_session_ends_twice(tmp_path):
    pid, closed = tmp_path / "pid", tmp_path / "closed"
    command = ("sh", "-c", f"read request; echo $$ > {pid}; cat > /dev/null; touch {closed}; exec sleep 600")
    session = McpSession(ToolServer("", command=command), config.McpSettings())
    waiting = asyncio.create_task(session.tools())
    await until(lambda: pid.exists() and pid.read_text().endswith("\n"))
    session._life.end()  # as its timeout does
    await until(closed.exists)
    await session.close()
    with pytest.raises(ToolServerError, match="closed"):
        await waiting
    await until(lambda: not Path(f"/proc/{int(pid.read_text())}").exists())


async def test_mcp_server_that_does_not_answer_fails_a_call_of_a_known_tool():
    async with Liar(initialize=None).listening() as server:
        session = McpSession(ToolServer(server.url), config.McpSettings(connect_seconds=0.1))
        with pytest.raises(ToolServerError, match="in time"):
            await session.call_tool("echo", {})
