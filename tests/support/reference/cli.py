"""Generate docs/reference/cli.md from the help of the commands."""

from collections.abc import Iterator

import typer
from typer.testing import CliRunner

from gateway.cli.main import app

_HEAD = """\
# Command line

`gateway COMMAND --help` prints the same on a terminal. `make regenerate` writes this page.
"""


def page() -> str:
    """Return the whole page in Markdown."""
    return "\n".join([_HEAD, *_sections(typer.main.get_command(app), "gateway")])


def _sections(command: typer.core.TyperCommand | typer.core.TyperGroup, *names: str) -> Iterator[str]:
    """Yield the section of a command, then those of its commands."""
    yield from _section(*names)
    for name, inner in getattr(command, "commands", {}).items():
        yield from _sections(inner, *names, name)


def _section(*command: str) -> Iterator[str]:
    shown = CliRunner().invoke(app, [*command[1:], "--help"], prog_name=command[0], terminal_width=100)
    assert shown.exit_code == 0, shown.output
    yield f"## {' '.join(command)}\n\n```text\n{shown.output.strip()}\n```\n"
