"""The model of a reader that has Ollama: it lists the files if it may, and then says what they are."""

from typing import Any

from support.ollama import Ollama, Turn, calls, content_line

FILES = {
    "exec_command": {"cmd": "ls"},  # Codex
    "Bash": {"command": "ls", "description": "List the files"},  # Claude Code
}
FINAL_TEXT = "It is a gateway."


class Lister(Ollama):
    """An Ollama whose model calls a tool for commands, if there is one, and responds to the result."""

    def _turn(self, body: dict[str, Any]) -> Turn:
        self.check(body)
        offered = {tool["function"]["name"] for tool in body.get("tools", ())} & FILES.keys()
        self.seen = body["messages"]
        if offered and self.seen[-1]["role"] != "tool":
            (name,) = offered
            return Turn([calls((name, FILES[name]))])
        return Turn([content_line(FINAL_TEXT)])
