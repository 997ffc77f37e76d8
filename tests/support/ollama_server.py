"""An Ollama with a model: as with the real one, llama.cpp's server does the work underneath.

    with live_ollama(url_of_a_llama_cpp) as url: ...

It accepts, refuses and ignores the same as ollama.py.  Thoughts and text come from the server underneath as they are
generated; all calls come at the end, if their arguments are JSON.
"""

import json
from contextlib import contextmanager

from starlette.responses import JSONResponse, StreamingResponse

from gateway.backends.kinds.llamacpp import schema_to_gbnf
from support.ollama import MADE, Ollama, Refusal, whole, written
from support.threaded_gateway import listening, underneath

# Options → their names underneath.
OPTIONS = {
    "num_predict": "max_tokens", "repeat_penalty": "repeat_penalty", "typical_p": "typical_p",
    **{name: name for name in ("frequency_penalty", "min_p", "presence_penalty", "repeat_last_n", "seed", "stop",
                               "temperature", "top_k", "top_p")},
}  # fmt: skip
TOO_LONG = "exceed_context_size_error"


class LiveOllama(Ollama):
    """The server; `url`: of the llama.cpp, which parses thoughts and calls itself."""

    def __init__(self, url, window):
        super().__init__([], able=("completion", "tools", "thinking"), window=window)
        self._below = underneath(url)
        self.app.add_route("/v1/completions", self.completions, methods=["POST"])
        self.app.add_route("/v1/embeddings", self.embeddings, methods=["POST"])

    async def native(self, http):
        """Respond to a request of the native API."""
        body = await http.json()
        try:
            self.check(body)
            lines = self._lines(body)
            first = await anext(lines)
        except Refusal as error:
            return JSONResponse({"error": error.message}, error.status)
        if body.get("stream") is False:
            return whole([first, *[line async for line in lines]])
        return StreamingResponse(self._stream(first, lines), media_type="application/x-ndjson")

    async def completions(self, http):
        """Respond to a text completion; the prompt goes into the template as a user message."""
        body = await http.json()
        options = {"num_predict": body["max_tokens"]} if "max_tokens" in body else {}
        options |= {name: body[name] for name in ("stop", "temperature", "top_p", "seed") if name in body}
        request = {
            "model": body["model"],
            "messages": [{"role": "user", "content": body["prompt"]}],
            "options": options,
        }
        lines = [line async for line in self._lines(request)]
        if body.get("stream"):
            return StreamingResponse(completion_chunks(lines, body), media_type="text/event-stream")
        text = "".join(line["message"]["content"] for line in lines)
        return JSONResponse(completion(body, text, lines[-1]["done_reason"], usage=counts(lines[-1])))

    async def embeddings(self, http):
        """Respond to a request for embeddings, which the server underneath refuses."""
        answer = await self._below.post("/v1/embeddings", json=await http.json())
        error = {"message": answer.json()["error"]["message"], "type": "api_error", "param": None, "code": None}
        return JSONResponse({"error": error}, 500)

    async def _stream(self, first, lines):
        yield written(first)
        async for line in lines:
            yield written(line)

    async def _lines(self, body):
        """Yield the lines of the response; unless forbidden, the oldest messages are left out until the rest fits."""
        head, request = {"model": body["model"], "created_at": MADE}, below(body)
        try:
            async for line in self._response_lines(request):
                yield {**head, **line}
        except Refusal as error:
            if TOO_LONG not in error.message or body.get("truncate") is False or len(body["messages"]) == 1:
                raise
            async for line in self._lines({**body, "messages": body["messages"][1:]}):
                yield line

    async def _response_lines(self, request):
        calls, reason, usage = {}, "stop", {}
        async with self._below.stream("POST", "/v1/chat/completions", json=request) as answer:
            if answer.status_code != 200:
                raise Refusal(answer.status_code, (await answer.aread()).decode())
            async for chunk in chunks_of(answer):
                usage = chunk.get("usage") or usage
                for choice in chunk["choices"]:
                    collect(calls, choice["delta"])
                    reason = choice["finish_reason"] or reason
                    if line := line_of(choice):
                        yield line
        try:
            if calls:
                yield called(calls)
        except json.JSONDecodeError:
            yield {"error": "llama-server returned invalid tool call arguments"}
            return
        yield end(reason, usage)


def below(body):
    """Return the request to the server underneath."""
    options = {OPTIONS[name]: value for name, value in (body.get("options") or {}).items() if name in OPTIONS}
    if options.get("max_tokens", 0) < 0:
        del options["max_tokens"]
    request = {name: body[name] for name in ("tools", "logprobs", "top_logprobs") if name in body}
    if "think" in body:
        request["chat_template_kwargs"] = {"enable_thinking": bool(body["think"])}
    if form := body.get("format"):  # a grammar from the first token on, even if the model would begin otherwise
        request |= {"grammar": schema_to_gbnf({"type": "object"} if form == "json" else form), "tool_choice": "none"}
    streamed = {"stream": True, "stream_options": {"include_usage": True}}
    return {"messages": [*map(message, body["messages"])], **options, **request, **streamed}


def message(entry):
    """Return a message as the server underneath expects it."""
    given = {name: entry[name] for name in ("role", "content", "tool_call_id") if name in entry}
    if entry.get("thinking"):
        given["reasoning_content"] = entry["thinking"]
    if images := entry.get("images"):
        urls = [{"type": "image_url", "image_url": {"url": f"data:image/png;base64,{image}"}} for image in images]
        given["content"] = [{"type": "text", "text": entry.get("content", "")}, *urls]
    if calls := entry.get("tool_calls"):
        given["tool_calls"] = [
            {
                "id": call.get("id", ""),
                "type": "function",
                "function": {"name": call["function"]["name"], "arguments": json.dumps(call["function"]["arguments"])},
            }
            for call in calls
        ]
    return given


async def chunks_of(answer):
    """Yield the chunks of a response."""
    async for line in answer.aiter_lines():
        if line.startswith("data: {"):
            yield json.loads(line[6:])


def collect(calls, delta):
    """Collect calls from pieces: id, name and arguments by index."""
    for piece in delta.get("tool_calls", ()):
        call = calls.setdefault(piece["index"], {"id": "", "name": "", "arguments": ""})
        call["id"] += piece.get("id", "")
        for name, text in piece["function"].items():
            call[name] += text


def line_of(choice):
    """Return a line with the text or thought of a chunk; None if it has neither."""
    delta, message = choice["delta"], {"role": "assistant", "content": choice["delta"].get("content") or ""}
    if thought := delta.get("reasoning_content"):
        message["thinking"] = thought
    chances = [
        {**token_of(one), "top_logprobs": [*map(token_of, one["top_logprobs"])]}
        for one in (choice.get("logprobs") or {}).get("content") or ()
    ]
    if not (message["content"] or thought):
        return None
    return {"message": message, **({"logprobs": chances} if chances else {}), "done": False}


def token_of(chance):
    """Return the log probability of a token as Ollama has it."""
    return {name: chance[name] for name in ("token", "logprob", "bytes")}


def called(calls):
    """Return a line with all calls.  Raises JSONDecodeError for invalid arguments."""
    made = [
        {
            "id": call["id"],
            "function": {"index": index, "name": call["name"], "arguments": json.loads(call["arguments"])},
        }
        for index, call in sorted(calls.items())
    ]
    return {"message": {"role": "assistant", "content": "", "tool_calls": made}, "done": False}


def end(reason, usage):
    """Return the last line; the reason of tool calls is "stop"."""
    spent = {"total_duration": 5000, "load_duration": 1000, "prompt_eval_duration": 1, "eval_duration": 2}
    numbers = {"prompt_eval_count": usage["prompt_tokens"], "eval_count": usage["completion_tokens"]}
    message = {"role": "assistant", "content": ""}
    return {
        "message": message,
        "done": True,
        "done_reason": "length" if reason == "length" else "stop",
        **spent,
        **{name: number for name, number in numbers.items() if number},
    }


# /v1/completions


def counts(last):
    """Return the usage of the last line."""
    prompt, written = last["prompt_eval_count"], last["eval_count"]
    return {"prompt_tokens": prompt, "completion_tokens": written, "total_tokens": prompt + written}


def completion(body, text, finish, **more):
    """Return a text completion."""
    choice = {"text": text, "index": 0, "finish_reason": finish}
    head = {"id": "cmpl-7", "object": "text_completion", "created": 1, "system_fingerprint": "fp_ollama"}
    return {**head, "model": body["model"], "choices": [choice], **more}


async def completion_chunks(lines, body):
    """Yield the frames of a streamed text completion."""
    chunks = [completion(body, line["message"]["content"], line.get("done_reason")) for line in lines]
    if (body.get("stream_options") or {}).get("include_usage"):
        chunks.append({**completion(body, "", None), "choices": [], "usage": counts(lines[-1])})
    for chunk in chunks:
        yield b"data: " + json.dumps(chunk).encode() + b"\n\n"
    yield b"data: [DONE]\n\n"


@contextmanager
def live_ollama(url, window=4096):
    """Run the server within the block, and yield its URL."""
    with listening(LiveOllama(url, window).app) as own:
        yield own
