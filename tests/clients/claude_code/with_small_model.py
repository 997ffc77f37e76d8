"""Claude Code over the real small model, which learns what to do from the turns before: those have a scripted model.

Its whole prompt is some 12,000 tokens, three times the window of the model, so it begins as `--bare` and with one tool.
"""

from pathlib import Path
from tempfile import TemporaryDirectory

from checks import ROOT_URL, run
from words import FORMAT, call, response_stream

from cli import ClaudeCode, Turn
from support.app import listening

LITTLE = ("--bare", "--tools", "Bash", "--system-prompt", "You run commands.", "--strict-mcp-config")
KEY = {"ANTHROPIC_API_KEY": "none", "CLAUDE_CODE_MAX_OUTPUT_TOKENS": "100"}
LESSONS = ("Rome", "Oslo", "Berlin", "Madrid")


async def an_agent_calls_a_tool(model: str) -> None:
    scripts = [
        script
        for word in LESSONS
        for script in (response_stream("", echo(word)), response_stream(f"The output is {word}."))
    ]
    with TemporaryDirectory() as folder:
        async with listening(*scripts, model=FORMAT | {"aliases": [model]}) as site:
            cli = ClaudeCode(Path(folder), str(site.client.base_url), KEY)
            for number, word in enumerate(LESSONS):
                check(await run_echo(cli, model, word, *(("--continue",) if number else ())), word)
        cli.environment["ANTHROPIC_BASE_URL"] = ROOT_URL
        check(await run_echo(cli, model, "Paris", "--continue"), "Paris")


async def run_echo(cli: ClaudeCode, model: str, word: str, *options: str) -> Turn:
    return await cli.run(f"Run the command echo {word}", "--model", model, *LITTLE, *options)


def echo(word: str) -> str:
    return call("Bash", command=f"echo {word}", description=f"Print {word}")


def check(turn: Turn, word: str) -> None:
    assert turn.steps() == [("tool_use", "Bash"), ("tool_result", word), ("text", f"The output is {word}.")], turn


if __name__ == "__main__":
    run("Claude Code, the real small model", {}, [an_agent_calls_a_tool])
