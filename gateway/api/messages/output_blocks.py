"""Build the content blocks of a message.  A block begins when it is made, and ends with `close`.

Only an open block can write deltas, which keeps the order of events legal.
"""

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from json import JSONDecodeError, JSONDecoder
from typing import Any, ClassVar

from msgspec import Raw
from pydantic_core import from_json

from gateway.api.messages.event_frames import BlockEventWriter, JsonObject, delta_prefix
from gateway.api.responses.params import EncoderInputs
from gateway.api.signatures import ThinkingBlocks
from gateway.events import ReasoningDelta
from gateway.request import StoredReasoning

_SEARCH, _FETCH = "web_search", "web_fetch"
_REQUESTS = {_SEARCH: "web_search_requests", _FETCH: "web_fetch_requests"}  # as the usage names them


SealThought = Callable[[str, list[dict[str, Any]]], str]
_lenient = JSONDecoder(strict=False)


class OutputBlock(ABC):
    """An open block.  start: the block at its beginning."""

    def __init__(self, events: BlockEventWriter, index: int, start: JsonObject) -> None:
        self._events, self._index, self._start = events, index, start
        events.write_event("content_block_start", index=index, content_block=start)

    def close(self) -> JsonObject:
        """End the block; return it as a whole message has it."""
        block = self._whole()
        self._events.write_event("content_block_stop", index=self._index)
        return block

    @abstractmethod
    def _whole(self) -> JsonObject:
        """Return the whole block, after its last deltas."""

    def _write_delta(self, type: str, **members: object) -> None:
        self._events.write_event("content_block_delta", index=self._index, delta={"type": type, **members})


class CompleteBlock(OutputBlock):
    """A block that is whole at its beginning."""

    def _whole(self) -> JsonObject:
        """Return the whole block, after its last deltas."""
        return self._start


class StreamedBlock(OutputBlock):
    """A block with a text in deltas.  delta: the type of a delta, and the member with its text."""

    delta: ClassVar[tuple[str, str]]

    def __init__(self, events: BlockEventWriter, index: int, start: JsonObject) -> None:
        super().__init__(events, index, start)
        self._pieces: list[str] = []
        self._prefix = delta_prefix(index, *self.delta)

    def add(self, *texts: str) -> None:
        """Write each text as a delta."""
        self._pieces += texts
        self._events.write_deltas(self._prefix, texts)

    def _joined(self) -> str:
        return "".join(self._pieces)


class TextBlock(StreamedBlock):
    """The text of the model, refusals included."""

    delta = ("text_delta", "text")

    def __init__(self, events: BlockEventWriter, index: int, members: JsonObject) -> None:
        super().__init__(events, index, {"type": "text", "text": "", **members})
        self._citations: list[JsonObject] = []

    def cite(self, citation: JsonObject) -> None:
        """Add a source of the text so far."""
        self._citations.append(citation)
        self._write_delta("citations_delta", citation=citation)

    def _whole(self) -> JsonObject:
        """Return the whole block, after its last deltas."""
        cited = {"citations": self._citations} if self._citations else {}
        return {**self._start, "text": self._joined(), **cited}


class ThinkingBlock(StreamedBlock):
    """The reasoning of the model.  shown: with its text; seal: makes the signature of text and signed parts."""

    delta = ("thinking_delta", "thinking")

    def __init__(
        self, events: BlockEventWriter, index: int, members: JsonObject, seal: SealThought, *, shown: bool
    ) -> None:
        super().__init__(events, index, {"type": "thinking", "thinking": "", "signature": "", **members})
        self._seal, self._shown = seal, shown
        self._parts = ThinkingBlocks()
        self._signed: list[dict[str, Any]] = []

    def add_reasoning(self, thought: ReasoningDelta) -> None:
        """Add reasoning, or the upstream's signature."""
        if thought.text and self._shown:
            self.add(thought.text)
        elif thought.text:
            self._pieces.append(thought.text)
        if part := self._parts.add(thought):
            self._signed.append(part)

    def _whole(self) -> JsonObject:
        """Return the whole block, after its last deltas."""
        text = self._joined()
        unsealed = next((part["signature"] for part in self._signed if part.get("unsealed")), None)
        signature = unsealed or self._seal(text, self._signed)
        self._write_delta("signature_delta", signature=signature)
        return {**self._start, "thinking": text if self._shown else "", "signature": signature}


class ToolUseBlock(StreamedBlock):
    """A tool call; `complete` is False if its arguments are not an object."""

    delta = ("input_json_delta", "partial_json")

    def __init__(self, events: BlockEventWriter, index: int, start: JsonObject) -> None:
        super().__init__(events, index, {**start, "input": {}})
        self.complete = True

    def _whole(self) -> JsonObject:
        """Return the whole block, after its last deltas."""
        if not any(self._pieces):
            self.add("{}")
        text = self._joined()
        return {**self._start, "input": Raw(text.encode()) if self.complete else readable_object(text)}


def readable_object(text: str) -> JsonObject:
    """Return the longest object at the beginning of a text; an empty one if no object can be read.

    A string that was cut is left out, as clients do: half a path is another path.
    """
    try:
        value, _ = _lenient.raw_decode(text.lstrip())
    except (JSONDecodeError, RecursionError) as error:
        end = error.pos if isinstance(error, JSONDecodeError) else 0
        value = _prefix_value(text) or _prefix_value(text.lstrip()[:end])
    return value if isinstance(value, dict) else {}


def _prefix_value(text: str) -> Any:  # noqa: ANN401 - decoded JSON
    """Return the value of a text without its end; None for no value."""
    try:
        return from_json(text, allow_partial=True)
    except ValueError:
        return None


def use_start(item: Mapping[str, Any], new_id: Callable[[str], str]) -> JsonObject | None:
    """Return the block of a call without its input; None for an item that the API lacks."""
    if item["type"] == "web_search_call":
        name = _SEARCH if item["action"]["type"] == "search" else _FETCH
        return {"type": "server_tool_use", "id": new_id("srvtoolu_"), "name": name}
    if item["type"] == "mcp_call":
        server = item["server_label"]
        return {"type": "mcp_tool_use", "id": new_id("mcptoolu_"), "name": item["name"], "server_name": server}
    return None


def request_counts(names: Iterable[str]) -> dict[str, int]:
    """Return the number of requests of these calls, by the names of the usage; empty for none."""
    counted = Counter(name for name in names if name in _REQUESTS)
    return {_REQUESTS[name]: counted[name] for name in _REQUESTS} if counted else {}


def use_result(use: Mapping[str, Any], end: Mapping[str, Any], inputs: EncoderInputs) -> JsonObject:
    """Return the result block of a call.  end: the members of its item at the end."""
    failed = end.get("status", "completed") == "failed"
    if use["type"] == "mcp_tool_use":
        content = [{"type": "text", "text": _mcp_text(end)}]
        return {"type": "mcp_tool_result", "tool_use_id": use["id"], "is_error": failed, "content": content}
    name = use["name"]
    results = end.get("results") or []
    made: Any = [_found(result, inputs) for result in results]
    if failed:
        made = {"type": f"{name}_tool_result_error", "error_code": end.get("error_code", "unavailable")}
    elif name == _FETCH:
        made = _page(results, end)
    return {"type": f"{name}_tool_result", "tool_use_id": use["id"], "content": made}


def _mcp_text(end: Mapping[str, Any]) -> str:
    if not (error := end.get("error")):
        return end.get("output") or ""
    parts = error.get("content") or [{"text": error.get("message") or ""}]
    return "\n".join(part["text"] for part in parts)


def _found(result: Mapping[str, Any], inputs: EncoderInputs) -> JsonObject:
    sealed = inputs.seal(StoredReasoning(result["text"]))
    members = {"url": result["url"], "title": result["title"], "encrypted_content": sealed, "page_age": None}
    return {"type": "web_search_result", **members}


def _page(results: list[dict[str, Any]], end: Mapping[str, Any]) -> JsonObject:
    text = "\n\n".join(result["text"] for result in results)
    title = results[0]["title"] if results else None
    source = {"type": "text", "media_type": "text/plain", "data": text}
    document = {"type": "document", "source": source, "title": title}
    url = (end.get("action") or {}).get("url") or ""
    return {"type": "web_fetch_result", "url": url, "content": document, "retrieved_at": None}
