"""Codex CLI over the real small model, which learns what to do from the turns before: those have a scripted model.

It is far too small for Codex' own instructions and all of its tools, so it gets few of them.
"""

from pathlib import Path
from tempfile import TemporaryDirectory

from checks import BASE_URL, run
from words import FORMAT, call, response_stream

from cli import Codex, steps_of
from support.app import listening

LITTLE = (
    'web_search="disabled"',
    "include_permissions_instructions=false",
    "include_apps_instructions=false",
    "include_environment_context=false",
    "skills.include_instructions=false",
    "agents.enabled=false",
    "features.goals=false",
    "mcp_servers.toy.enabled=false",
)
LESSONS = ("Rome", "Oslo", "Berlin", "Madrid")


async def an_agent_calls_a_tool(model: str) -> None:
    scripts = [
        script
        for word in LESSONS
        for script in (response_stream("", echo(word)), response_stream(f"The output is {word}."))
    ]
    with TemporaryDirectory() as folder:
        async with listening(*scripts, model=FORMAT | {"aliases": [model]}) as site:
            cli = Codex(Path(folder), f"{site.client.base_url}/v1")
            instructions = cli.folder / "instructions.md"
            instructions.write_text("You run commands.", "utf-8")
            options = "-m", model, *given(*LITTLE, f'model_instructions_file="{instructions}"')
            for number, word in enumerate(LESSONS):
                before = ("resume", "--last") if number else ()
                assert steps_of(await cli.exec(*before, *options, f"Run the command echo {word}")) == expected(word)
        there = given(f'model_providers.gateway.base_url="{BASE_URL}"')
        events = await cli.exec("resume", "--last", *options, *there, "Run the command echo Paris")
        assert steps_of(events) == expected("Paris"), steps_of(events)


def echo(word: str) -> str:
    return call("exec_command", cmd=f"echo {word}")


def expected(word: str) -> list[tuple[object, ...]]:
    return [("command_execution", f"{word}\n", 0), ("agent_message", f"The output is {word}.")]


def given(*settings: str) -> list[str]:
    return [option for setting in settings for option in ("-c", setting)]


if __name__ == "__main__":
    run("codex, the real small model", {}, [an_agent_calls_a_tool])
