"""Build the content blocks of a message.  A block begins by being made, and ends by `close`, which returns the whole.

A block owns its index, and only while it is there can anything be added to it: that keeps the order of events legal.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from json import JSONDecodeError, JSONDecoder
from typing import Any, ClassVar

from msgspec import Raw
from pydantic_core import from_json

from gateway.api.messages.event_frames import BlockEventWriter, JsonObject, delta_prefix
from gateway.api.signatures import ThinkingBlocks
from gateway.events import ReasoningDelta

SealThought = Callable[[str, list[dict[str, Any]]], str]
_lenient = JSONDecoder(strict=False)


class OutputBlock(ABC):
    """start: the block as it begins."""

    def __init__(self, events: BlockEventWriter, index: int, start: JsonObject) -> None:
        self._events, self._index, self._start = events, index, start
        events.write_event("content_block_start", index=index, content_block=start)

    def close(self) -> JsonObject:
        """End the block; return it as a whole message holds it."""
        block = self._whole()
        self._events.write_event("content_block_stop", index=self._index)
        return block

    @abstractmethod
    def _whole(self) -> JsonObject:
        """Return the whole block, after the deltas that end it."""

    def _write_delta(self, type: str, **members: object) -> None:
        self._events.write_event("content_block_delta", index=self._index, delta={"type": type, **members})


class CompleteBlock(OutputBlock):
    """A block that is whole when it begins."""

    def _whole(self) -> JsonObject:
        return self._start


class StreamedBlock(OutputBlock):
    """A block with a text that comes in deltas.  delta: the type of a delta, and the member with its text."""

    delta: ClassVar[tuple[str, str]]

    def __init__(self, events: BlockEventWriter, index: int, start: JsonObject) -> None:
        super().__init__(events, index, start)
        self._pieces: list[str] = []
        self._prefix = delta_prefix(index, *self.delta)

    def add(self, *texts: str) -> None:
        """Add texts, each as a delta of its own."""
        self._pieces += texts
        self._events.write_deltas(self._prefix, texts)

    def _joined(self) -> str:
        return "".join(self._pieces)


class TextBlock(StreamedBlock):
    """The text of the model, refusals included."""

    delta = ("text_delta", "text")

    def __init__(self, events: BlockEventWriter, index: int) -> None:
        super().__init__(events, index, {"type": "text", "text": ""})
        self._citations: list[JsonObject] = []

    def cite(self, citation: JsonObject) -> None:
        """Add the source of what was just said."""
        self._citations.append(citation)
        self._write_delta("citations_delta", citation=citation)

    def _whole(self) -> JsonObject:
        cited = {"citations": self._citations} if self._citations else {}
        return {"type": "text", "text": self._joined(), **cited}


class ThinkingBlock(StreamedBlock):
    """The reasoning of the model.  shown: with its text; seal: makes the signature of the text and the signed parts."""

    delta = ("thinking_delta", "thinking")

    def __init__(self, events: BlockEventWriter, index: int, seal: SealThought, *, shown: bool) -> None:
        super().__init__(events, index, {"type": "thinking", "thinking": "", "signature": ""})
        self._seal, self._shown = seal, shown
        self._parts = ThinkingBlocks()
        self._signed: list[dict[str, Any]] = []

    def add_reasoning(self, thought: ReasoningDelta) -> None:
        """Add a piece of the thought, or what the upstream signed it with."""
        if thought.text and self._shown:
            self.add(thought.text)
        elif thought.text:
            self._pieces.append(thought.text)
        if part := self._parts.add(thought):
            self._signed.append(part)

    def _whole(self) -> JsonObject:
        text = self._joined()
        signature = self._seal(text, self._signed)
        self._write_delta("signature_delta", signature=signature)
        return {"type": "thinking", "thinking": text if self._shown else "", "signature": signature}


class ToolUseBlock(StreamedBlock):
    """A call; `complete` is False for arguments that are no object."""

    delta = ("input_json_delta", "partial_json")

    def __init__(self, events: BlockEventWriter, index: int, start: JsonObject) -> None:
        super().__init__(events, index, {**start, "input": {}})
        self.complete = True

    def _whole(self) -> JsonObject:
        if not any(self._pieces):
            self.add("{}")
        text = self._joined()
        return {**self._start, "input": Raw(text.encode()) if self.complete else readable_object(text)}


def readable_object(text: str) -> JsonObject:
    """Return the longest object that can be read from the beginning of a text; an empty one if no object can be read.

    A string that was cut is left out, as clients leave it out of a stream: half a path is another path.
    """
    try:
        value, _ = _lenient.raw_decode(text.lstrip())
    except (JSONDecodeError, RecursionError) as error:
        end = error.pos if isinstance(error, JSONDecodeError) else 0
        value = _prefix_value(text) or _prefix_value(text.lstrip()[:end])
    return value if isinstance(value, dict) else {}


def _prefix_value(text: str) -> Any:  # noqa: ANN401 - decoded JSON
    """Return the value of a text whose end is missing; None for no value."""
    try:
        return from_json(text, allow_partial=True)
    except ValueError:
        return None
