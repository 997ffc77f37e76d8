"""The Claude Agent SDK over a backend that speaks its own API: signatures are the backend's."""

from checks import run
from messages_words import BACKEND, MODEL, bodies, response_stream
from sdk import ENDED, program

from support.anthropic_server import text, thinking, tool_use

THOUGHT = thinking("A file is wanted.")


async def a_command_is_run(_: str) -> None:
    bash = tool_use("Bash", command="echo hi > made.txt && cat made.txt", description="Make it")
    turns = response_stream(THOUGHT, text("I write it."), bash), response_stream(text("Done."))
    async with program(*turns, backend=BACKEND, model={"upstream_model": MODEL}) as (sdk, upstream):
        assert await sdk.ask("Make a file.") == [
            ["thinking", THOUGHT["thinking"], THOUGHT["signature"]],
            ["text", "I write it."],
            ["tool_use", "Bash"],
            ["text", "Done."],
            ENDED,
        ]
        assert (sdk.folder / "made.txt").read_text("utf-8") == "hi\n"
        _, second = bodies(upstream, 2)
        past, result = second["messages"][-2:]
        assert THOUGHT in past["content"] and result["content"][0]["tool_use_id"] == bash["id"]


async def a_tool_of_the_program_is_called(_: str) -> None:
    turns = response_stream(tool_use("mcp__own__echo", text="hey")), response_stream(text("Done."))
    async with program(*turns, backend=BACKEND, model={"upstream_model": MODEL}) as (sdk, upstream):
        assert await sdk.ask("Say hey.") == [["tool_use", "mcp__own__echo"], ["text", "Done."], ENDED]
        _, second = bodies(upstream, 2)
        (result,) = second["messages"][-1]["content"]
        assert result["content"] == [{"type": "text", "text": "Echo: hey"}], result


if __name__ == "__main__":
    run(
        "Claude Agent SDK, a model behind its own API",
        {},
        [a_command_is_run, a_tool_of_the_program_is_called],
        models=("m",),
    )
