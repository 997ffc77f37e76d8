"""Test the toolbox of a response with fake providers of tools."""

import asyncio
import gc
import subprocess
import sys
from pathlib import Path

import pytest

from gateway import builtin_tools, config
from gateway.builtin_tools import BuiltinTool, BuiltinToolResult, BuiltinToolRun, ToolLoop, ToolLoopLimits
from gateway.errors import StoreFailed
from gateway.events import BuiltinItemEnd, BuiltinItemStart, Finish, ToolCallEnd, ToolCallStart
from gateway.request import Tool
from gateway.server import tools
from gateway.server.tools import ToolOffer, ToolRoundCall, Toolset, ToolsetOptions
from support.app import gateway
from support.upstream import HELLO


def search_tool(name):
    item = {"type": "web_search_call", "status": "in_progress", "action": {"type": "search", "query": ""}}
    return BuiltinTool(Tool(name, {"name": name}), item, "ws_", lambda why: {"status": "failed", "said": why})


class FakeProvider:
    """Provide these tools; their calls end when `may` is set."""

    def __init__(self, *names):
        self.tools, self.may, self.closed = [search_tool(name) for name in names], asyncio.Event(), False

    async def list_tools(self):
        return ToolOffer(self.tools)

    async def run(self, run):
        await self.may.wait()
        return BuiltinToolResult(
            run.id, f"{run.ours.tool.name} of {run.arguments}", {"action": {"type": "search", "query": "q"}}
        )

    async def close(self):
        self.closed = True


async def test_toolbox_takes_the_first_of_two_tools_of_one_name():
    first, second = FakeProvider("search", "read"), FakeProvider("read", "find")
    async with Toolset([first, second], config.ToolSettings()) as box:
        assert isinstance(await box.open(), ToolLoop)
        assert [ours.tool.name for ours in box.tools] == ["search", "read", "find"]
        first.may.set()
        results = []
        await box.run(
            [BuiltinToolRun("1", search_tool("read"), "{}"), BuiltinToolRun("2", search_tool("search"), "{}")],
            results.append,
        )
        assert [result.content for result in results] == ["read of {}", "search of {}"]
    assert first.closed and second.closed


async def test_timeout_of_a_tool_does_not_fail_the_others():
    late, soon = FakeProvider("late"), FakeProvider("soon")
    soon.may.set()
    async with Toolset([late, soon], config.ToolSettings(seconds=0.05)) as box:
        await box.open()
        results = []
        await box.run(
            [BuiltinToolRun("1", search_tool("late"), "{}"), BuiltinToolRun("2", search_tool("soon"), "{}")],
            results.append,
        )
    assert [result.id for result in results] == ["2", "1"] and "within 0.05 s" in results[1].item["said"]


@pytest.mark.parametrize(("wanted", "most"), [(None, 5), (3, 3), (9, 5)])
async def test_toolbox_limit_can_only_be_lowered_by_the_client(wanted, most):
    async with Toolset([], config.ToolSettings(calls=5), ToolsetOptions(max_calls=wanted)) as box:
        loop = await box.open()
        assert loop._calls == most


async def test_running_tools_send_each_result_as_it_comes():
    more = asyncio.Event()

    async def work(tell, _):
        await more.wait()
        tell(BuiltinToolResult("1", "a"))
        tell(BuiltinToolResult("2", "b"))

    running = ToolRoundCall(work)
    assert await running.ready() and running.read() == b"[]"
    assert not await running.ready(0.01)
    more.set()
    assert await running.ready()
    running.report_outcome(None)
    assert running.read() == b'[{"id":"1","content":"a"},{"id":"2","content":"b"}]'
    assert await running.ready() and running.read() == b""
    running.close()


async def test_running_tools_wait_until_their_results_are_used():
    done = []

    async def work(tell, used):
        tell(BuiltinToolResult("1", "a"))
        await used()
        done.append("used")

    running = ToolRoundCall(work)
    assert await running.ready() and running.read() == b"[]"
    assert await running.ready() and await running.ready()
    assert running.read() != b"[]"
    for _ in range(9):
        await asyncio.sleep(0)
    assert done == []
    assert await running.ready() and done == ["used"] and running.read() == b""


async def test_running_tools_raise_an_error_where_it_is_read():
    async def work(tell, _):
        tell(BuiltinToolResult("1", "a"))
        raise StoreFailed("The store is gone.")

    running = ToolRoundCall(work)
    await asyncio.sleep(0)
    assert running.read() != b"" and await running.ready()
    with pytest.raises(StoreFailed):
        while running.read():
            pass


def test_hosted_item_has_the_fields_of_its_provider():
    loop = ToolLoop([search_tool("search")], ToolLoopLimits(1, 1), lambda prefix: f"{prefix}1")
    begun = loop.feed(ToolCallStart(0, 0, "c", "search"))
    assert isinstance(begun[0], BuiltinItemStart) and b'"web_search_call"' in bytes(begun[0].item)
    loop.feed(ToolCallEnd(0, 0))
    loop.feed(Finish(0, "tool_calls"))
    (end,) = loop.add_results([BuiltinToolResult("c", "x", {"action": 1})])
    assert isinstance(end, BuiltinItemEnd) and bytes(end.item) == b'{"action":1}'


# Responses without hosted tools


@pytest.mark.parametrize(
    "tool_settings", [{}, {"web_search": {"service": "static"}, "mcp": {"hosts": ["*"]}}], ids=["none", "some"]
)
async def test_hosted_tools_cost_nothing_for_other_responses(tool_settings):
    """The request makes one check, creates nothing and imports no MCP package."""
    folders, calls = tuple(str(Path(module.__file__).parent) for module in (builtin_tools, tools)), set()

    def record_call(frame, event, _):
        if event == "call" and frame.f_code.co_filename.startswith(folders):
            calls.add(frame.f_code.co_qualname)

    async with gateway(HELLO, tools=tool_settings) as site:
        for ask, wanted in (
            (site.chat, set()),
            (site.respond, {"ToolRegistry.builtin_tool_filter", "ToolRegistry.toolset_for"}),
        ):
            await ask()
            calls.clear()
            gc.disable()  # the end of a coroutine of another test would be counted
            sys.setprofile(record_call)
            try:
                await ask(stream=True)
            finally:
                sys.setprofile(None)
                gc.enable()
            assert {name for name in calls if "<" not in name} == wanted


def test_mcp_packages_are_imported_only_if_needed():
    code = "import sys, gateway.server.app; print(sorted({'mcp', 'html_to_markdown', 'httpx2'} & sys.modules.keys()))"
    completed_process = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True, text=True)
    assert completed_process.stdout == "[]\n"
