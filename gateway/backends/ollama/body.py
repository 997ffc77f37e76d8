"""A neutral Request as the body of /api/chat (Ollama's api/types.go, ChatRequest and Options).

Its /v1 would be simpler to ask, but loses too much: it forces sampling that nobody asked for, makes several messages of
one, truncates prompts in silence, and says nothing of what goes wrong in the middle of an answer.
"""

from collections.abc import Mapping, Set
from typing import Any

from msgspec import json

from gateway.backends.fields import request_fields
from gateway.backends.ollama.messages import ollama_messages
from gateway.backends.ollama.think import think_field
from gateway.backends.openai.body import BodyTarget, upstream_messages, upstream_tools
from gateway.ledger import Warnings
from gateway.request import Request

_encode = json.Encoder().encode
_OWN = frozenset(("format", "keep_alive", "logprobs", "options", "shift", "top_logprobs", "truncate"))
_OPTIONS = frozenset(
    ("frequency_penalty", "presence_penalty", "seed", "stop", "temperature", "top_p",
     # its own
     "draft_num_predict", "main_gpu", "min_p", "num_batch", "num_ctx", "num_gpu", "num_keep", "num_predict",
     "num_thread", "repeat_last_n", "repeat_penalty", "top_k", "typical_p", "use_mmap")
)  # fmt: skip


def ollama_body(request: Request, target: BodyTarget, known: Set[str], ledger: Warnings) -> bytes:
    """`known` are the fields of the API; all others are Ollama's own, or are dropped.

    A prompt that is too long shall be refused and not be truncated, unless the client wants it so.
    """
    said = request_fields(request, target.kind, known, ledger)
    own, options = _places(said, ledger)
    given = {
        "model": target.model,
        "messages": [*ollama_messages(upstream_messages(request, target, ledger))],
        "stream": request.stream,
        "truncate": False,
        **_tools(request, target),
        **_format(said.get("response_format"), ledger),
        **think_field(said, target, ledger),
        **own,
    }
    return _encode({**given, "options": options} if options else given)


def _places(said: Mapping[str, Any], ledger: Warnings) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the fields with a place of their own, and the options; the client's own `options` win."""
    own = {name: value for name, value in said.items() if name in _OWN}
    options = {name: value for name, value in said.items() if name in _OPTIONS}
    if isinstance(options.get("stop"), str):
        options["stop"] = [options["stop"]]
    given = own.pop("options", {})
    if isinstance(given, dict):
        return own, options | given
    ledger.note("dropped", "options")
    return own, options


def _format(said: Any, ledger: Warnings) -> dict[str, Any]:  # noqa: ANN401 - decoded JSON
    match said:
        case {"type": "json_schema", "json_schema": {"schema": schema}}:
            return {"format": schema}
        case {"type": "json_object" | "json_schema"}:
            return {"format": "json"}
        case {"type": kind} if kind != "text":
            ledger.note("dropped", "response_format")
    return {}


def _tools(request: Request, target: BodyTarget) -> dict[str, Any]:
    tools = upstream_tools(request, target)
    return {"tools": tools} if tools else {}
