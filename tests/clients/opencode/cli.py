"""opencode with a home of its own: it reaches nothing but this machine, and ends in time."""

import json
import os
import sys
from pathlib import Path
from typing import Any

from pages import CLIENTS_PAGE, pasted
from program import KEY, launched, ran

(BINARY,) = sys.argv[1:]
PACKAGES = {"chat": "@ai-sdk/openai-compatible", "responses": "@ai-sdk/openai"}  # both are part of the program
ALONE = {
    "OPENCODE_DISABLE_MODELS_FETCH": "1",
    "OPENCODE_DISABLE_DEFAULT_PLUGINS": "1",
    "OPENCODE_DISABLE_LSP_DOWNLOAD": "1",
    "HTTP_PROXY": "http://127.0.0.1:9",  # the port that discards; nobody listens there
    "HTTPS_PROXY": "http://127.0.0.1:9",
    "NO_PROXY": "127.0.0.1",
}

Event = dict[str, Any]


class OpenCode:
    """A home, and a `folder` to work in."""

    def __init__(self, folder: Path, url: str, api: str) -> None:
        self.folder, self._home, self._url = folder / "work", folder / "home", url
        self.folder.mkdir()
        self._home.mkdir()
        documented = json.loads(pasted(CLIENTS_PAGE, "opencode", "json", url))
        documented["provider"]["gateway"]["npm"] = PACKAGES[api]
        self._config = documented | {
            "enabled_providers": ["gateway"],
            "permission": "allow",
            "autoupdate": False,
            "share": "disabled",
        }

    async def launch(self) -> str:
        """Take the settings of `gateway launch` for those of the page, and return the changes that it shows."""
        file = self.folder.with_name("opencode.json")
        mine = {key: value for key, value in self._config.items() if key not in ("provider", "model")}
        file.write_text(json.dumps(mine, indent=2), "utf-8")
        command_output = await launched("opencode", self._url, file)
        self._config = json.loads(file.read_text("utf-8"))
        assert self._config.items() > mine.items()
        return command_output

    async def run(self, *arguments: str) -> list[Event]:
        """What it tells of a turn; a title is given, as else the model is asked for one."""
        _, out, errors = await ran(
            *(BINARY, "run", "--format", "json", "--thinking", "--title", "A turn", *arguments),
            folder=self.folder,
            environment=self._environment(),
        )
        assert not errors, errors
        return [json.loads(line) for line in out.splitlines()]

    def _environment(self) -> dict[str, str]:
        config = {"OPENCODE_CONFIG_CONTENT": json.dumps(self._config)}
        return {"PATH": os.environ["PATH"], "HOME": str(self._home), **config, **KEY, **ALONE}


def steps_of(events: list[Event]) -> list[tuple[Any, ...]]:
    """What happened in a turn, each thing by its type and what matters of it."""
    return [_matter(event) for event in events if event["type"] not in ("step_start", "step_finish")]


def _matter(event: Event) -> tuple[Any, ...]:
    match event["type"]:
        case "tool_use":
            state = event["part"]["state"]
            return event["part"]["tool"], state["status"], state.get("output", state.get("error"))
        case "error":
            return "error", event["error"]
        case kind:
            return kind, event["part"]["text"]


def token_counts(events: list[Event]) -> tuple[int, int]:
    """Tokens in and out of the whole turn."""
    steps = [event["part"]["tokens"] for event in events if event["type"] == "step_finish"]
    return sum(step["input"] for step in steps), sum(step["output"] + step["reasoning"] for step in steps)
