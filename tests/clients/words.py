"""What a scripted model says: raw text in the format hermes_json."""

import json
from typing import Any

from support.upstream import chunk, frame, stream

FORMAT = {"format": "hermes_json"}
PROMPT, COMPLETION = 1000, 10  # tokens of each answer


def response_stream(text: str, *calls: str, thought: str = "", prompt: int = PROMPT) -> list[Any]:
    """A streamed answer, a few characters at a time."""
    raw = (f"<think>{thought}</think>\n\n" if thought else "") + "\n".join([text, *calls])
    pieces = [chunk(raw[i : i + 5]) for i in range(0, len(raw), 5)]
    usage = {"prompt_tokens": prompt, "completion_tokens": COMPLETION, "total_tokens": prompt + COMPLETION}
    return stream(*pieces, chunk(finish="stop"), frame(choices=[], usage=usage))


def call(name: str, **arguments: Any) -> str:
    return f"<tool_call>\n{json.dumps({'name': name, 'arguments': arguments})}\n</tool_call>"
