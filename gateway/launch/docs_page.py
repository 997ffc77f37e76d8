"""Generate the page of the clients from their settings."""

from collections.abc import Iterator, Mapping

from gateway.launch.client import Client, ClientFile, LaunchTarget
from gateway.launch.rendering import render_needs, shell_lines

_TARGET = LaunchTarget(root="http://127.0.0.1:8900", model="qwen", window=32768)
_HEAD = """\
# Clients

This page has the settings of each program, and code to paste for each library. `make regenerate` generates it.
`gateway launch` has the same data, and fills in your address and one of your models:

```console
$ gateway launch --list               # all names
$ gateway launch codex                # print what Codex needs
$ gateway launch codex --write        # merge it into the configuration file of Codex, and show the changes
$ gateway launch claude --exec        # start Claude Code with the variables that it needs
```

The address is `http://127.0.0.1:8900/v1`; Anthropic's own clients take it without `/v1`. The model is one of those that
`GET /v1/models` lists. `gateway launch` prefers a model that calls tools if the client needs them, and whose window is
at least twice as long as the client's own prompt. A model comes last if `GET /ready` reports no backend of it
as reachable. Without the configuration, `gateway launch` does not know the backends of a model.

The client needs an API key only if the configuration has keys. Most clients want some value all the same: here it is
`none`. If `GATEWAY_KEY` has a key, `gateway launch` writes references to that variable, and never the key itself.

`make test-clients` runs the code of the libraries as it stands here, and Codex and opencode with these settings.
[Conformance](conformance.md) has the other tests of each client.

If a client does not give thoughts back, set `responses: {reasoning_memory: true}`: the gateway then does it.
"""
_COLUMNS = (
    "`gateway launch`", "version tried", "APIs", "shows thoughts", "gives them back", "counts the tokens of streams",
)  # fmt: skip


def clients_page(clients: Mapping[str, Client]) -> str:
    """Return the whole page in Markdown."""
    programs = {name: one for name, one in clients.items() if one.command}
    libraries = {name: one for name, one in clients.items() if not one.command}
    parts = [_HEAD, _table("program", programs), _table("library", libraries)]
    parts += [_section(name, one) for group in (programs, libraries) for name, one in group.items()]
    return "\n".join(parts)


def _table(caption: str, clients: Mapping[str, Client]) -> str:
    rows = [f"| {' | '.join((caption, *_COLUMNS))} |", "|---" * 7 + "|", *map(_row, clients.items())]
    return "\n".join(rows) + "\n"


def _row(item: tuple[str, Client]) -> str:
    name, client = item
    anchor = client.title.lower().replace(" ", "-")
    cells = (
        f"[{client.title}](#{anchor})", f"`{name}`", client.tried or "–", ", ".join(client.apis),
        client.thoughts, client.replay, client.usage,
    )  # fmt: skip
    return f"| {' | '.join(cells)} |"


def _section(name: str, client: Client) -> str:
    return "\n\n".join((f"## {client.title}", *_paragraphs(name, client), "")).removesuffix("\n")


def _paragraphs(name: str, client: Client) -> Iterator[str]:
    if client.file:
        also = ", or instead of the variables below" if client.file.optional else ""
        yield f"`{_path(client.file)}`{also} (`gateway launch {name} --write`):"
        yield _block(client.file.format, client.entries_for(_TARGET))
    if client.command:
        yield "In a shell:"
        yield _block("sh", "\n".join(shell_lines(client, _TARGET)))
    if needs := render_needs(client):
        yield needs
    yield client.text_for(_TARGET).strip("\n")


def _path(file: ClientFile) -> str:
    return f"{file.folder}/{file.name}"


def _block(language: str, code: str) -> str:
    return f"```{language}\n{code.strip()}\n```"
