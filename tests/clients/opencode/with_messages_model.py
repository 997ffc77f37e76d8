"""opencode over a backend that speaks the Messages API, by each of the two APIs that it has for this gateway."""

from pathlib import Path
from tempfile import TemporaryDirectory

from checks import run
from messages_words import BACKEND, COMPLETION, MODEL, PROMPT, bodies, response_stream

from cli import OpenCode, steps_of
from support.anthropic_server import text, thinking, tool_use
from support.app import listening

THOUGHT = thinking("A file is wanted.")
BASH = tool_use("bash", command="echo 'grüß dich' > made.txt && cat made.txt", description="Make it")


async def a_command_is_run(_: str) -> None:
    await command("chat")


async def a_command_is_run_by_responses(_: str) -> None:
    """The thought goes back with its signature."""
    past = await command("responses")
    assert past[0] == THOUGHT, past


async def command(api: str) -> list[dict[str, object]]:
    """Run a turn with a command, and return the blocks of the past message in the second request."""
    turns = response_stream(THOUGHT, text("I write it."), BASH), response_stream(text("It is there."))
    model = {"upstream_model": MODEL, "aliases": ["qwen"]}
    async with listening(*turns, backend=BACKEND, model=model) as site:
        with TemporaryDirectory() as folder:
            cli = OpenCode(Path(folder), f"{site.client.base_url}/v1", api)
            events = await cli.run("Make a file.")
            assert (cli.folder / "made.txt").read_text("utf-8") == "grüß dich\n"
        assert steps_of(events) == [
            ("reasoning", "A file is wanted."),
            ("text", "I write it."),
            ("bash", "completed", "grüß dich\n"),
            ("text", "It is there."),
        ], events
        ends = [event["part"]["tokens"] for event in events if event["type"] == "step_finish"]
        assert [tokens["total"] for tokens in ends] == [PROMPT + COMPLETION] * 2, ends  # cached ones among them
        _, second = bodies(site.upstream, 2)
    past, result = second["messages"][-2:]
    assert [block["type"] for block in past["content"]][-2:] == ["text", "tool_use"], past
    assert result["content"][0]["tool_use_id"] == BASH["id"], result
    return past["content"]


if __name__ == "__main__":
    run(
        "opencode, a model behind the Messages API",
        {},
        [a_command_is_run, a_command_is_run_by_responses],
        models=("m",),
    )
