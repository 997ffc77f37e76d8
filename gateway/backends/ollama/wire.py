"""The type of an answer of /api/chat: a line of a stream, or the whole of it (Ollama's api/types.go, ChatResponse)."""

from typing import Any

from msgspec import Struct

from gateway.backends.openai.wire import LenientNumber, WireMessage


class OllamaChunk(Struct):
    message: WireMessage | None = None
    done: bool | None = None
    done_reason: Any = None
    prompt_eval_count: LenientNumber = None
    eval_count: LenientNumber = None
    logprobs: Any = None
    error: Any = None
