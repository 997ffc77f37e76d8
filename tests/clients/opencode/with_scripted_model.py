"""opencode over a model that says what is written here, as raw text: real turns of an agent, with its real tools.

What opencode tells of a turn shows that the answers were right, and what reached the model that the questions were.
"""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from checks import run
from words import COMPLETION, FORMAT, PROMPT, call, response_stream

from cli import OpenCode, steps_of, token_counts
from support.app import listening
from support.upstream import DONE, END, RESET, Upstream, chunk, head, whole

TOOLS = ["bash", "edit", "glob", "grep", "read", "skill", "task", "todowrite", "webfetch", "write"]


@asynccontextmanager
async def opencode(*scripts: list[Any], api: str = "chat", **settings: Any) -> AsyncIterator[tuple[OpenCode, Upstream]]:
    async with listening(*scripts, model=FORMAT | {"aliases": ["qwen"]}, **settings) as site:
        with TemporaryDirectory() as folder:
            yield OpenCode(Path(folder), f"{site.client.base_url}/v1", api), site.upstream


def bodies(upstream: Upstream, wanted: int) -> list[dict[str, Any]]:
    """What the model was asked, so many times and no more."""
    assert len(upstream.posts) == wanted, [post.json["messages"][-1] for post in upstream.posts]
    return [post.json for post in upstream.posts]


def roles(body: dict[str, Any]) -> list[str]:
    return [message["role"] for message in body["messages"]]


async def a_command_is_run(_: str) -> None:
    await command("chat")


async def a_command_is_run_by_responses(_: str) -> None:
    await command("responses")


async def command(api: str) -> None:
    bash = call("bash", command="echo 'grüß dich' > made.txt && cat made.txt", description="Make it")
    turns = response_stream("I write it.", bash, thought="A file is wanted."), response_stream("It is there.")
    async with opencode(*turns, api=api) as (cli, upstream):
        events = await cli.run("Make a file.")
        assert steps_of(events) == [
            ("reasoning", "A file is wanted."),
            ("text", "I write it."),
            ("bash", "completed", "grüß dich\n"),
            ("text", "It is there."),
        ], events
        assert token_counts(events) == (2 * PROMPT, 2 * COMPLETION), events
        assert (cli.folder / "made.txt").read_text("utf-8") == "grüß dich\n"
        first, second = bodies(upstream, 2)
        assert [tool["function"]["name"] for tool in first["tools"]] == TOOLS and second["tools"] == first["tools"]
        assert roles(first) == ["system", "user"] and roles(second) == [*roles(first), "assistant", "tool"]
        past, result = second["messages"][-2:]
        assert (past["content"], past["reasoning_content"]) == ("I write it.", "A file is wanted.")
        assert (result["tool_call_id"], result["content"]) == (past["tool_calls"][0]["id"], "grüß dich\n")


async def the_settings_of_gateway_launch_are_enough(_: str) -> None:
    """The gateway asks for a key, which the settings name by its variable."""
    async with opencode(response_stream("Hello."), auth={"keys": ["none"]}) as (cli, upstream):
        changes = await cli.launch()
        assert '+  "model": "gateway/m"' in changes and "{env:GATEWAY_KEY}" in changes, changes
        assert steps_of(await cli.run("Hello?")) == [("text", "Hello.")]
        bodies(upstream, 1)


async def calls_at_a_time_are_all_run(_: str) -> None:
    text = 'one "line"\n\\ ü 😀\n'
    both = call("write", filePath="note.txt", content=text), call("bash", command="echo ho", description="Say ho")
    after = call("edit", filePath="note.txt", oldString='"line"', newString="'word'")
    async with opencode(response_stream("", *both), response_stream("", after), response_stream("Done.")) as (
        cli,
        upstream,
    ):
        *ran, last = steps_of(await cli.run("Write a note."))
        assert sorted((tool, status) for tool, status, _ in ran) == [
            (tool, "completed") for tool in ("bash", "edit", "write")
        ], ran
        assert last == ("text", "Done.")
        assert (cli.folder / "note.txt").read_text("utf-8") == text.replace('"line"', "'word'")
        *_, third = bodies(upstream, 3)
        assert roles(third)[2:] == ["assistant", "tool", "tool", "assistant", "tool"]


async def a_call_that_is_wrong_is_reported_to_the_model(_: str) -> None:
    wrong = call("no_such_tool"), call("bash", cmd="echo hi")
    async with opencode(response_stream("", *wrong), response_stream("I see.")) as (cli, upstream):
        events = await cli.run("Go wrong.")
        assert steps_of(events)[-1] == ("text", "I see."), events
        _, second = bodies(upstream, 2)
        unknown, broken = (message["content"] for message in second["messages"][-2:])
        assert "no_such_tool" in unknown and "command" in broken, (unknown, broken)


async def a_session_goes_on(_: str) -> None:
    async with opencode(response_stream("Hello.", thought="A greeting."), response_stream("Well.")) as (cli, upstream):
        assert steps_of(await cli.run("Hello?")) == [("reasoning", "A greeting."), ("text", "Hello.")]
        assert steps_of(await cli.run("--continue", "How are you?")) == [("text", "Well.")]
        _, second = bodies(upstream, 2)
        assert roles(second) == ["system", "user", "assistant", "user"]
        assert second["messages"][2]["reasoning_content"] == "A greeting."


async def a_backend_that_dies_is_retried(_: str) -> None:
    dies = [head(), chunk("Hel"), RESET]
    refuses = whole({"error": "Loading model"}, 503)
    async with opencode(refuses, dies, response_stream("Hello.")) as (cli, upstream):
        events = await cli.run("Hello?")
        assert steps_of(events)[-1] == ("text", "Hello."), events
        first, second, third = bodies(upstream, 3)
        assert first == second == third


async def what_is_cut_is_an_end(_: str) -> None:
    cut = [head(), chunk("Hel"), chunk(finish="length"), DONE, END]
    async with opencode(cut) as (cli, upstream):
        events = await cli.run("Hello?")
        assert steps_of(events) == [("text", "Hel")], events
        bodies(upstream, 1)


async def a_prompt_that_is_too_long_is_made_shorter(_: str) -> None:
    reason = {"message": "the request exceeds the available context size", "type": "exceed_context_size_error"}
    too_long = whole({"error": reason}, 400)
    async with opencode(too_long, response_stream("So far: a greeting."), response_stream("Done.")) as (cli, upstream):
        events = await cli.run("Hello?")
        assert events[0]["error"]["name"] == "ContextOverflowError", events
        assert steps_of(events)[-1] == ("text", "Done."), events
        first, compact, after = bodies(upstream, 3)
        assert "tools" not in compact and after["tools"] == first["tools"]
        assert "So far: a greeting." in json.dumps(after["messages"][1:])


if __name__ == "__main__":
    run(
        "opencode, a scripted model",
        {},
        [
            a_command_is_run,
            a_command_is_run_by_responses,
            the_settings_of_gateway_launch_are_enough,
            calls_at_a_time_are_all_run,
            a_call_that_is_wrong_is_reported_to_the_model,
            a_session_goes_on,
            a_backend_that_dies_is_retried,
            what_is_cut_is_an_end,
            a_prompt_that_is_too_long_is_made_shorter,
        ],
        models=("m",),
    )
