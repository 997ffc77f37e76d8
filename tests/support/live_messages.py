"""A Messages server with a real model behind it, which is strict about requests.

    with live_messages(url_of_a_llama_cpp) as url: ...

It refuses what Anthropic's API refuses: faulty bodies, signatures of others and unknown models.  Without a temperature
it takes the likeliest token, so that its responses repeat.
"""

import hashlib
import json

from starlette.applications import Starlette
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from support.anthropic_server import PATH, event, faults
from support.ollama_server import chunks_of
from support.threaded_gateway import listening, underneath

MODEL = "claude-opus-4-6"  # it takes adaptive thinking, and parameters of sampling, which later generations refuse
WINDOW = 4096
_BELOW = "/v1/chat/completions"
_REASONS = {"length": "max_tokens", "tool_calls": "tool_use"}
_CHOICES = {"auto": "auto", "any": "required", "tool": "required", "none": "none"}
_DELTAS = {"text": ("text_delta", "text"), "thinking": ("thinking_delta", "thinking")}
_LISTED = {"type": "model", "display_name": "Demo", "created_at": "2026-01-01T00:00:00Z", "max_input_tokens": WINDOW}


class Refusal(Exception):
    """An error of the API."""

    def __init__(self, message, type="invalid_request_error", status=400):
        super().__init__(message)
        self.type, self.status = type, status

    def response(self):
        error = {"type": self.type, "message": str(self)}
        return JSONResponse({"type": "error", "error": error, "request_id": "req_up"}, self.status)


class LiveMessages:
    """The server; `url`: of a llama.cpp that parses thoughts and calls itself."""

    def __init__(self, url):
        self._below = underneath(url)
        routes = [
            Route(PATH, self._answered(self._message), methods=["POST"]),
            Route(f"{PATH}/count_tokens", self._answered(self._count), methods=["POST"]),
            Route("/v1/models", self._answered(self._models)),
        ]
        self.app = Starlette(routes=routes)

    def _answered(self, answer):
        async def route(http):
            try:
                if "anthropic-version" not in http.headers:
                    raise Refusal("anthropic-version: header is required")
                return await answer(http)
            except Refusal as refusal:
                return refusal.response()

        return route

    async def _models(self, _):
        return JSONResponse({"data": [{"id": MODEL, **_LISTED}], "has_more": False})

    async def _count(self, http):
        body = await http.json()
        check(body, counts=True)
        answer = await self._below.post(_BELOW, json={**below({**body, "max_tokens": 1}), "stream": False})
        if answer.status_code != 200:
            raise refusal_of(answer.json())
        return JSONResponse({"input_tokens": answer.json()["usage"]["prompt_tokens"]})

    async def _message(self, http):
        body = await http.json()
        check(body)
        events = written(self._chunks(below(body)), body)
        first = await anext(events)
        if not body.get("stream"):
            message = folded([first, *[one async for one in events]])
            return Response(json.dumps(message), media_type="application/json")  # with the white space of the model
        return StreamingResponse(frames(first, events), media_type="text/event-stream")

    async def _chunks(self, body):
        async with self._below.stream("POST", _BELOW, json=body) as answer:
            if answer.status_code != 200:
                raise refusal_of(json.loads(await answer.aread()))
            async for chunk in chunks_of(answer):
                yield chunk


def check(body, *, counts=False):
    """Raise Refusal for a body that the API refuses."""
    if found := faults(body, counts=counts):
        raise Refusal("; ".join(found))
    if body["model"] != MODEL:
        raise Refusal(f"model: {body['model']}", "not_found_error", 404)
    blocks = (block for one in body["messages"] for block in listed(one["content"]) if block["type"] == "thinking")
    if any(block["signature"] != signature(block["thinking"]) for block in blocks):
        raise Refusal("Invalid `signature` in `thinking` block")


def signature(thought):
    return hashlib.sha256(thought.encode()).hexdigest()


def refusal_of(body):
    """Return the error of the server underneath as the API states it."""
    error = body["error"]
    if error.get("type") == "exceed_context_size_error":
        return Refusal(f"prompt is too long: {error['n_prompt_tokens']} tokens > {error['n_ctx']} maximum")
    return Refusal(error["message"])


# Requests


def listed(content):
    return [{"type": "text", "text": content}] if isinstance(content, str) else content


def below(body):
    """Return the request to the server underneath."""
    system = [block["text"] for block in listed(body.get("system") or [])]
    messages = [{"role": "system", "content": "\n\n".join(system)}] if system else []
    for message in body["messages"]:
        messages += _READERS[message["role"]](listed(message["content"]))
    thinks = body.get("thinking", {}).get("type", "disabled") != "disabled"
    return {
        "messages": messages,
        "max_tokens": body["max_tokens"],
        "temperature": body.get("temperature", 0),
        **{name: body[name] for name in ("top_k", "top_p") if name in body},
        **tools(body),
        **form(body.get("output_config", {}).get("format")),
        "chat_template_kwargs": {"enable_thinking": thinks},
        "stream": True,
        "stream_options": {"include_usage": True},
    }


def tools(body):
    choice = body.get("tool_choice") or {"type": "auto"}
    offered = [tool for tool in body.get("tools") or () if choice.get("name") in (None, tool["name"])]
    functions = [
        {"name": tool["name"], "description": tool.get("description", ""), "parameters": tool["input_schema"]}
        for tool in offered
    ]
    if not functions:
        return {}
    return {
        "tools": [{"type": "function", "function": one} for one in functions],
        "tool_choice": _CHOICES[choice["type"]],
        **({"parallel_tool_calls": False} if choice.get("disable_parallel_tool_use") else {}),
    }


def form(format):
    if not format:
        return {}
    return {"response_format": {"type": "json_schema", "json_schema": {"name": "n", "schema": format["schema"]}}}


def user_messages(blocks):
    """Yield the results of calls, and then the rest as one message."""
    for block in blocks:
        if block["type"] == "tool_result":
            content = "\n".join(part["text"] for part in listed(block.get("content", "")))
            yield {"role": "tool", "tool_call_id": block["tool_use_id"], "content": content}
    rest = [block for block in blocks if block["type"] != "tool_result"]
    if any(block["type"] == "image" for block in rest):
        yield {"role": "user", "content": [*map(part, rest)]}
    elif rest:
        yield {"role": "user", "content": "\n".join(block["text"] for block in rest)}


def part(block):
    if block["type"] == "text":
        return block
    source = block["source"]
    return {"type": "image_url", "image_url": {"url": f"data:{source['media_type']};base64,{source['data']}"}}


def assistant_messages(blocks):
    message = {"role": "assistant", "content": "".join(block["text"] for block in blocks if block["type"] == "text")}
    if thought := "".join(block["thinking"] for block in blocks if block["type"] == "thinking"):
        message["reasoning_content"] = thought
    calls = [
        {
            "id": block["id"],
            "type": "function",
            "function": {"name": block["name"], "arguments": json.dumps(block["input"])},
        }
        for block in blocks
        if block["type"] == "tool_use"
    ]
    yield {**message, "tool_calls": calls} if calls else message


def system_messages(blocks):
    """Yield instructions amid the conversation as the templates of most models take them."""
    yield {"role": "user", "content": "\n".join(block["text"] for block in blocks)}


_READERS = {"user": user_messages, "assistant": assistant_messages, "system": system_messages}


# Responses


async def written(chunks, body):
    """Yield the events of a message, each with its type."""
    writer, reason, usage = BlockWriter(body), "stop", None
    first = await anext(chunks)
    yield {"type": "message_start", "message": started()}
    for one in writer.take(first):
        yield one
    async for chunk in chunks:
        usage = chunk.get("usage") or usage
        for one in writer.take(chunk):
            yield one
        reason = next((choice["finish_reason"] for choice in chunk["choices"] if choice["finish_reason"]), reason)
    for one in writer.end():
        yield one
    yield {"type": "message_delta", "delta": ending(reason, writer), "usage": counts(usage)}
    yield {"type": "message_stop"}


def started():
    usage = {**counts(None), "service_tier": "standard"}
    head = {"id": "msg_up", "type": "message", "role": "assistant", "model": MODEL, "content": []}
    return {**head, "stop_reason": None, "stop_sequence": None, "usage": usage}


def ending(reason, writer):
    stop = "stop_sequence" if writer.matched else _REASONS.get(reason, "end_turn")
    return {"stop_reason": stop, "stop_sequence": writer.matched}


def counts(usage):
    usage = usage or {"prompt_tokens": 0, "completion_tokens": 0}
    cached = (usage.get("prompt_tokens_details") or {}).get("cached_tokens", 0)
    return {
        "input_tokens": usage["prompt_tokens"] - cached,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": cached,
        "output_tokens": usage["completion_tokens"],
    }


class BlockWriter:
    """Make the events of blocks from the chunks of a chat completion.

    matched: the stop sequence that ended the text; None: none did.
    """

    def __init__(self, body):
        self._stops = body.get("stop_sequences") or ()
        self._hides = body.get("thinking", {}).get("display") == "omitted"
        self._single = (body.get("tool_choice") or {}).get("disable_parallel_tool_use", False)
        self._index, self._type, self._thought, self._held = -1, "", "", ""
        self.matched = None

    def take(self, chunk):
        for choice in chunk["choices"]:
            delta = choice["delta"]
            if thought := delta.get("reasoning_content"):
                self._thought += thought
                yield from self._add("thinking", "" if self._hides else thought)
            if text := delta.get("content"):
                yield from self._add_text(text)
            for call in delta.get("tool_calls") or ():
                yield from self._call(call)

    def end(self):
        """Yield the events that end the last block."""
        held, self._held = self._held, ""
        if held and not self.matched:
            yield from self._add("text", held)
        yield from self._stop()

    def _add_text(self, text):
        """Yield a text up to a stop sequence; what may be the beginning of one waits."""
        if self.matched:
            return
        self._held += text
        found = [(self._held.find(stop), stop) for stop in self._stops if stop in self._held]
        if found:
            end, self.matched = min(found)
        else:
            end = len(self._held) - max((begun(self._held, stop) for stop in self._stops), default=0)
        sure, self._held = self._held[:end], self._held[end:]
        if sure:
            yield from self._add("text", sure)

    def _add(self, type, text):
        yield from self._begin(type, {"type": type, type: ""} | ({"signature": ""} if type == "thinking" else {}))
        name, member = _DELTAS[type]
        if text:
            yield self._delta({"type": name, member: text})

    def _call(self, call):
        """Yield the events of a piece of a call; where one call is wanted, the others are left out."""
        function = call["function"]
        if self._single and call["index"]:
            return
        if "id" in call:
            yield from self.end()
            use = {"type": "tool_use", "id": f"toolu_{call['id']}", "name": function["name"], "input": {}}
            yield from self._begin("tool_use", use)
        yield self._delta({"type": "input_json_delta", "partial_json": function.get("arguments") or ""})

    def _begin(self, type, block):
        if self._type != type:
            yield from self._stop()
            self._index, self._type = self._index + 1, type
            yield {"type": "content_block_start", "index": self._index, "content_block": block}

    def _stop(self):
        if self._type == "thinking":
            yield self._delta({"type": "signature_delta", "signature": signature(self._thought)})
        if self._type:
            yield {"type": "content_block_stop", "index": self._index}
        self._type = ""

    def _delta(self, delta):
        return {"type": "content_block_delta", "index": self._index, "delta": delta}


def begun(text, stop):
    """Return the number of characters at the end of a text with which a stop sequence begins."""
    return next((size for size in range(len(stop) - 1, 0, -1) if text.endswith(stop[:size])), 0)


async def frames(first, events):
    yield frame(first)
    async for one in events:
        yield frame(one)


def frame(one):
    return event(**one)


def folded(events):
    """Return the message that the events come to; the input of a call that was cut is empty."""
    message, inputs = events[0]["message"], {}
    for one in events[1:]:
        match one:
            case {"type": "content_block_start", "content_block": block}:
                message["content"].append(block)
            case {"index": index, "delta": {"partial_json": piece}}:
                inputs[index] = inputs.get(index, "") + piece
            case {"index": index, "delta": delta} if "type" in delta:
                for name in delta.keys() - {"type"}:
                    message["content"][index][name] += delta[name]
            case {"type": "message_delta", "delta": delta, "usage": usage}:
                message |= delta
                message["usage"] |= usage
    for index, text in inputs.items():
        message["content"][index]["input"] = decoded(text)
    return message


def decoded(text):
    try:
        return json.loads(text)
    except json.JSONDecodeError:
        return {}


def live_messages(url):
    """Return the context of the server; its value is the URL."""
    return listening(LiveMessages(url).app)
