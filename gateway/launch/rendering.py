"""Render what a client needs as text for a terminal or a page."""

import re
import shlex
from collections.abc import Iterator, Mapping
from difflib import unified_diff

from gateway.launch.client import KEY_VARIABLE, Client, LaunchTarget

_KEY = f"${KEY_VARIABLE}"  # for the shell to fill in
_SECRET = re.compile(
    r"""(?P<name>[\w.-]*(?:key|token|secret|password)[\w.-]*["']?\s*[:=]\s*["']?)(?P<value>[^"'\s,]+)""", re.IGNORECASE
)


def shell_lines(client: Client, target: LaunchTarget) -> list[str]:
    """Return the lines for a shell that unset and set variables, run the set-up and start the client.

    An API key is a reference to its variable.
    """
    lines = [" ".join(("unset", *client.unset))] if client.unset else []
    lines += [
        f"export {name}={_word(value)}"
        for name, value in client.environment_for(target, _KEY).items()
        if (name, value) != (KEY_VARIABLE, _KEY)
    ]
    commands = client.setup_for(target, _KEY), client.command_for(target)
    return lines + [" ".join(map(_word, words)) for words in commands if words]


def _word(text: str) -> str:
    return f'"{_KEY}"' if text == _KEY else shlex.quote(text)


def render_needs(client: Client) -> str:
    """Return a sentence about the model that the client needs; "" if it needs no certain one."""
    needs = ["a model that calls tools"] if client.tools else []
    if client.prompt_tokens:
        needs.append(f"room for its own prompt of about {client.prompt_tokens:,} tokens")
    return f"{client.title} needs {', and '.join(needs)}." if needs else ""


def render_diff(path: str, before: str, after: str, shown: str) -> str:
    """Return the changes of a file as a unified diff.

    Values of keys, tokens, secrets and passwords are hidden unless the text `shown` has them.
    """
    name = path if before else "/dev/null"
    lines = unified_diff(before.splitlines(), after.splitlines(), name, path, lineterm="")

    def hide(match: re.Match[str]) -> str:
        return match[0] if match["value"] in shown else f"{match['name']}…"

    return "".join(f"{_SECRET.sub(hide, line)}\n" for line in lines)


def render_list(clients: Mapping[str, Client]) -> str:
    """Return a table of all clients: name, title, APIs."""
    rows = [("NAME", "CLIENT", "APIS"), *((name, one.title, ", ".join(one.apis)) for name, one in clients.items())]
    widths = [max(map(len, column)) + 2 for column in zip(*rows, strict=True)]
    return "\n".join(_padded(row, widths) for row in rows)


def _padded(row: tuple[str, ...], widths: list[int]) -> str:
    return "".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()


def render_settings(name: str, client: Client, target: LaunchTarget, file: str) -> Iterator[str]:
    """Yield the paragraphs that say how to use the client; file: the path of its configuration file."""
    yield f"# {client.title} at {target.root} with the model {target.model}"
    if entries := client.entries_for(target):
        either = " (or set the variables below)" if client.environment and client.file and client.file.optional else ""
        yield f"# Add this to {file}{either}; `gateway launch {name} --write` does it:"
        yield entries.strip("\n")
    if lines := shell_lines(client, target):
        yield "# In a shell:"
        yield "\n".join(lines)
    if needs := render_needs(client):
        yield needs
    if about := client.text_for(target).strip("\n"):
        yield about
