"""Choose the format of a response: by the configuration, the model's name, or its chat template."""

from collections.abc import Mapping
from typing import Any

from msgspec.structs import replace

from gateway.api.chat.schema import KNOWN
from gateway.backends.request_fields import request_fields
from gateway.formats import FORMATS
from gateway.formats.selection import FormatChoice, choice_by_name, choice_by_template, opens_reasoning
from gateway.formats.spec import IdForm
from gateway.request import Request
from gateway.server.upstream.model_registry import BackendRoute
from gateway.transforms import prompted_tools
from gateway.warnings import Warnings

_SWITCHES = ("enable_thinking", "thinking")  # settings of templates that close a thought


async def choose_format(route: BackendRoute, request: Request) -> FormatChoice:
    """Choose the format of a request.  It may query the backend, and wait for the result the first time."""
    model, prompted = route.upstream_model, route.settings.tools == "prompt" and request.callable_tools
    word = prompted_tools.FORMAT if prompted else route.format  # tools in the prompt have a format of their own
    chosen = format_by_names(route, word)
    if chosen.format == "auto":
        chosen = await _shown(route, chosen)
    thought = route.settings.thought
    if thought != "auto":
        return _opening(chosen, opened=thought == "open")
    if chosen.format == "native" or (word == "auto" and route.backend.kind.parses):
        return _opening(chosen, opened=False)
    data = request_fields(request, route.backend.kind, KNOWN, Warnings())  # the server decides by these fields
    settings = _settings(data)
    prompt = await route.backend.metadata_cache.rendered_prompt(model, settings)
    opened = chosen.thought_open if prompt is None else opens_reasoning(prompt, route.format_spec(chosen.format))
    return _opening(chosen, opened=opened and not _closed(request, data))


async def format_before_request(route: BackendRoute, word: str) -> FormatChoice:
    """Choose the format before any request.  It may query the backend for the chat template."""
    chosen = format_by_names(route, word)
    return await _shown(route, chosen) if chosen.format == "auto" else chosen


async def _shown(route: BackendRoute, chosen: FormatChoice) -> FormatChoice:
    """Choose the format by the chat template, if there is one."""
    template = await route.backend.metadata_cache.chat_template(route.upstream_model)
    return (choice_by_template(template, FORMATS) if template else None) or chosen


def _opening(chosen: FormatChoice, *, opened: bool) -> FormatChoice:
    return chosen if chosen.thought_open == opened else replace(chosen, thought_open=opened)


def format_by_names(route: BackendRoute, word: str) -> FormatChoice:
    """Choose the format without a query to the backend."""
    return choice_by_name(_names(route), word)


def tool_call_id_form(route: BackendRoute, chosen: FormatChoice) -> IdForm:
    """Return the form of ids that the templates of the model accept, also where its server parses the calls."""
    format = choice_by_name(_names(route)).format if chosen.format == "native" else chosen.format
    return route.format_spec(format).ids


def _names(route: BackendRoute) -> tuple[str, ...]:
    model, listed = route.upstream_model, route.backend.listed
    root = listed[model].root if listed and model in listed else None
    return (model, root, route.model) if root else (model, route.model)


def _settings(data: Mapping[str, Any]) -> Mapping[str, Any]:
    given = data.get("chat_template_kwargs")
    return given if isinstance(given, dict) else {}


def _closed(request: Request, data: Mapping[str, Any]) -> bool:
    """Return True if the client turns reasoning off, and the server gets that setting."""
    unwanted = request.rest.get("include_reasoning") is False or data.get("reasoning_effort") == "none"
    settings = _settings(data)
    return unwanted or data.get("think") is False or any(settings.get(switch) is False for switch in _SWITCHES)
