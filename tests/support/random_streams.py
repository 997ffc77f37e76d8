"""Generate valid streams of chat completions at random."""

import json
from random import Random

_CLEAR = ("Oslo", " and", "\n", "é", "😀", '"quoted"', "\\", "}", ">", "`", " 12", "")
_WORDS = (
    *_CLEAR,
    "{",
    "<tool",
    "[",
    "]",
    "<|",
    "</",
    "```json\n",
    "Action:",
    "functions.",
)  # also beginnings of tool calls
_NAMES = ("f", "g", "lookup", "get_weather")
_KEYS = ("city", "n", "list", "o")
_VALUES = ("", "x", 'say "hi"', "a\nb", "5", 3, -1.5, True, None, [1, "b", {}], {"o": {"o": []}}, "日本", "😀")
_TYPES = {"city": {"type": "string"}, "n": {"type": ["integer", "null"]}, "list": {"type": "array"}, "o": {}}
_SHAPES = ({}, {"type": "object", "properties": _TYPES})  # of every second tool
_REASONINGS = (("reasoning_content",), ("reasoning",), ("reasoning", "reasoning_content"))
_EMPTY = ({"content": ""}, {"content": None}, {"role": "assistant"}, {"reasoning_content": None}, {"refusal": None})
_HEAD = {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m"}
_USAGE = {"prompt_tokens": 5, "completion_tokens": 7, "total_tokens": 12}
SCHEMAS = {name: _SHAPES[place % 2] for place, name in enumerate(_NAMES)}


class _Choice:
    """The deltas of one choice, in an order that the API allows."""

    def __init__(self, random: Random, index: int) -> None:
        self.random, self.index = random, index
        self.calls = random.choice((0, 1, 1, 2, 3))
        # At the token limit, a format cannot tell the beginning of a tool call from text that the limit cut.
        self.cut = random.random() < 0.1
        self.words = _CLEAR if self.cut else _WORDS

    def chunks(self):
        """Return the deltas; those of a call are in order, everything else comes anywhere between them."""
        random = self.random
        rows = [self._call(number) for number in range(self.calls)]
        if random.random() < 0.7:
            rows.append([{"content": random.choice(self.words)} for _ in range(random.randrange(1, 6))])
        if random.random() < 0.4:
            fields = random.choice(_REASONINGS)
            rows.append([dict.fromkeys(fields, random.choice(self.words)) for _ in range(random.randrange(1, 4))])
        if random.random() < 0.3:
            rows.append([{}, {"content": ""}, {"content": None}][: random.randrange(1, 4)])
        if random.random() < 0.5:
            return [delta for row in rows for delta in row]  # in turn
        return list(self._mixed(rows))

    def _call(self, number):
        random = self.random
        values = {key: random.choice(_VALUES) for key in random.sample(_KEYS, random.randrange(0, 4))}
        text = json.dumps(values, ensure_ascii=random.random() < 0.5, indent=random.choice((None, None, 1)))
        head = {"index": number, "id": f"call_{self.index}_{number}", "type": "function"}
        first = {"name": random.choice(_NAMES), "arguments": ""}
        pieces = list(_pieces(random, text))
        if pieces and random.random() < 0.3:
            first["arguments"] = pieces.pop(0)
        heads = [{"tool_calls": [{**head, "function": first}]}]
        more = random.choice(({}, {}, {"id": None, "type": "function"}))
        rest = [{"index": number, **more, "function": {"arguments": piece}} for piece in pieces]
        return heads + [{"tool_calls": [one]} for one in rest]

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
    return bool(delta.get("tool_calls", [{}])[0].get("id"))


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
    choices = [_Choice(random, index) for index in range(random.choice((1, 1, 1, 2, 3)))]
    left = [_rows(random, choice) for choice in choices]
    chunks = [_chunk(choice.index, {"role": "assistant"}) for choice in choices]
    while left:
        chunks.append(random.choice(left).pop(0))
        left = [row for row in left if row]
    if random.random() < 0.2:
        return [chunk | {"usage": _USAGE} for chunk in chunks], len(choices)
    usage = {**_HEAD, "choices": [], "usage": _USAGE}
    chunks.insert(random.choice((len(chunks), len(chunks), random.randrange(len(chunks)))), usage)
    return chunks, len(choices)


def _rows(random, choice):
    """Return the chunks of a choice, the last one with its finish reason."""
    reason = "length" if choice.cut else "tool_calls" if choice.calls else "stop"
    deltas = list(choice.chunks())
    last = deltas.pop() if deltas and random.random() < 0.2 else {}
    chunks = [*(_chunk(choice.index, delta) for delta in deltas), _chunk(choice.index, last, reason)]
    if random.random() < 0.3:  # members without a value beside those that have one
        for chunk in chunks:
            only = chunk["choices"][0]
            only["delta"] = {**random.choice(_EMPTY), **only["delta"]}
    return chunks


def _chunk(index, delta, reason=None):
    return {**_HEAD, "choices": [{"index": index, "delta": delta, "finish_reason": reason}]}
