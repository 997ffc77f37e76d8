"""Claude Code over a model that says what is written here, as raw text: real turns of an agent, with its real tools.

The client's report of a turn shows that the responses were right. The requests at the model show that its own were.
"""

import json
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from checks import run
from words import COMPLETION, FORMAT, PROMPT, call, response_stream

from cli import TOY, ClaudeCode, Turn
from support.app import listening
from support.upstream import DONE, END, RESET, Upstream, chunk, completion_body, head, silent, whole

TOOLS = {"Agent", "Bash", "Edit", "Read", "ToolSearch", "Write"}  # among others
STRICT = {"ANTHROPIC_CUSTOM_HEADERS": "x-gateway-strict: 1"}
LOADING = whole({"error": "Loading model"}, 503)
SLOW_DOWN = whole({"error": {"message": "slow down"}}, 429, retry_after="1")
TOO_LONG = whole(
    {"error": {"message": "the request exceeds the available context size", "type": "exceed_context_size_error"}}, 400
)
SUMMARY = "<summary>So far: a greeting.</summary>"
GOES_ON = "--continue"


@asynccontextmanager
async def claude(
    *scripts: list[Any], environment: dict[str, str] | None = None, **settings: Any
) -> AsyncIterator[tuple[ClaudeCode, Upstream]]:
    model = FORMAT | {"aliases": ["claude-*"]} | settings.pop("model", {})
    async with listening(*scripts, model=model, **settings) as site:
        with TemporaryDirectory() as folder:
            yield ClaudeCode(Path(folder), str(site.client.base_url), environment or {}), site.upstream


def bodies(upstream: Upstream, wanted: int) -> list[dict[str, Any]]:
    """Return the requests at the model, which are so many."""
    assert len(upstream.posts) == wanted, [roles(post.json) for post in upstream.posts]
    return [post.json for post in upstream.posts]


def roles(body: dict[str, Any]) -> list[str]:
    return [message["role"] for message in body["messages"]]


def offered(body: dict[str, Any]) -> set[str]:
    assert all(tool["type"] == "function" for tool in body["tools"])
    return {tool["function"]["name"] for tool in body["tools"]}


def bash(command: str) -> str:
    return call("Bash", command=command, description="Run it")


def only_text(turn: Turn) -> str:
    ((kind, text),) = turn.steps()
    assert kind == "text", turn
    return text


# What a turn of an agent is


async def a_command_is_run(model: str) -> None:
    """Its thinking block comes back with the gateway's signature, and is reasoning again; nothing is dropped."""
    command = bash("echo 'grüß dich' > made.txt && cat made.txt")
    turns = response_stream("I write it.", command, thought="A file is wanted."), response_stream("It is there.")
    async with claude(*turns, environment=STRICT) as (cli, upstream):
        turn = await cli.run("Make a file.", "--model", model)
        assert turn.steps() == [
            ("thinking", "A file is wanted."),
            ("text", "I write it."),
            ("tool_use", "Bash"),
            ("tool_result", "grüß dich"),
            ("text", "It is there."),
        ], turn
        assert turn.blocks("thinking")[0]["signature"].startswith("gw1."), turn
        assert turn.tokens() == (2 * PROMPT, 2 * COMPLETION), turn
        assert (cli.folder / "made.txt").read_text("utf-8") == "grüß dich\n"
        first, second = bodies(upstream, 2)
        assert TOOLS < offered(first) == offered(second)
        assert roles(first) == ["system", "user", "user"] and roles(second) == [*roles(first), "assistant", "tool"]
        assert first["stream"] and not first["messages"][0]["content"].startswith("x-anthropic-billing-header")
        past, result = second["messages"][-2:]
        assert (past["content"], past["reasoning_content"]) == ("I write it.", "A file is wanted.")
        assert (result["tool_call_id"], result["content"]) == (past["tool_calls"][0]["id"], "grüß dich")


async def a_sealed_thought_comes_back(model: str) -> None:
    """The client holds the signature alone, and the model gets its text back."""
    turns = response_stream("", bash("echo hi"), thought="A secret."), response_stream("Done.")
    async with claude(*turns, model={"reasoning": {"as": "hidden"}}) as (cli, upstream):
        turn = await cli.run("Say hi.", "--model", model)
        assert "secret" not in json.dumps(turn.messages), turn
        _, second = bodies(upstream, 2)
        assert second["messages"][-2]["reasoning_content"] == "A secret."


async def a_file_is_read_and_edited(model: str) -> None:
    new = 'new "line" \\ ü 😀'
    edit = call("Edit", file_path="note.txt", old_string='old "line"', new_string=new)
    async with claude(
        response_stream("", call("Read", file_path="note.txt")), response_stream("", edit), response_stream("Done.")
    ) as (cli, upstream):
        (cli.folder / "note.txt").write_text('old "line"\n', "utf-8")
        turn = await cli.run("Edit the note.", "--model", model)
        assert [step[:2] for step in turn.steps() if step[0] != "tool_result"] == [
            ("tool_use", "Read"),
            ("tool_use", "Edit"),
            ("text", "Done."),
        ], turn
        assert (cli.folder / "note.txt").read_text("utf-8") == new + "\n"
        *_, third = bodies(upstream, 3)
        assert roles(third)[-4:] == ["assistant", "tool", "assistant", "tool"]
        assert 'old "line"' in third["messages"][-3]["content"] and "updated" in third["messages"][-1]["content"]


async def parallel_calls_are_all_run(model: str) -> None:
    """The results come as they end; the model gets them in the order of its calls."""
    calls = bash("sleep 0.4; echo one"), bash("echo two"), call("Read", file_path="note.txt")
    async with claude(response_stream("", *calls), response_stream("Done.")) as (cli, upstream):
        (cli.folder / "note.txt").write_text("three\n", "utf-8")
        turn = await cli.run("Say it.", "--model", model)
        assert [step[0] for step in turn.steps()] == ["tool_use"] * 3 + ["tool_result"] * 3 + ["text"], turn
        _, second = bodies(upstream, 2)
        past, *results = second["messages"][-4:]
        assert [each["id"] for each in past["tool_calls"]] == [result["tool_call_id"] for result in results]
        assert [result["content"].split()[-1] for result in results[:2]] == ["one", "two"], results
        assert "three" in results[2]["content"], results


async def a_call_that_is_wrong_is_reported_to_the_model(model: str) -> None:
    async with claude(response_stream("", call("NoSuchTool"), bash("exit 3")), response_stream("I see.")) as (
        cli,
        upstream,
    ):
        turn = await cli.run("Go wrong.", "--model", model)
        assert turn.steps()[-1] == ("text", "I see."), turn
        _, second = bodies(upstream, 2)
        unknown, failed = (message["content"] for message in second["messages"][-2:])
        assert "NoSuchTool" in unknown and failed.startswith("Error: Exit code 3"), (unknown, failed)


async def a_sub_agent_works(model: str) -> None:
    task = call(
        "Agent", description="Look", prompt="Look around.", subagent_type="general-purpose", run_in_background=False
    )
    async with claude(response_stream("", task), response_stream("I looked around."), response_stream("Done.")) as (
        cli,
        upstream,
    ):
        turn = await cli.run("Have a look.", "--model", model)
        assert turn.steps()[-1] == ("text", "Done."), turn
        first, inner, last = bodies(upstream, 3)
        assert inner["messages"][1]["content"].endswith("Look around.")
        assert "Agent" in offered(inner) < offered(first) == offered(last)
        assert "I looked around." in last["messages"][-1]["content"]


async def a_tool_of_an_mcp_server_is_found_and_called(model: str) -> None:
    """The client loads it by a search: from then on, it is one of the tools."""
    server = {"mcpServers": {"toy": {"command": sys.executable, "args": [str(TOY)]}}}
    search, echo = call("ToolSearch", query="select:mcp__toy__echo"), call("mcp__toy__echo", text="hey")
    async with claude(response_stream("", search), response_stream("", echo), response_stream("Done.")) as (
        cli,
        upstream,
    ):
        turn = await cli.run("Say hey.", "--model", model, "--mcp-config", json.dumps(server))
        assert turn.steps()[-2:] == [("tool_result", [{"type": "text", "text": "Echo: hey"}]), ("text", "Done.")], turn
        first, second, third = bodies(upstream, 3)
        assert offered(second) - offered(first) == {"mcp__toy__echo"} and offered(third) == offered(second)
        assert "mcp__toy__echo" in second["messages"][-1]["content"]
        assert third["messages"][-1]["content"] == "Echo: hey"


async def an_answer_keeps_to_a_schema(model: str) -> None:
    """By a tool with this schema."""
    schema = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
    async with claude(response_stream("", call("StructuredOutput", city="Oslo")), response_stream("Done.")) as (
        cli,
        upstream,
    ):
        turn = await cli.run("Which city?", "--model", model, "--json-schema", json.dumps(schema))
        assert turn.result["structured_output"] == {"city": "Oslo"}, turn.result
        assert "StructuredOutput" in offered(upstream.posts[0].json)


# What becomes of a long conversation


async def a_session_goes_on(model: str) -> None:
    async with claude(response_stream("Hello.", thought="A greeting."), response_stream("Well.")) as (cli, upstream):
        await cli.run("Hello?", "--model", model)
        assert only_text(await cli.run("How are you?", "--model", model, GOES_ON)) == "Well."
        first, second = bodies(upstream, 2)
        assert roles(second) == [*roles(first), "assistant", "user"]
        assert second["messages"][-2]["reasoning_content"] == "A greeting."


async def a_conversation_is_compacted(model: str) -> None:
    async with claude(response_stream("Hello."), response_stream(SUMMARY), response_stream("Done.")) as (cli, upstream):
        await cli.run("Hello?", "--model", model)
        await cli.run("/compact", "--model", model, GOES_ON)
        assert only_text(await cli.run("And now?", "--model", model, GOES_ON)) == "Done."
        first, compact, last = bodies(upstream, 3)
        assert offered(compact) == offered(first) and "TEXT ONLY" in compact["messages"][-1]["content"]
        assert "So far: a greeting." in json.dumps(last["messages"][1:]) and "Hello." not in json.dumps(last)


async def a_prompt_that_is_too_long_is_compacted(model: str) -> None:
    """The words of the error make the client shorten the conversation and ask again."""
    async with claude(
        response_stream("Hello."),
        response_stream("Well."),
        TOO_LONG,
        response_stream(SUMMARY),
        response_stream("Done."),
    ) as (cli, upstream):
        for question in ("Hello?", "How are you?"):
            await cli.run(question, "--model", model, GOES_ON)
        turn = await cli.run("And now?", "--model", model, GOES_ON)
        assert turn.result["result"] == "Done.", turn
        *_, last = bodies(upstream, 5)
        assert "So far: a greeting." in json.dumps(last["messages"][1:])


async def a_full_window_is_compacted(model: str) -> None:
    """The client knows the window from its environment, and the tokens from the usage."""
    window = {"CLAUDE_CODE_MAX_CONTEXT_TOKENS": "32768", "CLAUDE_CODE_MAX_OUTPUT_TOKENS": "4096"}
    turns = response_stream("", bash("echo hi"), prompt=31000), response_stream(SUMMARY), response_stream("Done.")
    async with claude(*turns, environment=window) as (cli, upstream):
        turn = await cli.run("Say hi.", "--model", model)
        assert turn.result["result"] == "Done.", turn
        first, compact, last = bodies(upstream, 3)
        assert first["max_completion_tokens"] == 4096
        assert "TEXT ONLY" in compact["messages"][-1]["content"]
        assert "So far: a greeting." in json.dumps(last["messages"][1:])


async def its_context_is_counted(model: str) -> None:
    """By many counts at a time, which generate nothing."""
    async with claude(response_stream("Hello.")) as (cli, upstream):
        turn = await cli.run("/context", "--model", model)
        assert "Context Usage" in turn.result["result"] and "System prompt" in turn.result["result"], turn
        bodies(upstream, 0)


# What becomes of errors


async def an_overload_is_retried(model: str) -> None:
    async with claude(LOADING, SLOW_DOWN, response_stream("Hello.")) as (cli, upstream):
        assert only_text(await cli.run("Hello?", "--model", model)) == "Hello."
        first, second, third = bodies(upstream, 3)
        assert first == second == third


async def an_error_that_lasts_is_reported(model: str) -> None:
    cases = ((LOADING, 529, "Loading model"), (SLOW_DOWN, 429, "slow down"), (whole({"error": "no"}, 400), 400, "no"))
    for script, status, words in cases:
        async with claude(script, environment={"CLAUDE_CODE_MAX_RETRIES": "0"}) as (cli, _):
            turn = await cli.run("Hello?", "--model", model)
            assert turn.result["is_error"] and turn.result["api_error_status"] == status, turn
            assert words in only_text(turn), turn


async def a_prompt_that_cannot_be_shortened_is_reported(model: str) -> None:
    async with claude(TOO_LONG) as (cli, upstream):
        turn = await cli.run("Hello?", "--model", model)
        assert turn.result["terminal_reason"] == "prompt_too_long", turn.result
        bodies(upstream, 1)


async def an_unknown_model_is_reported(_: str) -> None:
    async with claude(response_stream("Hello.")) as (cli, upstream):
        assert "(nix)" in only_text(await cli.run("Hello?", "--model", "nix"))
        bodies(upstream, 0)


async def a_backend_that_dies_is_retried(model: str) -> None:
    """Without streaming, as the response has begun."""
    dies = [head(), chunk("Hel"), silent(0.5), RESET]
    async with claude(dies, whole(completion_body("Hello."))) as (cli, upstream):
        assert only_text(await cli.run("Hello?", "--model", model)) == "Hello."
        first, second = bodies(upstream, 2)
        assert (first["stream"], second["stream"]) == (True, False)
        assert roles(first) == roles(second)


async def a_response_at_its_limit_is_resumed(model: str) -> None:
    cut = [head(), chunk("Hel"), chunk(finish="length"), DONE, END]
    async with claude(cut, response_stream("lo.")) as (cli, upstream):
        turn = await cli.run("Hello?", "--model", model)
        assert (turn.steps()[0], turn.steps()[-1]) == (("text", "Hel"), ("text", "lo.")), turn
        _, second = bodies(upstream, 2)
        assert roles(second)[-2:] == ["assistant", "user"] and "token limit" in second["messages"][-1]["content"]


async def an_empty_response_is_retried(model: str) -> None:
    async with claude(response_stream(""), response_stream("Hello.")) as (cli, upstream):
        assert only_text(await cli.run("Hello?", "--model", model)) == "Hello."
        bodies(upstream, 2)


async def a_long_silence_is_no_end(model: str) -> None:
    quiet = [head(), chunk("Hel"), silent(1.8), chunk("lo."), chunk(finish="stop"), DONE, END]
    async with claude(quiet, stream={"keepalive_seconds": 0.2}) as (cli, upstream):
        assert only_text(await cli.run("Hello?", "--model", model)) == "Hello."
        bodies(upstream, 1)


async def its_own_names_of_models_are_aliases(_: str) -> None:
    async with claude(response_stream("Hello.")) as (cli, upstream):
        for name in ("opus", "sonnet", "haiku"):
            turn = await cli.run("Hello?", "--model", name)
            assert turn.result["result"] == "Hello.", turn
        assert {body["model"] for body in bodies(upstream, 3)} == {"m"}


if __name__ == "__main__":
    run(
        "Claude Code, a scripted model",
        {},
        [
            a_command_is_run,
            a_sealed_thought_comes_back,
            a_file_is_read_and_edited,
            parallel_calls_are_all_run,
            a_call_that_is_wrong_is_reported_to_the_model,
            a_sub_agent_works,
            a_tool_of_an_mcp_server_is_found_and_called,
            an_answer_keeps_to_a_schema,
            a_session_goes_on,
            a_conversation_is_compacted,
            a_prompt_that_is_too_long_is_compacted,
            a_full_window_is_compacted,
            its_context_is_counted,
            an_overload_is_retried,
            an_error_that_lasts_is_reported,
            a_prompt_that_cannot_be_shortened_is_reported,
            an_unknown_model_is_reported,
            a_backend_that_dies_is_retried,
            a_response_at_its_limit_is_resumed,
            an_empty_response_is_retried,
            a_long_silence_is_no_end,
            its_own_names_of_models_are_aliases,
        ],
        models=("m",),
    )
