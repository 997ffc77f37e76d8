"""Claude Code with a home of its own: it reaches nothing but this machine, and ends in time."""

import json
import sys
from pathlib import Path
from typing import Any, NamedTuple

from claude_environment import environment
from program import ran

(BINARY,) = sys.argv[1:]
TOY = Path(__file__).parents[1] / "codex" / "toy.py"
ALLOWED = "Agent,Bash,Edit,Read,Write,mcp__toy__echo,WebSearch"

Event = dict[str, Any]


class Turn(NamedTuple):
    """The report of a turn: each message, and the result."""

    messages: list[Event]
    result: Event

    def blocks(self, type: str) -> list[dict[str, Any]]:
        """Return the content blocks of a type."""
        return [block for message in self.messages for block in _blocks(message) if block["type"] == type]

    def steps(self) -> list[tuple[str, Any]]:
        """Return what happened, each block by its type and what matters of it."""
        return [(block["type"], _matter(block)) for message in self.messages for block in _blocks(message)]

    def tokens(self) -> tuple[int, int]:
        """Return the tokens in and out of the whole turn."""
        usage = self.result["usage"]
        return usage["input_tokens"] + usage["cache_read_input_tokens"], usage["output_tokens"]


class ClaudeCode:
    """A home with its `environment`, and a `folder` to work in."""

    def __init__(self, folder: Path, url: str, more: dict[str, str]) -> None:
        self.folder, home = folder / "work", folder / "home"
        self.folder.mkdir()
        home.mkdir()
        self.environment = environment(home, url) | more

    async def run(self, question: str, *arguments: str) -> Turn:
        """Ask; the program has to end by itself."""
        _, out, errors = await ran(
            *(BINARY, "-p", question, "--output-format", "stream-json", "--verbose"),
            *("--allowedTools", ALLOWED, *arguments),
            folder=self.folder,
            environment=self.environment,
        )
        events = [json.loads(line) for line in out.splitlines()]
        assert events and events[-1]["type"] == "result", (events, errors)
        return Turn([event for event in events if event["type"] in ("assistant", "user")], events[-1])


def _blocks(event: Event) -> list[dict[str, Any]]:
    content = event["message"]["content"]
    return [{"type": "text", "text": content}] if isinstance(content, str) else content


def _matter(block: dict[str, Any]) -> Any:
    match block["type"]:
        case "tool_use":
            return block["name"]
        case "tool_result":
            return block["content"]
        case kind:
            return block[kind]
