"""Define the requests that `requests` counts: the client's body, and the backend's response to it."""

import base64
import json
from collections.abc import Callable
from functools import cache

from msgspec import Struct
from msgspec.structs import replace

from bench.traffic import CHAT, RESPONSES

EMBEDDINGS = "/v1/embeddings"
_HEAD = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1700000000, "model": "m"}
_USAGE = {"prompt_tokens": 9, "completion_tokens": 50, "total_tokens": 59}
_TEXTS, _DIMENSIONS = 2048, 1536  # of a large request for embeddings
_IMAGE = 5 << 20  # bytes of base64


class Sort(Struct, frozen=True):
    """One sort of request, and its limits.  wanted: instructions; ms: of CPU."""

    path: str
    body: Callable[[], bytes]
    response: Callable[[], bytes]
    warm: int = 60  # requests before those that count: Python specializes its instructions
    times: int = 20  # requests that count
    wanted: float | None = None
    writes: int | None = None
    ms: int | None = None
    websocket: bool = False


class Ratio(Struct, frozen=True):
    """The instructions of a sort as a multiple of those of another."""

    sort: str
    other: str
    wanted: float


def _json(**members: object) -> Callable[[], bytes]:
    return cache(lambda: json.dumps(members, separators=(",", ":")).encode())


def _chunk(**delta: object) -> bytes:
    choice = {"index": 0, "delta": delta, "finish_reason": None if delta else "stop"}
    return b"data: " + json.dumps({**_HEAD, "choices": [choice]}, separators=(",", ":")).encode() + b"\n\n"


def _stream(tokens: int) -> Callable[[], bytes]:
    words = b"".join([_chunk(role="assistant", content=""), _chunk(content=" word") * tokens, _chunk()])
    usage = json.dumps({**_HEAD, "choices": [], "usage": _USAGE}, separators=(",", ":")).encode()
    return lambda: words + b"data: " + usage + b"\n\ndata: [DONE]\n\n"


def _whole(tokens: int = 50) -> Callable[[], bytes]:
    message = {"role": "assistant", "content": " word" * tokens}
    choice = {"index": 0, "message": message, "finish_reason": "stop"}
    return _json(**_HEAD | {"object": "chat.completion"}, choices=[choice], usage=_USAGE)


@cache
def image(size: int = _IMAGE) -> bytes:
    """Return a chat completion with an image of so many bytes."""
    data = base64.b64encode(b"\x89PNG\r\n\x1a\n" + bytes(range(251)) * (size // 4 * 3 // 251)).decode()
    parts = [{"type": "text", "text": "What is this?"}, {"type": "image_url", "image_url": {"url": _PNG + data}}]
    return _json(model="m", messages=[{"role": "user", "content": parts}])()


_PNG = "data:image/png;base64,"


def _tool(number: int) -> dict[str, object]:
    """Return a function tool of about a kilobyte, as an agent sends it."""
    described = "What the parameter means, and which values of it the tool accepts at most."
    texts = {f"text_{place}": {"type": "string", "description": described} for place in range(6)}
    more = {
        "mode": {"type": "string", "enum": ["read", "write", "append"], "description": described},
        "paths": {"type": "array", "items": {"type": "string"}, "description": described},
        "limit": {"type": "number", "description": described},
    }
    parameters = {"type": "object", "properties": texts | more, "required": ["text_0"], "additionalProperties": False}
    about = f"Tool number {number} of an agent. " + "It does one thing in the workspace and reports the result. " * 3
    return {
        "type": "function",
        "name": f"tool_{number}",
        "description": about,
        "strict": False,
        "parameters": parameters,
    }


def _message(role: str, text: str) -> dict[str, object]:
    kind = "output_text" if role == "assistant" else "input_text"
    return {"type": "message", "role": role, "content": [{"type": kind, "text": text}]}


def _codex_input() -> list[dict[str, object]]:
    call = {"type": "function_call", "name": "tool_1", "arguments": '{"text_0":"ls -la src"}', "call_id": "call_1"}
    output = {"type": "function_call_output", "call_id": "call_1", "output": "src/main.py\n" * 40}
    return [
        _message("developer", "<permissions>Commands run in a sandbox.</permissions> " * 20),
        _message("user", "<environment>The workspace is /home/user/project.</environment> " * 10),
        _message("user", "Find the bug in src/main.py, and mend it."),
        call,
        output,
    ]


def _codex(stream: bool = True, **more: object) -> Callable[[], bytes]:
    """Return a turn of Codex: 42 kB with 20 tools."""
    return _json(
        model="m",
        instructions="You are a coding agent. Work in small steps, and test each of them. " * 160,
        input=_codex_input(),
        tools=[_tool(number) for number in range(20)],
        tool_choice="auto",
        parallel_tool_calls=True,
        reasoning={"effort": "medium", "summary": "auto"},
        store=False,
        include=["reasoning.encrypted_content"],
        prompt_cache_key="0190a1b2-0000-7000-8000-000000000000",
        **{"stream": True} if stream else {},
        **more,
    )


def texts_to_embed(texts: int = _TEXTS) -> Callable[[], bytes]:
    """Return a request for the embeddings of so many texts."""
    return _json(model="m", input=["A text to embed."] * texts)


@cache
def vectors(texts: int = _TEXTS) -> bytes:
    """Return the embeddings of so many texts."""
    vector = ",".join(f"{(place * 7919 % 20011 - 10005) / 123457:.9f}" for place in range(_DIMENSIONS))
    entry = '{"object":"embedding","index":%d,"embedding":[' + vector + "]}"
    entries = ",".join(entry % place for place in range(texts))
    usage = '"usage":{"prompt_tokens":8192,"total_tokens":8192}'
    return f'{{"object":"list","data":[{entries}],"model":"m",{usage}}}'.encode()


_HI = [{"role": "user", "content": "What is the weather in Paris?"}]
_ITEM = "What is the weather in Paris?"
SORTS = {
    "whole answer": Sort(CHAT, _json(model="m", messages=_HI), _whole()),
    "stream of one token": Sort(CHAT, _json(model="m", messages=_HI, stream=True), _stream(1)),
    "a response": Sort(RESPONSES, _json(model="m", input=_ITEM, store=False), _whole()),
    "a stored response": Sort(RESPONSES, _json(model="m", input=_ITEM, store=True), _whole()),
    "a Codex turn, streamed": Sort(RESPONSES, _codex(), _stream(20)),
    "a WebSocket turn of 50 deltas": Sort(
        RESPONSES,
        _json(type="response.create", model="m", input=_ITEM, store=False),
        _stream(50),
        writes=6,
        websocket=True,
    ),
    "an image of 5 MB": Sort(CHAT, image, _whole(), warm=2, times=2, wanted=12e6),
    "embeddings 2,048 × 1,536": Sort(EMBEDDINGS, texts_to_embed(), vectors, warm=1, times=2, ms=150),
}
FIRST = replace(SORTS["a stored response"], warm=0, times=1)
RATIOS = (Ratio("a stored response", "a response", 2.2),)
