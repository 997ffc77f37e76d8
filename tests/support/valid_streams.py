"""Valid streams of chat completions, made at random, and what the official SDK makes of a stream.

python -m support.valid_streams COUNT [FIRST]        compare so many streams with what the gateway makes of them
"""

import json
from random import Random

from openai.lib.streaming.chat import ChatCompletionStreamState
from openai.types.chat import ChatCompletionChunk

_WORDS = ("Oslo", " and", "\n", "é", "😀", '"quoted"', "\\", "{", "}", "<tool", " 12", "")
_NAMES = ("f", "g", "lookup", "get_weather")
_VALUES = ("", "x", 'say "hi"', "a\nb", 3, -1.5, True, None, [1, "b", {}], {"k": {"l": []}}, "日本")
TOOLS = [{"type": "function", "function": {"name": name, "parameters": {"type": "object"}}} for name in _NAMES]


class _Choice:
    """The deltas of one choice, in an order that the API allows."""

    def __init__(self, random: Random, index: int) -> None:
        self.random, self.index = random, index
        self.calls = random.choice((0, 1, 1, 2, 3))

    def chunks(self):
        """Return the deltas; those of a call are in order, and everything else comes anywhere between them."""
        random = self.random
        rows = [self._call(number) for number in range(self.calls)]
        if random.random() < 0.7:
            rows.append([{"content": random.choice(_WORDS)} for _ in range(random.randrange(1, 6))])
        if random.random() < 0.4:
            rows.append([{"reasoning_content": random.choice(_WORDS)} for _ in range(random.randrange(1, 4))])
        if random.random() < 0.3:
            rows.append([{}, {"content": ""}, {"content": None}][: random.randrange(1, 4)])
        if random.random() < 0.5:
            return [delta for row in rows for delta in row]  # in turn
        return list(self._mixed(rows))

    def _call(self, number):
        random = self.random
        keys = random.sample(("city", "n", "list", "o"), random.randrange(0, 4))
        text = json.dumps({key: random.choice(_VALUES) for key in keys}, ensure_ascii=random.random() < 0.5)
        head = {"index": number, "id": f"call_{self.index}_{number}", "type": "function"}
        first = {"name": random.choice(_NAMES), "arguments": ""}
        pieces = list(_pieces(random, text))
        if pieces and random.random() < 0.3:
            first["arguments"] = pieces.pop(0)
        heads = [{"tool_calls": [{**head, "function": first}]}]
        return heads + [{"tool_calls": [{"index": number, "function": {"arguments": piece}}]} for piece in pieces]

    def _mixed(self, rows):
        left, begun = [list(row) for row in rows if row], 0
        while left:
            ready = [row for row in left if not _is_head(row[0]) or row[0]["tool_calls"][0]["index"] == begun]
            row = self.random.choice(ready)
            begun += _is_head(row[0])
            delta = row.pop(0)
            if "tool_calls" in delta and self.random.random() < 0.2:
                for other in left:  # several calls in one delta
                    if other is not row and other and "tool_calls" in other[0] and not _is_head(other[0]):
                        delta = {"tool_calls": [*delta["tool_calls"], *other.pop(0)["tool_calls"]]}
            yield delta
            left = [row for row in left if row]


def _is_head(delta):
    return "id" in delta.get("tool_calls", [{}])[0]


def _pieces(random, text):
    """Cut a text at random."""
    at = 0
    while at < len(text):
        size = random.choice((1, 2, 3, 7, len(text)))
        yield text[at : at + size]
        at += size


def stream(seed):
    """Return the chunks of one stream, and the number of its choices."""
    random = Random(seed)
    choices = [_Choice(random, index) for index in range(random.choice((1, 1, 1, 2)))]
    left = [[(choice, delta) for delta in choice.chunks()] + [(choice, None)] for choice in choices]
    chunks = [
        _chunk([{"index": choice.index, "delta": {"role": "assistant"}, "finish_reason": None}]) for choice in choices
    ]
    while left:
        row = random.choice(left)
        choice, delta = row.pop(0)
        reason = "tool_calls" if choice.calls else "stop"
        chunks.append(
            _chunk(
                [{"index": choice.index, "delta": delta or {}, "finish_reason": None if delta is not None else reason}]
            )
        )
        left = [row for row in left if row]
    usage = _chunk([]) | {"usage": {"prompt_tokens": 5, "completion_tokens": 7, "total_tokens": 12}}
    chunks.insert(random.choice((len(chunks), len(chunks), random.randrange(len(chunks)))), usage)
    return chunks, len(choices)


def _chunk(choices):
    return {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": choices}


def folded(chunks):
    """Return what the official SDK makes of chunks: of each choice the text, the calls, and the finish reason."""
    state = ChatCompletionStreamState()
    for chunk in chunks:
        state.handle_chunk(ChatCompletionChunk.model_validate(chunk))
    found = []
    for choice in state.current_completion_snapshot.choices:
        message = choice.message
        calls = [(call.id, call.function.name, call.function.arguments) for call in message.tool_calls or ()]
        thought = getattr(message, "reasoning_content", None) or ""
        found.append((choice.index, message.content or "", thought, calls, choice.finish_reason))
    return sorted(found)
