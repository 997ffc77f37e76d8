"""A Messages server that is strict about requests: the types of Anthropic's SDK, and the rules that these cannot say.

`reply` makes the response to a request, whole or streamed; `faults` lists what the API would refuse.
"""

import json
import re
import types
from collections.abc import Iterable
from typing import Annotated, Any, Literal, NotRequired, Required, Union, get_args, get_origin, get_type_hints

from anthropic.types.beta.message_count_tokens_params import MessageCountTokensParams
from anthropic.types.beta.message_create_params import MessageCreateParamsNonStreaming
from typing_extensions import is_typeddict

from support.upstream import END, Upstream, head, whole

PATH = "/v1/messages"
_SAMPLING = {"temperature": (0, 1), "top_p": (0, 1), "top_k": (0, 1 << 30)}  # of version 2023-06-01
_ID = re.compile(r"[a-zA-Z0-9_-]+")
_SIMPLE = {str: str, int: int, float: int | float, bool: bool, types.NoneType: types.NoneType}
COUNTS = {
    "input_tokens": 5,
    "cache_creation_input_tokens": 2,
    "cache_read_input_tokens": 3,
    "output_tokens": 9,
    "service_tier": "standard",
}


# Requests


def faults(body, *, counts=False):
    """Return the faults of the body of a message, or of a count of its tokens."""
    sampling = {} if counts else {name: body[name] for name in _SAMPLING if name in body}
    typed = {name: value for name, value in body.items() if name not in sampling and name != "stream"}
    found = [*_unfit(typed, MessageCountTokensParams if counts else MessageCreateParamsNonStreaming, "body")]
    found += [name for name, value in sampling.items() if not _SAMPLING[name][0] <= value <= _SAMPLING[name][1]]
    return found or [*_broken_rules(body)]


def _unfit(value, type, path):
    """Yield the paths of a value that do not fit a type; an object may have no members beside those of the type."""
    origin, args = get_origin(type), get_args(type)
    if origin in (Required, NotRequired, Annotated):
        return _unfit(value, args[0], path)
    if origin in (Union, types.UnionType):
        tries = [[*_unfit(value, one, path)] for one in args]
        return min(tries, key=lambda found: (bool(found), -max(map(len, found), default=0)))
    if is_typeddict(type):
        return _unfit_object(value, type, path)
    if _is_list(origin) and isinstance(value, list):
        return [fault for i, one in enumerate(value) for fault in _unfit(one, args[0], f"{path}.{i}")]
    return [] if _fits_simple(value, type) else [f"{path}: {value!r}"]


def _is_list(origin):
    return origin not in (None, Literal, dict) and issubclass(origin, Iterable)


def _fits_simple(value, type):
    origin = get_origin(type)
    if origin is Literal:
        return value in get_args(type)
    if origin is dict:
        return isinstance(value, dict)
    if isinstance(value, bool) and type in _SIMPLE:
        return type is bool
    return isinstance(value, _SIMPLE.get(type, object)) and not _is_list(origin)


def _unfit_object(value, type, path):
    hints = get_type_hints(type, include_extras=True)
    if not isinstance(value, dict):
        yield path
        return
    yield from (f"{path}.{name} is missing" for name in type.__required_keys__ - value.keys())
    for name, one in value.items():
        if name in hints:
            yield from _unfit(one, hints[name], f"{path}.{name}")
        else:
            yield f"{path}.{name}: extra inputs are not permitted"


def _broken_rules(body):
    """Yield the rules of the API that a well-typed body breaks."""
    messages = body["messages"]
    if not messages or messages[0]["role"] != "user":
        yield "messages: the user has to begin"
    if body.get("max_tokens", 1) < 0:
        yield "max_tokens"
    yield from _broken_thinking(body)
    if json.dumps(body).count('"cache_control"') > 4:
        yield "cache_control: more than 4"
    if not all(text.strip() for text in body.get("stop_sequences") or ()):
        yield "stop_sequences: white space"
    yield from _broken_turns(messages, bool(body.get("tools")))


def _broken_thinking(body):
    thinking = body.get("thinking") or {}
    if "budget_tokens" in thinking and not 1024 <= thinking["budget_tokens"] < body.get("max_tokens", 1 << 30):
        yield "thinking.budget_tokens"
    if thinking.get("type") in ("enabled", "adaptive"):
        if (body.get("tool_choice") or {}).get("type") in ("any", "tool"):
            yield "thinking: a tool is forced"
        if body.get("temperature", 1) != 1 or "top_k" in body or body.get("top_p", 1) < 0.95:
            yield "thinking: sampling"


def _broken_turns(messages, has_tools):
    due = []
    for i, message in enumerate(messages):
        blocks = _listed(message["content"])
        if not blocks:
            yield f"messages.{i}: empty"
        if any(block["type"] == "text" and not block["text"].strip() for block in blocks):
            yield f"messages.{i}: blank text"
        results = [block["tool_use_id"] for block in blocks if block["type"] == "tool_result"]
        if sorted(results) != sorted(due) or any(block["type"] == "tool_result" for block in blocks[len(due) :]):
            yield f"messages.{i}: results {results} of {due}"
        due = [block["id"] for block in blocks if block["type"] == "tool_use"]
        yield from (f"messages.{i}: id {id}" for id in due if not _ID.fullmatch(id))
        if due and not has_tools:
            yield "tools: missing"
    if due:
        yield f"messages: no results of {due}"
    last = _listed(messages[-1]["content"])[-1:] if messages else []
    if last and messages[-1]["role"] == "assistant" and last[0].get("text", "x") != last[0].get("text", "x").rstrip():
        yield "messages: white space at the end"


def _listed(content):
    return [{"type": "text", "text": content}] if isinstance(content, str) else content


# Responses


def event(type, **members):
    """Return the frame of an event."""
    return f"event: {type}\ndata: {json.dumps({'type': type, **members})}\n\n".encode()


def message(*blocks, reason="end_turn", **members):
    """Return a whole message with these blocks."""
    response = {"id": "msg_up", "type": "message", "role": "assistant", "model": "up", "content": [*blocks]}
    return {**response, "stop_reason": reason, "stop_sequence": None, "usage": COUNTS, **members}


def frames(body, size=3):
    """Yield the events that a message is streamed as, with pieces of `size` characters."""
    usage = {**body["usage"], "output_tokens": 1}
    yield event("message_start", message={**body, "content": [], "stop_reason": None, "usage": usage})
    yield event("ping")
    for index, block in enumerate(body["content"]):
        start, deltas = _pieces(block, size)
        yield event("content_block_start", index=index, content_block=start)
        yield from (event("content_block_delta", index=index, delta=delta) for delta in deltas)
        yield event("content_block_stop", index=index)
    ending = {name: value for name, value in body.items() if name.startswith("stop_") or name == "container"}
    yield event("message_delta", delta=ending, usage={"output_tokens": body["usage"]["output_tokens"]})
    yield event("message_stop")


def _pieces(block, size):
    """Return the block at its start, and its deltas."""
    match block:
        case {"type": "text", "text": text, **rest}:
            cited = [{"type": "citations_delta", "citation": one} for one in rest.pop("citations", ())]
            return {"type": "text", "text": "", **rest}, [*_cut("text", text, size), *cited]
        case {"type": "thinking", "thinking": text, "signature": signature, **rest}:
            signed = {"type": "signature_delta", "signature": signature}
            return {"type": "thinking", "thinking": "", "signature": "", **rest}, [
                *_cut("thinking", text, size),
                signed,
            ]
        case {"input": dict(given)}:
            deltas = [{"type": "input_json_delta", "partial_json": ""}]
            deltas += [
                {"type": "input_json_delta", "partial_json": piece}
                for piece in _slices(json.dumps(given), size)
                if given
            ]
            return {**block, "input": {}}, deltas
    return block, []


def _cut(name, text, size):
    return [{"type": f"{name}_delta", name: piece} for piece in _slices(text, size)]


def _slices(text, size):
    return [text[i : i + size] for i in range(0, len(text), size)]


def streamed(body, size=3):
    """Return the script of a streamed message."""
    return [head(), *frames(body, size), END]


def error(type, text, status=400, **headers):
    """Return the script of an error."""
    return whole({"type": "error", "error": {"type": type, "message": text}, "request_id": "req_up"}, status, **headers)


def reply(body, *blocks, reason="end_turn", **members):
    """Return the script of the response to a request: an error for a faulty one."""
    if found := faults(body):
        return error("invalid_request_error", "; ".join(found))
    response = message(*blocks, reason=reason, **members)
    return streamed(response) if body.get("stream") else whole(response)


def text(content, **more):
    return {"type": "text", "text": content, **more}


def thinking(thought, signature="c2ln"):
    return {"type": "thinking", "thinking": thought, "signature": signature}


def tool_use(name, id="toolu_up", **input):
    return {"type": "tool_use", "id": id, "name": name, "input": input}


def forced_tool(body) -> dict[str, Any] | None:
    """Return the tool that a request forces; None for none."""
    choice = body.get("tool_choice") or {}
    if choice.get("type") not in ("any", "tool"):
        return None
    return next(tool for tool in body["tools"] if choice.get("name") in (None, tool["name"]))


def listed(name, **more):
    """Return the list of models that has this one."""
    entry = {"type": "model", "id": name, "display_name": name, "created_at": "2026-01-01T00:00:00Z", **more}
    return whole({"data": [entry], "has_more": False, "first_id": name, "last_id": name})


class MessagesServer(Upstream):
    """The server on a socket.  answer: returns the content blocks of the message for a request's body."""

    def __init__(self, answer, models=("claude",)):
        super().__init__([[self._reply]], models)
        self._answer = answer

    async def _reply(self, writer):
        post = self.posts[-1]
        content = self._answer(post.json)
        reason = "tool_use" if any(block["type"] == "tool_use" for block in content) else "end_turn"
        for step in reply(post.json, *content, reason=reason):
            if isinstance(step, bytes):
                self._write(writer, step, chunked=step[:4] != b"HTTP" and post.json.get("stream"))
            else:
                writer.write(b"0\r\n\r\n")
