"""Load the clients from `clients/`, and fill the gateway's address and a model into their settings.

The files are TOML.  Their strings are Jinja templates with the members of LaunchTarget.  The filter `quote` gives a
string with quotes, which JSON, TOML and YAML all read; the filter `shell` gives a word of a shell.
"""

import json
import shlex
import tomllib
from pathlib import Path
from typing import Literal

import msgspec
from jinja2 import Environment, StrictUndefined
from msgspec import Struct

Api = Literal["chat", "responses", "messages"]
FileFormat = Literal["toml", "json", "yaml"]
KEY_VARIABLE = "GATEWAY_KEY"
KEY_TO_FILL_IN = "YOUR_KEY"  # for files that cannot name a variable
NO_KEY = "none"  # most clients want some key


class LaunchTarget(Struct, frozen=True, kw_only=True):
    """The gateway and the model that a client shall use.

    root: the gateway's URL without a path.
    window: the context length of the model in tokens; None: unknown.
    keyed: the gateway needs an API key, which is in the environment variable GATEWAY_KEY.
    """

    root: str
    model: str
    window: int | None = None
    keyed: bool = False

    @property
    def url(self) -> str:
        """Return the base URL for clients of OpenAI's APIs."""
        return f"{self.root}/v1"


class ClientFile(Struct, frozen=True, forbid_unknown_fields=True):
    """A configuration file of a client.

    folder, name: its usual place.  variable: the environment variable that names another folder.
    entries: a template of the entries that the client needs.
    environment: its member with environment variables, which win over those of the shell.  Such a file is optional.
    """

    folder: str
    name: str
    format: FileFormat
    entries: str
    variable: str = ""
    environment: str = ""

    @property
    def optional(self) -> bool:
        """Return True if the environment variables of the client do the same."""
        return bool(self.environment)


class Client(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A program or library that uses the gateway.

    title: its name, as its makers write it.  tried: the version that was tried.
    thoughts, replay, usage: cells of the page's table: does it show thoughts, send them back, count tokens of streams?
    tools: it needs a model that calls tools.
    prompt_tokens: the length of its own prompt with its tools; 0: unknown or short.
    environment: templates of the environment variables that it needs.
    unset: those that would lead it past the gateway, or send another key.
    setup: templates of a command to run once before.
    command: templates of the command that starts it; empty: it is a library.
    file: its configuration file.
    text: a template of the Markdown about it.
    example: a template of the shortest request, for what is no program to start.
    """

    title: str
    apis: tuple[Api, ...]
    tried: str = ""
    thoughts: str = "–"
    replay: str = "–"
    usage: str = "–"
    tools: bool = False
    prompt_tokens: int = 0
    environment: dict[str, str] = {}
    unset: tuple[str, ...] = ()
    setup: tuple[str, ...] = ()
    command: tuple[str, ...] = ()
    file: ClientFile | None = None
    text: str = ""
    example: str = ""

    def entries_for(self, target: LaunchTarget) -> str:
        """Return the entries for the configuration file; "" without one."""
        return fill_in(self.file.entries, target) if self.file else ""

    def environment_for(self, target: LaunchTarget, key: str) -> dict[str, str]:
        """Return the environment variables that have a value; key: the API key, used if the gateway needs one."""
        values = {name: fill_in(value, target, key) for name, value in self.environment.items()}
        return {name: value for name, value in values.items() if value}

    def command_for(self, target: LaunchTarget) -> list[str]:
        """Return the command that starts the client."""
        return [fill_in(word, target) for word in self.command]

    def setup_for(self, target: LaunchTarget, key: str) -> list[str]:
        """Return the command to run once before; key: as for `environment_for`."""
        return [fill_in(word, target, key) for word in self.setup]

    def example_for(self, target: LaunchTarget) -> str:
        """Return the shortest request; "" for a program, which has a command."""
        return fill_in(self.example, target).strip("\n")

    def text_for(self, target: LaunchTarget) -> str:
        """Return the Markdown about the client."""
        return fill_in(self.text, target)


def fill_in(template: str, target: LaunchTarget, key: str = KEY_TO_FILL_IN) -> str:
    """Return the template with the values of the target; key: the API key, used if the gateway needs one."""
    return _JINJA.from_string(template).render(
        root=target.root,
        url=target.url,
        model=target.model,
        window=target.window,
        keyed=target.keyed,
        key=key if target.keyed else NO_KEY,
    )


def _quote(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def _load() -> dict[str, Client]:
    """Return the clients by their names, in the order of their titles."""
    files = Path(__file__).with_name("clients").glob("*.toml")
    rows = {file.stem: msgspec.convert(tomllib.loads(file.read_text("utf-8")), Client) for file in files}
    return dict(sorted(rows.items(), key=lambda row: row[1].title.lower()))


_JINJA = Environment(undefined=StrictUndefined, keep_trailing_newline=True, trim_blocks=True, lstrip_blocks=True)
_JINJA.filters |= {"quote": _quote, "shell": shlex.quote}
CLIENTS = _load()
