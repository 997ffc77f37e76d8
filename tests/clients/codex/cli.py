"""Codex CLI with a home of its own: it reaches nothing but this machine, and ends in time."""

import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pages import CLIENTS_PAGE, pasted
from program import KEY, launched, ran

BINARY = sys.argv[1:]  # Node, and the script that starts Codex
CONFIG = """
check_for_update_on_startup = false
{documented}
[analytics]
enabled = false

[mcp_servers.toy]
command = "{python}"
args = ["{toy}"]
"""
NOWHERE = "http://127.0.0.1:9"  # the port that discards; nobody listens there

Event = dict[str, Any]


class Codex:
    """A home, and a `folder` to work in."""

    def __init__(self, folder: Path, url: str) -> None:
        self.folder, self._home, self._url = folder / "work", folder / "home", url
        self.folder.mkdir()
        self._home.mkdir()
        documented = pasted(CLIENTS_PAGE, "Codex", "toml", url)
        (self._home / "config.toml").write_text(_config(documented), "utf-8")

    async def launch(self) -> str:
        """Take the settings of `gateway launch` for those of the page, and return the changes that it shows."""
        file = self._home / "config.toml"
        file.write_text(_config("# mine"), "utf-8")
        return await launched("codex", self._url, file)

    async def exec(self, *arguments: str) -> list[Event]:
        """What it tells of a turn, from its beginning; the turn has to end well."""
        status, events, errors = await self.run(*arguments)
        assert status == 0, (events, errors)
        return events

    async def run(self, *arguments: str) -> tuple[int, list[Event], str]:
        """The same of any turn, with the program's status and what it complained of."""
        status, out, errors = await ran(
            *(*BINARY, "exec", "--json", "--strict-config", "--skip-git-repo-check"),
            *("--dangerously-bypass-approvals-and-sandbox", *arguments),
            folder=self.folder,
            environment=self._environment(),
        )
        events = [json.loads(line) for line in out.splitlines()]
        begun = [number for number, event in enumerate(events) if event["type"] == "turn.started"]
        return status, events[begun[0] + 1 :] if begun else events, errors

    def _environment(self) -> dict[str, str]:
        home = {"HOME": str(self._home), "CODEX_HOME": str(self._home), **KEY}
        away = {"HTTP_PROXY": NOWHERE, "HTTPS_PROXY": NOWHERE, "NO_PROXY": "127.0.0.1"}
        return {"PATH": os.environ["PATH"], **home, **away}

    def kept(self, kind: str) -> list[dict[str, Any]]:
        """The items of one type that it keeps of its conversations, as they came."""
        return [item for item in self._items() if item.get("type") == kind]

    def _items(self) -> Iterator[dict[str, Any]]:
        for path in sorted(self._home.glob("sessions/**/*.jsonl")):
            for line in path.read_text("utf-8").splitlines():
                kept = json.loads(line)
                if kept["type"] == "response_item":
                    yield kept["payload"]


def _config(documented: str) -> str:
    return CONFIG.format(documented=documented, python=sys.executable, toy=Path(__file__).with_name("toy.py"))


def steps_of(events: list[Event]) -> list[tuple[Any, ...]]:
    """What happened in a turn, each thing by its type and what matters of it."""
    items = [event["item"] for event in events if event["type"] == "item.completed"]
    return [(item["type"], *_matter(item)) for item in items]


def _matter(item: dict[str, Any]) -> Iterator[Any]:
    match item["type"]:
        case "command_execution":
            yield from (item["aggregated_output"], item["exit_code"])
        case "mcp_tool_call":
            yield from ((item["server"], item["tool"]), item["result"]["content"][0]["text"])
        case "file_change":
            yield from (item["status"], *(change["kind"] for change in item["changes"]))
        case _:
            yield item.get("text", item)


def token_counts(events: list[Event]) -> tuple[int, int]:
    """Tokens in and out of the whole turn."""
    (usage,) = (event["usage"] for event in events if event["type"] == "turn.completed")
    return usage["input_tokens"], usage["output_tokens"]
