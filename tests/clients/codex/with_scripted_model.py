"""Codex CLI over a model that says what is written here, as raw text: real turns of an agent, with its real tools.

What Codex tells of a turn shows that the answers were right, and what reached the model that the questions were.
"""

import json
from base64 import b64decode
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from checks import run
from words import COMPLETION, FORMAT, PROMPT, call, response_stream

from cli import Codex, steps_of, token_counts
from support.app import listening
from support.upstream import DONE, END, RESET, Upstream, chunk, head, silent, whole

PLAIN = "m"  # a name that Codex does not know; for the others it has tools of another kind
NAMES = {"aliases": ["gpt-5.5", "gpt-6-sol"]}
PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
AGENTS = ("close_agent", "resume_agent", "send_input", "spawn_agent", "wait_agent")
RESOURCES = ("list_mcp_resources", "list_mcp_resource_templates", "read_mcp_resource")
GOALS = ("get_goal", "create_goal", "update_goal")
WEBSOCKET = "-c", "model_providers.gateway.supports_websockets=true"
COMMANDS = ("exec_command", "write_stdin")
TOOLS = [
    *COMMANDS, *RESOURCES, "request_user_input", "view_image",
    *(f"multi_agent_v1__{name}" for name in AGENTS), "mcp__toy__echo", *GOALS,
]  # fmt: skip


# What the model got


def outline(body: dict[str, Any]) -> list[str]:
    """Who says what in a conversation: the role of each message, and what it calls."""
    return [" ".join([message["role"], *tool_names(message)]) for message in body["messages"]]


def tool_names(message: dict[str, Any]) -> Iterator[str]:
    return (each["function"]["name"] for each in message.get("tool_calls", ()))


def offered(body: dict[str, Any]) -> list[str]:
    assert all(tool["type"] == "function" for tool in body["tools"])
    return [tool["function"]["name"] for tool in body["tools"]]


@asynccontextmanager
async def codex(*scripts: list[Any], **settings: Any) -> AsyncIterator[tuple[Codex, Upstream]]:
    model = FORMAT | NAMES | settings.pop("model", {})
    async with listening(*scripts, model=model, **settings) as site:
        with TemporaryDirectory() as folder:
            yield Codex(Path(folder), f"{site.client.base_url}/v1"), site.upstream


def bodies(upstream: Upstream, wanted: int) -> list[dict[str, Any]]:
    """What the model was asked, so many times and no more."""
    assert len(upstream.posts) == wanted, [outline(post.json) for post in upstream.posts]
    return [post.json for post in upstream.posts]


# What a turn of an agent is


async def a_command_is_run(model: str) -> None:
    command = call("exec_command", cmd="echo 'grüß dich' > made.txt && cat made.txt")
    turns = response_stream("I write it.", command, thought="A file is wanted."), response_stream("It is there.")
    async with codex(*turns) as (cli, upstream):
        events = await cli.exec("-m", model, "Make a file.")
        assert steps_of(events) == [
            ("reasoning", "A file is wanted."),
            ("agent_message", "I write it."),
            ("command_execution", "grüß dich\n", 0),
            ("agent_message", "It is there."),
        ]
        assert token_counts(events) == (2 * PROMPT, 2 * COMPLETION)
        assert (cli.folder / "made.txt").read_text("utf-8") == "grüß dich\n"
        first, second = bodies(upstream, 2)
        assert offered(first) == offered(second) == TOOLS
        assert outline(first) == ["system", "user", "user"]
        assert outline(second) == [*outline(first), "assistant exec_command", "tool"]
        assert (first["stream"], first["parallel_tool_calls"]) == (True, True)
        assert first["messages"][-1]["content"] == "Make a file."
        past, result = second["messages"][-2:]
        assert (past["content"], past["reasoning_content"]) == ("I write it.", "A file is wanted.")
        assert result["tool_call_id"] == past["tool_calls"][0]["id"] and "grüß dich" in result["content"]


async def the_settings_of_gateway_launch_are_enough(_: str) -> None:
    """The MCP server of the file stays, the gateway asks for a key, and no option names the model."""
    turns = response_stream("", call("mcp__toy__echo", text="hey")), response_stream("Done.")
    async with codex(*turns, auth={"keys": ["none"]}) as (cli, upstream):
        changes = await cli.launch()
        assert '+model = "m"\n' in changes and '+env_key = "GATEWAY_KEY"\n' in changes, changes
        steps = steps_of(await cli.exec("Say it."))
        assert steps == [("mcp_tool_call", ("toy", "echo"), "Echo: hey"), ("agent_message", "Done.")], steps
        bodies(upstream, 2)


async def calls_at_a_time_are_all_run(model: str) -> None:
    """One of them is a tool of an MCP server, which Codex offers in a namespace."""
    both = call("mcp__toy__echo", text="hey"), call("exec_command", cmd="echo ho")
    async with codex(response_stream("", *both), response_stream("Done.")) as (cli, upstream):
        events = await cli.exec("-m", model, "Say it twice.")
        *run, last = steps_of(events)
        assert sorted(run) == [("command_execution", "ho\n", 0), ("mcp_tool_call", ("toy", "echo"), "Echo: hey")]
        assert last == ("agent_message", "Done.")
        _, second = bodies(upstream, 2)
        assert outline(second)[3:] == ["assistant mcp__toy__echo exec_command", "tool", "tool"]
        results = [message["content"] for message in second["messages"][-2:]]
        assert "Echo: hey" in results[0] and "ho" in results[1]


async def a_file_is_edited_by_a_patch(_: str) -> None:
    patch = '*** Begin Patch\n*** Update File: note.txt\n@@\n-old "line"\n+new "line" \\ ü 😀\n*** End Patch'
    async with codex(response_stream("", call("apply_patch", input=patch)), response_stream("Edited.")) as (
        cli,
        upstream,
    ):
        (cli.folder / "note.txt").write_text('old "line"\n', "utf-8")
        events = await cli.exec("-m", "gpt-5.5", "Edit the note.")
        assert steps_of(events) == [("file_change", "completed", "update"), ("agent_message", "Edited.")]
        assert (cli.folder / "note.txt").read_text("utf-8") == 'new "line" \\ ü 😀\n'
        first, second = bodies(upstream, 2)
        assert {"apply_patch", "tool_search"} < {*offered(first)}
        past, result = second["messages"][-2:]
        assert json.loads(past["tool_calls"][0]["function"]["arguments"]) == {"input": patch}
        assert "Success" in result["content"]


async def a_tool_is_searched_for_and_called(_: str) -> None:
    """What a search has found can be called from then on, though the list of tools stays as it was."""
    turns = (
        response_stream("", call("tool_search", query="echo")),
        response_stream("", call("mcp__toy__echo", text="hey")),
        response_stream("Done."),
    )
    async with codex(*turns) as (cli, upstream):
        events = await cli.exec("-m", "gpt-5.5", "Find a tool.")
        assert steps_of(events) == [("mcp_tool_call", ("toy", "echo"), "Echo: hey"), ("agent_message", "Done.")]
        first, second, third = bodies(upstream, 3)
        assert "mcp__toy__echo" not in offered(first)
        assert "mcp__toy__echo" in offered(second) and offered(second) == offered(third)
        assert outline(third)[3:] == ["assistant tool_search", "tool", "assistant mcp__toy__echo", "tool"]


async def a_script_is_run(_: str) -> None:
    """For some models all tools stand in the input, and the one that matters is a custom tool in a namespace."""
    script = "const made = await tools.exec_command({cmd: 'echo hi > made.txt && echo ho'});\ntext(made.output);"
    async with codex(response_stream("", call("functions__exec", input=script)), response_stream("Done.")) as (
        cli,
        upstream,
    ):
        events = await cli.exec("-m", "gpt-6-sol", "Run a script.")
        assert steps_of(events) == [("command_execution", "ho\n", 0), ("agent_message", "Done.")]
        assert (cli.folder / "made.txt").read_text("utf-8") == "hi\n"
        first, second = bodies(upstream, 2)
        assert "functions__exec" in offered(first) and offered(first) == offered(second)
        assert outline(second)[-2:] == ["assistant functions__exec", "tool"]


async def a_call_that_is_wrong_is_reported_to_the_model(model: str) -> None:
    wrong = call("no_such_tool"), '<tool_call>\n{"name": "exec_command", "arguments": {}}\n</tool_call>'
    async with codex(response_stream("", *wrong), response_stream("I see.")) as (cli, upstream):
        events = await cli.exec("-m", model, "Go wrong.")
        assert steps_of(events)[-1] == ("agent_message", "I see.")
        _, second = bodies(upstream, 2)
        unknown, broken = (message["content"] for message in second["messages"][-2:])
        assert "unsupported call" in unknown and "cmd" in broken


async def images_are_seen(model: str) -> None:
    async with codex(response_stream("", call("view_image", path="pixel.png")), response_stream("It is green.")) as (
        cli,
        upstream,
    ):
        (cli.folder / "pixel.png").write_bytes(b64decode(PIXEL))
        events = await cli.exec("-m", model, "-i", "pixel.png", "--", "What is this?")
        assert steps_of(events)[-1] == ("agent_message", "It is green.")
        first, second = bodies(upstream, 2)
        assert images(first["messages"][-1]) == [f"data:image/png;base64,{PIXEL}"]
        assert outline(second)[3:] == ["assistant view_image", "tool", "user"]
        assert images(second["messages"][-1]) == [f"data:image/png;base64,{PIXEL}"]


def images(message: dict[str, Any]) -> list[str]:
    return [part["image_url"]["url"] for part in message["content"] if part["type"] == "image_url"]


async def an_answer_keeps_to_a_schema(model: str) -> None:
    schema = {
        "type": "object",
        "properties": {"city": {"type": "string"}},
        "required": ["city"],
        "additionalProperties": False,
    }
    async with codex(response_stream('{"city": "Oslo"}')) as (cli, upstream):
        (cli.folder / "schema.json").write_text(json.dumps(schema), "utf-8")
        await cli.exec("-m", model, "--output-schema", "schema.json", "-o", "answer.json", "Which city?")
        assert json.loads((cli.folder / "answer.json").read_text("utf-8")) == {"city": "Oslo"}
        (body,) = bodies(upstream, 1)
        response_format = body["response_format"]
        assert (response_format["type"], response_format["json_schema"]["schema"]) == ("json_schema", schema)


async def a_long_conversation_is_made_shorter(model: str) -> None:
    turns = (
        response_stream("", call("exec_command", cmd="echo hi"), prompt=30000),
        response_stream("So far: hi."),
        response_stream("Done."),
    )
    async with codex(*turns) as (cli, upstream):
        events = await cli.exec("-m", model, "-c", "model_auto_compact_token_limit=20000", "Say hi.")
        assert steps_of(events) == [("command_execution", "hi\n", 0), ("agent_message", "Done.")]
        first, compact, after = bodies(upstream, 3)
        assert not compact.keys() & {"tools", "tool_choice", "parallel_tool_calls"}
        assert outline(compact) == ["system", "user", "user", "assistant exec_command", "tool", "user"]
        assert outline(after) == ["system", "user", "user", "user"] and offered(after) == offered(first)
        assert "So far: hi." in after["messages"][-1]["content"]


async def a_thought_comes_back_sealed(model: str) -> None:
    """Nobody but the gateway can read it, and the model gets it back: after a tool's result, not in another turn."""
    turns = (
        response_stream("", call("exec_command", cmd="echo hi"), thought="A secret."),
        response_stream("Done."),
        response_stream("Again."),
    )
    async with codex(*turns, model={"reasoning": {"as": "hidden"}}) as (cli, upstream):
        assert steps_of(await cli.exec("-m", model, "Say hi.")) == [
            ("command_execution", "hi\n", 0),
            ("agent_message", "Done."),
        ]
        (thought,) = cli.kept("reasoning")
        assert thought["summary"] == [] and thought["encrypted_content"].startswith("gw1.")
        assert "secret" not in json.dumps(thought)
        assert steps_of(await cli.exec("resume", "--last", "-m", model, "And now?")) == [("agent_message", "Again.")]
        _, second, third = bodies(upstream, 3)
        assert second["messages"][-2]["reasoning_content"] == "A secret."
        assert outline(third) == [*outline(second), "assistant", "user"]
        assert not any("reasoning_content" in message for message in third["messages"])


async def a_backend_that_dies_is_retried(model: str) -> None:
    """Codex keeps what it got before the end, so this is then part of the conversation."""
    dies = [head(), chunk("Hel"), RESET]
    refuses = whole({"error": "Loading model"}, 503)
    async with codex(refuses, dies, response_stream("Hello.")) as (cli, upstream):
        events = await cli.exec("-m", model, "Hello?")
        assert steps_of(events) == [("agent_message", "Hel"), ("agent_message", "Hello.")]
        first, second, third = bodies(upstream, 3)
        assert first == second and outline(third) == [*outline(first), "assistant"]
        assert third["messages"][-1]["content"] == "Hel"


async def a_long_silence_is_no_end(model: str) -> None:
    quiet = [head(), chunk("Hel"), silent(1.8), chunk("lo."), chunk(finish="stop"), DONE, END]
    patience = "-c", "model_providers.gateway.stream_idle_timeout_ms=600"
    async with codex(quiet, stream={"keepalive_seconds": 0.2}) as (cli, upstream):
        assert steps_of(await cli.exec("-m", model, *patience, "Hello?")) == [("agent_message", "Hello.")]
        bodies(upstream, 1)


async def what_can_not_be_answered_is_not_retried(model: str) -> None:
    too_long = whole(
        {"error": {"message": "the request exceeds the available context size", "type": "exceed_context_size_error"}},
        400,
    )
    cut = [head(), chunk("Hel"), chunk(finish="length"), DONE, END]
    for script, reason in ((too_long, "context"), (cut, "max_output_tokens")):
        async with codex(script) as (cli, upstream):
            status, events, _ = await cli.run("-m", model, "Hello?")
            assert status == 1 and events[-1]["type"] == "turn.failed"
            assert reason in events[-1]["error"]["message"]
            bodies(upstream, 1)


async def over_a_websocket_it_sends_what_is_new(model: str) -> None:
    """It shows the model its prompt before there is a question; the model gets all of the past in each turn."""
    turns = response_stream("", call("exec_command", cmd="echo hey"), thought="I say hey."), response_stream("Said.")
    async with codex(response_stream("Well,"), *turns) as (cli, upstream):
        events = await cli.exec("-m", model, *WEBSOCKET, "Say hey.")
        assert steps_of(events) == [
            ("reasoning", "I say hey."),
            ("command_execution", "hey\n", 0),
            ("agent_message", "Said."),
        ]
        assert token_counts(events) == (2 * PROMPT, 2 * COMPLETION)
        shown, first, second = bodies(upstream, 3)
        assert outline(shown) == ["system"] and shown["max_completion_tokens"] == 1
        assert offered(shown) == offered(first) == offered(second) == TOOLS
        assert outline(first) == ["system", "user", "user"]
        assert outline(second) == [*outline(first), "assistant exec_command", "tool"]
        assert second["messages"][-2]["reasoning_content"] == "I say hey."


async def over_a_websocket_a_backend_that_fails_is_retried(model: str) -> None:
    refuses = whole({"error": "Loading model"}, 503)
    async with codex(response_stream("Well,"), refuses, response_stream("Hello.")) as (cli, upstream):
        assert steps_of(await cli.exec("-m", model, *WEBSOCKET, "Hello?")) == [("agent_message", "Hello.")]
        _, first, again = bodies(upstream, 3)
        assert first == again


async def without_websockets_it_goes_on_with_http(model: str) -> None:
    async with codex(response_stream("Hello."), responses={"websocket": False}) as (cli, upstream):
        assert steps_of(await cli.exec("-m", model, *WEBSOCKET, "Hello?")) == [("agent_message", "Hello.")]
        bodies(upstream, 1)


if __name__ == "__main__":
    run(
        "codex, a scripted model",
        {},
        [
            a_command_is_run,
            the_settings_of_gateway_launch_are_enough,
            calls_at_a_time_are_all_run,
            a_file_is_edited_by_a_patch,
            a_tool_is_searched_for_and_called,
            a_script_is_run,
            a_call_that_is_wrong_is_reported_to_the_model,
            images_are_seen,
            an_answer_keeps_to_a_schema,
            a_long_conversation_is_made_shorter,
            a_thought_comes_back_sealed,
            a_backend_that_dies_is_retried,
            a_long_silence_is_no_end,
            what_can_not_be_answered_is_not_retried,
            over_a_websocket_it_sends_what_is_new,
            over_a_websocket_a_backend_that_fails_is_retried,
            without_websockets_it_goes_on_with_http,
        ],
        models=(PLAIN,),
    )
