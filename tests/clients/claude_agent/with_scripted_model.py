"""The Claude Agent SDK over a scripted model: the SDK drives the Claude Code that is part of it.

The program ask.py runs in the SDK's environment. Its lines show the responses, and the model has the requests.
"""

from typing import Any

from checks import run
from sdk import ENDED, program
from words import call, response_stream

from support.upstream import Upstream, whole


def last_messages(upstream: Upstream, count: int) -> list[dict[str, Any]]:
    return upstream.posts[-1].json["messages"][-count:]


async def a_command_is_run(_: str) -> None:
    bash = call("Bash", command="echo hi > made.txt && cat made.txt", description="Make it")
    async with program(response_stream("I write it.", bash, thought="A file is wanted."), response_stream("Done.")) as (
        sdk,
        upstream,
    ):
        assert await sdk.ask("Make a file.") == [
            ["thinking", "A file is wanted.", "gw1."],
            ["text", "I write it."],
            ["tool_use", "Bash"],
            ["text", "Done."],
            ENDED,
        ]
        assert (sdk.folder / "made.txt").read_text("utf-8") == "hi\n"
        past, result = last_messages(upstream, 2)
        assert (past["content"], past["reasoning_content"], result["content"]) == (
            "I write it.",
            "A file is wanted.",
            "hi",
        )


async def a_tool_of_the_program_is_called(_: str) -> None:
    async with program(response_stream("", call("mcp__own__echo", text="hey")), response_stream("Done.")) as (
        sdk,
        upstream,
    ):
        assert await sdk.ask("Say hey.") == [["tool_use", "mcp__own__echo"], ["text", "Done."], ENDED]
        assert last_messages(upstream, 1)[0]["content"] == "Echo: hey"


async def a_session_goes_on(_: str) -> None:
    async with program(response_stream("Hello.", thought="A greeting."), response_stream("Well.")) as (sdk, upstream):
        lines = await sdk.ask("Hello?", "How are you?")
        assert lines == [["thinking", "A greeting.", "gw1."], ["text", "Hello."], ENDED, ["text", "Well."], ENDED], (
            lines
        )
        assert [message["role"] for message in last_messages(upstream, 2)] == ["assistant", "user"]
        assert last_messages(upstream, 2)[0]["reasoning_content"] == "A greeting."


async def an_answer_keeps_to_a_schema(_: str) -> None:
    schema = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
    async with program(response_stream("", call("StructuredOutput", city="Oslo")), response_stream("Done.")) as (
        sdk,
        _,
    ):
        lines = await sdk.ask("Which city?", output_format={"type": "json_schema", "schema": schema})
        assert lines[-1] == ["result", "success", False, {"city": "Oslo"}], lines


async def an_error_that_lasts_is_reported(_: str) -> None:
    async with program(whole({"error": "Loading model"}, 503)) as (sdk, _):
        (kind, text), (*_, is_error, _) = await sdk.ask("Hello?")
        assert kind == "text" and "529 Loading model" in text and is_error, text


if __name__ == "__main__":
    run(
        "Claude Agent SDK, a scripted model",
        {},
        [
            a_command_is_run,
            a_tool_of_the_program_is_called,
            a_session_goes_on,
            an_answer_keeps_to_a_schema,
            an_error_that_lasts_is_reported,
        ],
        models=("m",),
    )
