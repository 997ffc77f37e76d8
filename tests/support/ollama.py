"""An Ollama without a model: a test scripts its responses.

    async with ollama(Turn([thinks("Hm"), says("Hi")])) as server:
        ...  # server.url, server.asked

It follows Ollama's own source (api/types.go, server/routes.go, openai/openai.go): the errors with their texts and
statuses; NDJSON and its `/v1`; the fields that it ignores; and the silent truncation of a long prompt.  Every request
takes the next turn; the last one is repeated.  A word is a token.
"""

import base64
import json
from contextlib import asynccontextmanager

import msgspec
from starlette.applications import Starlette
from starlette.responses import JSONResponse, StreamingResponse
from starlette.routing import Route

from gateway.server.http.uvicorn_protocol import STOPPING
from support.app import running

NAME = "llama9:latest"
MADE = "2026-08-21T18:48:22.000000001Z"
THINK = (True, False, "low", "medium", "high", "max")
OPTIONS = {
    **dict.fromkeys(("seed", "num_predict", "top_k", "num_ctx", "num_keep", "num_batch", "num_gpu", "num_thread",
                     "repeat_last_n", "main_gpu", "draft_num_predict"), (int, float)),
    **dict.fromkeys(("temperature", "top_p", "min_p", "typical_p", "repeat_penalty", "presence_penalty", "frequency_penalty"),
                    (int, float)),
    "stop": list, "use_mmap": bool,
}  # fmt: skip
WORDS = {int: "integer", float: "float32", list: "array", bool: "boolean"}


def content_line(text, **more):
    """Return a line with content; `more` are members of the line, like logprobs."""
    return {"message": {"role": "assistant", "content": text}, **more}


def thinks(text, content="", **more):
    """Return a line with a thought."""
    return {"message": {"role": "assistant", "content": content, "thinking": text}, **more}


def calls(*called, content="", **members):
    """Return a line with calls: (name, arguments) or (name, arguments, id), each with the index 0 of parsers."""
    made = [
        {**({"id": id[0]} if id else {}), "function": {"index": 0, "name": name, "arguments": arguments}}
        for name, arguments, *id in called
    ]
    return {"message": {"role": "assistant", "content": content, "tool_calls": made, **members}}


@asynccontextmanager
async def _lifespan(_):
    yield {STOPPING: list}  # nothing to do at shutdown


class Turn(msgspec.Struct):
    """The response of the model, and its end.

    prompt, written: tokens; 0 is left out.
    error: replaces the end; its status applies if no line comes before.
    raw: the bytes to send instead.
    """

    lines: list = []
    reason: str = "stop"
    prompt: int = 7
    written: int = 2
    error: str = ""
    status: int = 500
    raw: bytes | None = None

    def data(self, model=NAME):
        """Return the body of a stream."""
        return self.raw if self.raw is not None else b"".join(map(written, self.answers(model)))

    def answers(self, model=NAME):
        """Return the lines with all members that Ollama adds."""
        head = {"model": model, "created_at": MADE}
        lines = [{**head, **line, "done": False} for line in self.lines]
        if self.error:
            return [*lines, {"error": self.error}]
        counts = {"prompt_eval_count": self.prompt, "eval_count": self.written}
        spent = {"total_duration": 5000, "load_duration": 1000, "prompt_eval_duration": 1, "eval_duration": 2}
        end = {**content_line(""), "done": True, "done_reason": self.reason, **spent}
        return [*lines, {**head, **end, **{name: count for name, count in counts.items() if count}}]


def whole(lines, status=500):
    """Return the last line with the content of all lines; or the error that it is, with this status."""
    *_, last = lines
    if "error" in last:
        return JSONResponse(last, status)
    messages = [line["message"] for line in lines]
    message = {"role": "assistant", "content": "".join(one["content"] for one in messages)}
    if thought := "".join(one.get("thinking", "") for one in messages):
        message["thinking"] = thought
    if made := [call for one in messages for call in one.get("tool_calls", ())]:
        message["tool_calls"] = made
    chances = [one for line in lines for one in line.get("logprobs", ())]
    return JSONResponse({**last, "message": message, **({"logprobs": chances} if chances else {})})


def written(line):
    """Return a line as Go writes it."""
    return json.dumps(line, separators=(",", ":"), ensure_ascii=False).encode() + b"\n"


class Refusal(Exception):
    """A request that Ollama refuses."""

    def __init__(self, status, message):
        super().__init__(message)
        self.status, self.message = status, message


class Ollama:
    """The server.

    bodies: the bodies of the requests so far.
    shown: the bodies of requests for metadata.
    able: the abilities of the model.
    window: the tokens of a prompt.
    pieces: cuts the bytes of a response.
    """

    def __init__(self, turns, able=("completion", "tools", "thinking", "vision"), window=4096, pieces=None):
        self._turns = [*turns]
        self.able, self.window, self._pieces = able, window, pieces or (lambda data: [data])
        self.bodies, self.paths, self.shown = [], [], []
        self.seen = []  # the messages of the last request that reached the model
        self.app = Starlette(
            routes=[
                Route("/api/chat", self.native, methods=["POST"]),
                Route("/v1/chat/completions", self.compatible, methods=["POST"]),
                Route("/api/show", self.show, methods=["POST"]),
                Route("/api/version", lambda _: JSONResponse({"version": "0.33.2"})),
                Route("/api/tags", lambda _: JSONResponse({"models": [{"name": NAME, "model": NAME}]})),
                Route("/api/ps", self.loaded),
                Route("/v1/models", self.models),
            ],
            lifespan=_lifespan,
        )

    async def show(self, http):
        """Return the metadata of the model."""
        self.shown.append(await http.json())
        if self.shown[-1]["model"] != NAME:
            return JSONResponse({"error": f"model '{self.shown[-1]['model']}' not found"}, 404)
        info = {"general.architecture": "llama", "llama.context_length": 131072}
        template = "{{ range .Messages }}{{ .Content }}{{ end }}"
        return JSONResponse({"template": template, "model_info": info, "capabilities": [*self.able]})

    async def loaded(self, _):
        """Return the loaded models."""
        return JSONResponse({"models": [{"name": NAME, "model": NAME, "context_length": self.window}]})

    async def models(self, _):
        """Return the models in the form of `/v1`."""
        entry = {"id": NAME, "object": "model", "created": 3, "owned_by": "library"}
        return JSONResponse({"object": "list", "data": [entry]})

    async def native(self, http):
        """Respond to a request of the native API."""
        self._note(http, body := await http.json())
        try:
            turn = self._turn(body)
        except Refusal as error:
            return JSONResponse({"error": error.message}, error.status)
        lines = turn.answers(body["model"])
        if body.get("stream") is False:
            return whole(lines, turn.status)
        if not turn.lines and turn.error:
            return JSONResponse({"error": turn.error}, turn.status)
        return StreamingResponse(self._sent(turn.data(body["model"])), media_type="application/x-ndjson")

    async def compatible(self, http):
        """Respond to a request of `/v1`, which loses fields."""
        self._note(http, body := await http.json())
        try:
            turn = self._turn(native_request(body))
        except Refusal as error:
            kind = {400: "invalid_request_error", 404: "not_found_error"}.get(error.status, "api_error")
            problem = {"message": error.message, "type": kind, "param": None, "code": None}
            return JSONResponse({"error": problem}, error.status)
        data = b"".join(chunks(turn.answers(body["model"]), body))
        return StreamingResponse(self._sent(data), media_type="text/event-stream")

    def _note(self, http, body):
        self.bodies.append(body)
        self.paths.append(http.url.path)

    async def _sent(self, data):
        for piece in self._pieces(data):
            yield piece

    def _turn(self, body):
        """Return the turn for this request, or refuse it."""
        self.check(body)
        self.seen = self._fitted(body)
        turn = self._turns.pop(0) if len(self._turns) > 1 else self._turns[0]
        turn = msgspec.structs.replace(turn, prompt=min(turn.prompt, self.window))
        if not body.get("logprobs"):
            turn.lines = [{name: value for name, value in line.items() if name != "logprobs"} for line in turn.lines]
        limit = body.get("options", {}).get("num_predict", -1)
        if -1 < limit < len(turn.lines):
            turn = msgspec.structs.replace(turn, lines=turn.lines[:limit], reason="length", written=limit)
        return turn

    def check(self, body):
        """Refuse a request that Ollama refuses."""
        if body.get("model") != NAME:
            raise Refusal(404, f"model '{body.get('model')}' not found")
        think = body.get("think")
        if think is not None and think not in THINK:
            raise Refusal(
                400, f'invalid think value: "{think}" (must be "high", "medium", "low", "max", true, or false)'
            )
        if think and "thinking" not in self.able:
            raise Refusal(400, f'"{NAME}" does not support thinking')
        if body.get("tools") and "tools" not in self.able:
            raise Refusal(400, f"registry.ollama.ai/library/{NAME} does not support tools")
        if not 0 <= body.get("top_logprobs", 0) <= 20:
            raise Refusal(400, "top_logprobs must be between 0 and 20")
        check_options(body.get("options") or {})
        for message in body["messages"]:
            check_message(message)

    def _fitted(self, body):
        """Return the messages that the model sees; unless forbidden, the oldest are left out silently."""
        messages, window = body["messages"], (body.get("options") or {}).get("num_ctx", self.window)
        while sum(len(message["content"].split()) for message in messages) > window:
            if body.get("truncate") is False:
                inner = {
                    "code": 400,
                    "message": f"request (999 tokens) exceeds the available context size ({window} tokens), try increasing it",
                    "type": "exceed_context_size_error",
                }
                raise Refusal(400, json.dumps({"error": inner}))
            if len(messages) == 1:
                break
            messages = messages[1:]
        return messages


def check_options(options):
    """Refuse options of a wrong type."""
    for name, value in options.items():
        if name in OPTIONS and value is not None and not isinstance(value, OPTIONS[name]):
            kind = OPTIONS[name] if isinstance(OPTIONS[name], type) else int
            raise Refusal(400, f'option "{name}" must be of type {WORDS[kind]}')


def check_message(message):
    """Refuse a message that Go's decoder refuses."""
    fields = {
        "content": str,
        "thinking": str,
        "images": list,
        "tool_calls": list,
        "tool_name": str,
        "tool_call_id": str,
    }
    for name, kind in fields.items():
        if name in message and not isinstance(message[name], kind):
            raise Refusal(
                400,
                f"json: cannot unmarshal {type(message[name]).__name__} into Go struct field ChatRequest.messages.{name}",
            )
    for image in message.get("images", ()):
        base64.b64decode(image, validate=True)
    for call in message.get("tool_calls", ()):
        if not isinstance(call["function"]["arguments"], dict):
            raise Refusal(
                400,
                "json: cannot unmarshal string into Go struct field ToolCallFunction.arguments of type api.ToolCallFunctionArguments",
            )


# /v1


def native_request(body):
    """Return the native request for a chat completion: tool_choice, n and max_completion_tokens are ignored."""
    messages = []
    for message in body["messages"]:
        content = message.get("content")
        made = [
            {"function": {**call["function"], "arguments": json.loads(call["function"]["arguments"])}}
            for call in message.get("tool_calls", ())
        ]
        parts = content if isinstance(content, list) else [{"type": "text", "text": content or ""}]
        messages += [{"role": message["role"], "content": part.get("text", "")} for part in parts]
        if made:
            messages[-1]["tool_calls"] = made
    options = {"temperature": body.get("temperature", 1.0), "top_p": body.get("top_p", 1.0)}
    if "max_tokens" in body:
        options["num_predict"] = body["max_tokens"]
    native = {name: body[name] for name in ("model", "tools", "logprobs", "top_logprobs") if name in body}
    return {**native, "messages": messages, "options": options}


def chunks(lines, body):
    """Yield an event stream of these lines; at an error, its text is lost and the stream just ends."""
    head = {"id": "chatcmpl-7", "object": "chat.completion.chunk", "created": 1, "system_fingerprint": "fp_ollama"}
    called, role = False, {"role": "assistant"}

    def chunk(delta, finish=None, **more):
        choice = {"index": 0, "delta": delta, "finish_reason": finish}
        return frame({**head, "model": body["model"], "choices": [choice], **more})

    for line in lines:
        if "error" in line:
            yield chunk({"content": ""}, model="")
            return
        for delta in deltas(line["message"]):
            yield chunk({**role, **delta})
            role, called = {}, called or "tool_calls" in delta
        if line["done"]:
            yield chunk({}, "tool_calls" if called and line["done_reason"] == "stop" else line["done_reason"])
            prompt, written = line.get("prompt_eval_count", 0), line.get("eval_count", 0)
            usage = {"prompt_tokens": prompt, "completion_tokens": written, "total_tokens": prompt + written}
    if (body.get("stream_options") or {}).get("include_usage"):
        yield frame({**head, "choices": [], "usage": usage})
    yield b"data: [DONE]\n\n"


def deltas(message):
    """Yield the deltas of a message: a thought has its own chunk, calls come whole in one chunk."""
    if thought := message.get("thinking"):
        yield {"content": "", "reasoning": thought}
    if made := message.get("tool_calls"):
        yield {"content": message["content"], "tool_calls": [
            {"id": call.get("id", ""), "index": place, "type": "function",
             "function": {"name": call["function"]["name"], "arguments": json.dumps(call["function"]["arguments"], separators=(",", ":"))}}
            for place, call in enumerate(made)
        ]}  # fmt: skip
    elif message["content"]:
        yield {"content": message["content"]}


def frame(payload):
    """Return a frame of an event stream."""
    return b"data: " + json.dumps(payload).encode() + b"\n\n"


@asynccontextmanager
async def ollama(*turns, **options):
    """Run a server, at `url`."""
    server = Ollama(turns, **options)
    async with running(server.app) as server.url:
        yield server
