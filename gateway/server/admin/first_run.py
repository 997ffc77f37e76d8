"""Build the content of the page that a gateway shows before its first request: what to paste into clients.

The data is that of `gateway launch`.
"""

from collections.abc import Iterator, Sequence

from msgspec import Struct

from gateway.launch import CLIENTS, Client, LaunchTarget, OfferedModel, choose_model, misfits
from gateway.launch.client import KEY_VARIABLE
from gateway.launch.rendering import render_needs, shell_lines
from gateway.server.admin.overview_model import Overview

_SHOWN = {
    "curl": "curl",
    "openai-python": "Python",
    "codex": "Codex",
    "claude": "Claude Code",
    "open-webui": "Open WebUI",
}
_AGENT = CLIENTS["codex"]  # the model that fits it is chosen first
_ANY_MODEL = "MODEL"


class PasteStep(Struct, frozen=True):
    """A text to paste, and its place."""

    place: str
    text: str


class ClientGuide(Struct, frozen=True):
    """A client, with the steps to connect it.  notes: its needs; problems: why the model may not fit."""

    name: str
    title: str
    steps: list[PasteStep]
    notes: list[str]
    problems: list[str]


class FoundBackend(Struct, frozen=True):
    """A backend of the configuration.  problem: why it cannot be used; models: those that it serves."""

    name: str
    address: str
    problem: str | None
    models: list[str]


class FirstRun(Struct, frozen=True):
    """The first-run page.  model: the one in all texts; models: those that the reader can choose."""

    root: str
    keyed: bool
    backends: list[FoundBackend]
    model: str
    models: list[str]
    clients: list[ClientGuide]


def is_first_run(overview: Overview) -> bool:
    """Return True if the gateway knows of no request."""
    return not (overview.requests or overview.errors)


def build_first_run(overview: Overview, root: str, *, keyed: bool, wanted: str = "") -> FirstRun:
    """Return the page's content.  root: the gateway's URL; wanted: the model that the reader chose, if it is listed."""
    offered = [_offered(one.id, one.context_length, one.capabilities) for one in overview.models]
    names = [one.id for one in offered]
    choice = choose_model(_AGENT, offered, wanted if wanted in names else None)
    model = choice.model if choice else OfferedModel(_ANY_MODEL)
    target = LaunchTarget(root=root, model=model.id, window=model.context_length, keyed=keyed)
    guides = [_guide(name, title, target, model) for name, title in _SHOWN.items()]
    return FirstRun(root, keyed, [*_backends(overview)], model.id, names, guides)


def _backends(overview: Overview) -> Iterator[FoundBackend]:
    for one in overview.backends:
        models = [model.id for model in overview.models if one.name in [place.backend for place in model.places]]
        yield FoundBackend(one.name, f"{one.kind} at {one.url}", one.problem, models)


def _offered(name: str, window: int | None, capabilities: Sequence[str] | None) -> OfferedModel:
    return OfferedModel(name, window, None if capabilities is None else tuple(capabilities))


def _guide(name: str, title: str, target: LaunchTarget, model: OfferedModel) -> ClientGuide:
    client = CLIENTS[name]
    notes = [needs] if (needs := render_needs(client)) else []
    if client.file:
        notes.append(f"`gateway launch {name} --write` writes {client.file.folder}/{client.file.name}.")
    if target.keyed:
        notes.append(f"Set {KEY_VARIABLE} to an API key of this gateway.")
    return ClientGuide(name, title, [*_steps(client, target)], notes, [*misfits(client, model)])


def _steps(client: Client, target: LaunchTarget) -> Iterator[PasteStep]:
    if client.file and not client.file.optional:
        yield PasteStep(f"{client.file.folder}/{client.file.name}", client.entries_for(target).strip("\n"))
    if example := client.example_for(target):
        yield PasteStep("Shortest request", example)
    if lines := shell_lines(client, target):
        yield PasteStep("In a shell", "\n".join(lines))
