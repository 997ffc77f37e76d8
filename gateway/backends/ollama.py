"""Convert requests and responses of Ollama's /api/chat (api/types.go: ChatRequest, Options, ChatResponse).

The gateway does not use Ollama's /v1, which loses too much.  /v1 forces sampling parameters, splits messages, truncates
prompts silently, and hides errors in the middle of a response.
"""

from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from typing import Any

from msgspec import Raw, Struct, json

from gateway.backends.openai import unknown_fields, wire
from gateway.backends.openai.decoder import ChatDecoder as Chunks
from gateway.backends.openai.error_mapping import problem_from_error_object
from gateway.backends.openai.payload_values import read_mended
from gateway.backends.openai.repeat_decoder import RepeatedChunkDecoder
from gateway.backends.openai.request_body import BodyTarget, upstream_messages, upstream_tools
from gateway.backends.openai.usage import count_value
from gateway.backends.openai.wire import LenientNumber, WireMessage
from gateway.backends.request_fields import request_fields
from gateway.events import Event, Failure
from gateway.request import Message, Request
from gateway.warnings import Warnings

_LEVELS: Mapping[str, str | bool] = {
    "none": False, "minimal": "low", "low": "low", "medium": "medium", "high": "high", "xhigh": "max", "max": "max",
}  # fmt: skip
_SWITCHES = ("enable_thinking", "thinking")  # the names in the templates of models
FIELDS = frozenset(("think", "reasoning_effort", "reasoning", "chat_template_kwargs", *_SWITCHES))
_encode = json.Encoder().encode
_OWN = frozenset(("format", "keep_alive", "logprobs", "options", "shift", "top_logprobs", "truncate"))
_OPTIONS = frozenset(
    ("frequency_penalty", "presence_penalty", "seed", "stop", "temperature", "top_p",
     # Ollama's own
     "draft_num_predict", "main_gpu", "min_p", "num_batch", "num_ctx", "num_gpu", "num_keep", "num_predict",
     "num_thread", "repeat_last_n", "repeat_penalty", "top_k", "typical_p", "use_mmap")
)  # fmt: skip
_object = json.Decoder(dict[str, Raw]).decode


def ollama_messages(items: Sequence[Message]) -> Iterator[Message]:
    """Yield chat completion messages in Ollama's form, with objects as arguments and reasoning in `thinking`."""
    names: dict[str, str] = {}  # tool names of the calls so far, by call id
    for message in items:
        calls = message.get("tool_calls") or []
        names |= {call["id"]: call["function"]["name"] for call in calls}
        content = message.get("content") or ""
        text, media = (content, []) if isinstance(content, str) else _parts(content)
        given = {
            "role": message["role"],
            "content": text,
            "thinking": message.get("thinking"),
            "images": media,
            "tool_calls": [_call(index, call) for index, call in enumerate(calls)],
            **_about(message, names),
        }
        yield {name: value for name, value in given.items() if value or name == "content"}


def _about(message: Message, names: dict[str, str]) -> dict[str, Any]:
    """Return the fields that say which call a tool result belongs to."""
    if message["role"] != "tool":
        return {}
    id = message["tool_call_id"]
    return {"tool_call_id": id, "tool_name": names.get(id)}


def _call(index: int, call: dict[str, Any]) -> dict[str, Any]:
    function = call["function"]
    arguments = Raw(function["arguments"].encode())
    return {"id": call["id"], "function": {"index": index, "name": function["name"], "arguments": arguments}}


def _parts(parts: Sequence[dict[str, Any]]) -> tuple[str, list[str]]:
    """Return the text, and the media in base64: images, which are data URLs by now, and audio."""
    texts, media = [], []
    for part in parts:
        if part["type"] == "text":
            texts.append(part["text"])
        elif part["type"] == "image_url":
            media.append(part["image_url"]["url"].partition(",")[2])
        else:
            media.append(part["input_audio"]["data"])
    return "\n".join(texts), media


def think_field(data: Mapping[str, Any], target: BodyTarget, ledger: Warnings) -> dict[str, Any]:
    """Return `think`, from the fields in FIELDS; nothing if the model cannot reason, as it would reject the request."""
    field, wanted = _wanted(data, ledger)
    if wanted is None:
        return {}
    if wanted is not False and not target.thinks:
        ledger.add("dropped", field)
        return {}
    if wanted is False and "gpt-oss" in target.model:  # gpt-oss always reasons, at a level
        ledger.add("unenforced", field)
        return {"think": "low"}
    return {"think": wanted}


def _wanted(data: Mapping[str, Any], ledger: Warnings) -> tuple[str, Any]:
    """Return the field that decides, and the value of `think` that it asks for, or None."""
    switch = _switch(data.get("chat_template_kwargs"), ledger)
    effort = data.get("reasoning_effort")
    level = _LEVELS.get(effort) if isinstance(effort, str) else None
    if "think" in data:
        return "think", data["think"]
    if switch is False or (switch and not level):
        return "chat_template_kwargs", switch
    if level and level != effort:
        ledger.add("translated", "reasoning_effort")
    return "reasoning_effort", level


def _switch(settings: object, ledger: Warnings) -> bool | None:
    """Return the switch in the template settings, if there is one; other settings are dropped with a warning."""
    given = settings if isinstance(settings, dict) else {}
    switches = [given[name] for name in _SWITCHES if isinstance(given.get(name), bool)]
    if settings is not None and len(switches) < max(len(given), 1):
        ledger.add("dropped", "chat_template_kwargs")
    if switches:
        ledger.add("translated", "chat_template_kwargs")
    return switches[0] if switches else None


def ollama_body(request: Request, target: BodyTarget, known: Set[str], ledger: Warnings) -> bytes:
    """Return the body for /api/chat.

    Ollama shall reject a prompt that is too long rather than truncate it, unless the client sets `truncate`.

    known: the fields of the API; all others are Ollama's own, or are dropped.
    ledger: receives a warning for each field that is not sent unchanged.
    """
    data = request_fields(request, target.kind, known, ledger)
    own, options = _places(data, ledger)
    given = {
        "model": target.model,
        "messages": [*ollama_messages(upstream_messages(request, target, ledger))],
        "stream": request.stream,
        "truncate": False,
        **_tools(request, target, ledger),
        **_format(data.get("response_format"), ledger),
        **think_field(data, target, ledger),
        **own,
    }
    return _encode({**given, "options": options} if options else given)


def _places(data: Mapping[str, Any], ledger: Warnings) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the body's own members, and the options; the client's own `options` win."""
    own = {name: value for name, value in data.items() if name in _OWN}
    options = {name: value for name, value in data.items() if name in _OPTIONS}
    if isinstance(options.get("stop"), str):
        options["stop"] = [options["stop"]]
    given = own.pop("options", {})
    if isinstance(given, dict):
        return own, options | given
    ledger.add("dropped", "options")
    return own, options


def _format(data: Any, ledger: Warnings) -> dict[str, Any]:  # noqa: ANN401 - decoded JSON
    match data:
        case {"type": "json_schema", "json_schema": {"schema": schema}}:
            return {"format": schema}
        case {"type": "json_object" | "json_schema"}:
            return {"format": "json"}
        case {"type": kind} if kind != "text":
            ledger.add("dropped", "response_format")
    return {}


def _tools(request: Request, target: BodyTarget, ledger: Warnings) -> dict[str, Any]:
    tools = upstream_tools(request, target, ledger)
    return {"tools": tools} if tools else {}


class OllamaChunk(Struct):
    """A line of the stream, or the whole response."""

    message: WireMessage | None = None
    done: bool | None = None
    done_reason: Any = None
    prompt_eval_count: LenientNumber = None
    eval_count: LenientNumber = None
    logprobs: Any = None
    error: Any = None


_decode = json.Decoder(OllamaChunk).decode
_READ = frozenset((*OllamaChunk.__struct_fields__, "model", "created_at"))  # the gateway sends its own `model` and time


@dataclass(slots=True, eq=False)
class OllamaDecoder(Chunks):
    """Decode a response of /api/chat.

    Each call comes whole.  The decoder numbers the calls, as the meaning of Ollama's index differs between its parsers.
    """

    # No repeats: each line has its own timestamp.
    _repeats: RepeatedChunkDecoder = field(default_factory=lambda: RepeatedChunkDecoder(0))
    _calls: int = 0

    def _decoded(self, payload: bytes) -> list[Event]:
        line = self._read(payload, _decode)
        if isinstance(line, Failure):
            return [line]
        if line.error:
            return [Failure(problem_from_error_object(line.error))]
        return self.read(self._chunk(line), read_mended(payload, _unknown_members))

    def _chunk(self, line: OllamaChunk) -> wire.WireChunk:
        for call in (line.message and line.message.tool_calls) or ():
            call.index, self._calls = self._calls, self._calls + 1
        reason = None
        if line.done:
            self.done, reason = True, line.done_reason or "stop"
        choice = wire.WireChoice(delta=line.message, logprobs=line.logprobs or None, finish_reason=reason)
        return wire.WireChunk(choices=[choice], usage=self._counts(line))

    def _counts(self, line: OllamaChunk) -> wire.WireUsage | None:
        """Return the usage of a line; None if the prompt was cached, as Ollama then does not count it."""
        prompt, written = count_value(line.prompt_eval_count), count_value(line.eval_count)
        if prompt:
            return wire.WireUsage(prompt_tokens=prompt, completion_tokens=written)
        self.completion_tokens = written
        return None


def _unknown_members(payload: bytes) -> unknown_fields.UnknownMembers:
    line = _object(payload)
    return unknown_fields.UnknownMembers(
        unknown_fields.without_known(line, _READ), [({}, unknown_fields.of_message(line.get("message")))]
    )
