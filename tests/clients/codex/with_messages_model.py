"""Codex CLI over a backend that speaks the Messages API: its thoughts go back with their signatures."""

from pathlib import Path
from tempfile import TemporaryDirectory

from checks import run
from messages_words import BACKEND, COMPLETION, MODEL, PROMPT, bodies, response_stream

from cli import Codex, steps_of, token_counts
from support.anthropic_server import text, thinking, tool_use
from support.app import listening

THOUGHT = thinking("A file is wanted.")
COMMAND = tool_use("exec_command", cmd="echo 'grüß dich' > made.txt && cat made.txt")
ECHO = tool_use("mcp__toy__echo", "toolu_echo", text="hey")


async def a_command_is_run(model: str) -> None:
    """Beside a tool of an MCP server."""
    turns = response_stream(THOUGHT, text("I write it."), COMMAND, ECHO), response_stream(text("It is there."))
    async with listening(*turns, backend=BACKEND, model={"upstream_model": MODEL}) as site:
        with TemporaryDirectory() as folder:
            cli = Codex(Path(folder), f"{site.client.base_url}/v1")
            events = await cli.exec("-m", model, "Make a file.")
            assert (cli.folder / "made.txt").read_text("utf-8") == "grüß dich\n"
        first, second, *run, last = steps_of(events)
        assert [first, second, last] == [
            ("reasoning", "A file is wanted."),
            ("agent_message", "I write it."),
            ("agent_message", "It is there."),
        ], events
        assert sorted(run) == [
            ("command_execution", "grüß dich\n", 0),
            ("mcp_tool_call", ("toy", "echo"), "Echo: hey"),
        ], events
        assert token_counts(events) == (2 * PROMPT, 2 * COMPLETION), events
        _, last_request = bodies(site.upstream, 2)
    past, results = last_request["messages"][-2:]
    assert [block["type"] for block in past["content"]] == ["thinking", "text", "tool_use", "tool_use"], past
    assert past["content"][0] == THOUGHT, past
    assert [block["tool_use_id"] for block in results["content"]] == [COMMAND["id"], ECHO["id"]], results


if __name__ == "__main__":
    run("codex, a model behind the Messages API", {}, [a_command_is_run], models=("m",))
