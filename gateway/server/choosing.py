"""The format that one request's answer is read in: the operator's word, the model's name, or its chat template."""

from collections.abc import Mapping
from typing import Any

from msgspec.structs import replace

from gateway.formats import FORMATS, canonical
from gateway.formats.chosen import Chosen, by_name, by_template, opens
from gateway.request import Request
from gateway.server.directory import Route

_SWITCHES = ("enable_thinking", "thinking")  # settings of templates that close a thought


async def choose(route: Route, request: Request) -> Chosen:
    """May ask the backend, once for a model and its template's settings."""
    word, model = canonical(route.settings.format), route.upstream_model
    chosen = by_name((*route.backend.names(model), route.model), word)
    if chosen.format == "auto" and (template := await route.backend.templates.text(model)):
        chosen = by_template(template, FORMATS) or chosen
    thought = route.settings.thought
    if thought != "auto":
        return replace(chosen, thought_open=thought == "open")
    if chosen.format == "native" or (word == "auto" and route.backend.kind.parses):
        return replace(chosen, thought_open=False)
    settings = _settings(request)
    prompt = await route.backend.templates.prompt(model, settings)
    opened = chosen.thought_open if prompt is None else opens(prompt, route.row(chosen.format))
    return replace(chosen, thought_open=opened and not _closed(request, settings))


def _settings(request: Request) -> Mapping[str, Any]:
    given = request.rest.get("chat_template_kwargs")
    return given if isinstance(given, dict) else {}


def _closed(request: Request, settings: Mapping[str, Any]) -> bool:
    """True if the client wants no thought."""
    unwanted = request.rest.get("include_reasoning") is False or request.rest.get("reasoning_effort") == "none"
    return unwanted or any(settings.get(switch) is False for switch in _SWITCHES)
