"""Build output items: an open item, perhaps an open part in it, and in that a run of deltas (`spec.md` C6).

Each of them begins by being made and ends by `close`, which gives what it came to.  It owns its index and its id, and
only while it is there can something be added to it: that is what keeps the order of events.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Literal, NamedTuple, TypeVar

from gateway.api.responses.event_stream import EventWriter, delta_template
from gateway.api.responses.objects import JsonObject, encode, event_logprobs, part_logprobs
from gateway.api.responses.params import Carrier
from gateway.api.signatures import ThinkingBlocks
from gateway.events import Logprob, ReasoningDelta

ItemStatus = Literal["completed", "incomplete", "failed"]
EncryptReasoning = Callable[[str, list[dict[str, Any]]], str | None]


class StreamedText:
    """A text that comes in deltas.  `event` is what its events' names begin with, `field` what it is in the end."""

    event: ClassVar[str]
    field: ClassVar[str]

    def __init__(self, frames: EventWriter, at: JsonObject) -> None:
        self._frames, self._at = frames, at
        self._pieces: list[str] = []
        self._like = delta_template(f"{self.event}.delta", at)

    def delta(self, *texts: str, more: bytes = b"") -> None:
        """Each is a delta of its own."""
        self._pieces += texts
        self._frames.write_deltas(self._like, texts, more)

    def done(self, **beside: object) -> str:
        """The whole text, told with what stands beside it."""
        text = "".join(self._pieces)
        self._frames.write_event(f"{self.event}.done", **self._at, **{self.field: text}, **beside)
        return text


class FunctionArguments(StreamedText):
    event, field = "response.function_call_arguments", "arguments"


class CustomToolInput(StreamedText):
    event, field = "response.custom_tool_call_input", "input"


class OutputPart(StreamedText):
    """Stream one part of an item: the next element of its list `member`, between its `boundary_events`."""

    type: ClassVar[str]
    member: ClassVar[str] = "content"
    boundary_events: ClassVar[str] = "response.content_part"

    def __init__(self, frames: EventWriter, at: JsonObject, index: int) -> None:
        super().__init__(frames, {**at, f"{self.member}_index": index})
        frames.write_event(f"{self.boundary_events}.added", **self._at, part=self._part(""))

    def close(self) -> JsonObject:
        part = self._part(self.done(**self._beside()))
        self._frames.write_event(f"{self.boundary_events}.done", **self._at, part=part)
        return part

    def _part(self, text: str) -> JsonObject:
        return {"type": self.type, self.field: text}

    def _beside(self) -> JsonObject:
        return {}


class RefusalPart(OutputPart):
    event, field, type = "response.refusal", "refusal", "refusal"


class ReasoningTextPart(OutputPart):
    event, field, type = "response.reasoning_text", "text", "reasoning_text"


class SummaryPart(OutputPart):
    event, field, type = "response.reasoning_summary_text", "text", "summary_text"
    member, boundary_events = "summary", "response.reasoning_summary_part"


class OutputTextPart(OutputPart):
    event, field, type = "response.output_text", "text", "output_text"

    def __init__(self, frames: EventWriter, at: JsonObject, index: int) -> None:
        self._logprobs: list[Logprob] = []
        self._annotations: list[JsonObject] = []
        super().__init__(frames, at, index)

    def text(self, *texts: str) -> None:
        self.delta(*texts, more=b',"logprobs":[]')

    def add_with_logprobs(self, text: str, logprobs: tuple[Logprob, ...]) -> None:
        """A text, and how likely it was."""
        self._logprobs += logprobs
        self.delta(text, more=b',"logprobs":' + encode(event_logprobs(logprobs)))

    def annotate(self, annotation: JsonObject) -> None:
        at = {**self._at, "annotation_index": len(self._annotations)}
        self._annotations.append(annotation)
        self._frames.write_event("response.output_text.annotation.added", **at, annotation=annotation)

    def _part(self, text: str) -> JsonObject:
        marks = {"annotations": self._annotations, "logprobs": part_logprobs(self._logprobs)}
        return {**super()._part(text), **marks}

    def _beside(self) -> JsonObject:
        return {"logprobs": event_logprobs(self._logprobs)}


_Kind = TypeVar("_Kind", bound=OutputPart)


class OutputItem(ABC):
    """`item` is how it begins, `index` its place in the output."""

    def __init__(self, frames: EventWriter, index: int, item: JsonObject) -> None:
        self._frames, self._item, self._index = frames, item, index
        self._at = {"item_id": item["id"], "output_index": index}
        frames.write_event("response.output_item.added", output_index=index, item=item)

    def close(self, status: ItemStatus) -> JsonObject:
        item = self._whole(status)
        self._frames.write_event("response.output_item.done", output_index=self._index, item=self._seen(item))
        return item

    def _seen(self, item: JsonObject) -> JsonObject:
        """As the client sees it."""
        return item

    @abstractmethod
    def _whole(self, status: ItemStatus) -> JsonObject:
        """The item with what came of it.  Ends what is open in it."""


# By type of item: what is told between its beginning and its end.
_MEANWHILE = {"compaction": "response.compaction.compacting"}


class CompleteItem(OutputItem):
    """An item that is whole when it begins; it needs no more than its end."""

    def __init__(self, frames: EventWriter, index: int, item: JsonObject) -> None:
        super().__init__(frames, index, item)
        if event := _MEANWHILE.get(item["type"]):
            frames.write_event(event, **self._at)

    def _whole(self, _: ItemStatus) -> JsonObject:
        return {**self._item, "status": "completed"} if self._item.get("status") == "in_progress" else self._item


class ItemEvents(NamedTuple):
    """The events of an item between its beginning and its end, as the last words of their names.

    run: what it is called with is known; "" where the `arguments` themselves are told.  ends: by its status.
    """

    run: str
    ends: Mapping[str, str]


_BOTH = {"completed": "completed", "failed": "failed", "incomplete": "failed"}
_ONE = dict.fromkeys(_BOTH, "completed")  # the API has no other event
HOSTED: Mapping[str, ItemEvents] = {
    "mcp_call": ItemEvents("", _BOTH),
    "mcp_list_tools": ItemEvents("", _BOTH),
    "web_search_call": ItemEvents("searching", _ONE),
    "file_search_call": ItemEvents("searching", _ONE),
}


class McpArguments(StreamedText):
    event, field = "response.mcp_call_arguments", "arguments"


class BuiltinCallItem(OutputItem):
    """Something that is done on our side of the client, of a type that is among HOSTED.

    seen: an item → as the client sees it.
    """

    def __init__(
        self, frames: EventWriter, index: int, item: JsonObject, seen: Callable[[JsonObject], JsonObject] = dict
    ) -> None:
        super().__init__(frames, index, item)
        self._sees = seen
        self._tell("in_progress")
        self._arguments = McpArguments(frames, self._at) if "arguments" in item else None
        self._said: JsonObject = {}
        self._end: JsonObject = {}

    def add_arguments(self, text: str) -> None:
        if self._arguments:
            self._arguments.delta(text)

    def run(self) -> None:
        """Note that the arguments are complete."""
        if self._arguments:
            self._said = {"arguments": self._arguments.done()}
        elif event := HOSTED[self._item["type"]].run:
            self._tell(event)
        self._arguments = None

    def end(self, members: JsonObject) -> JsonObject:
        """End the item with these members."""
        self._end = members
        return self.close(members.get("status", "completed"))

    def _whole(self, status: ItemStatus) -> JsonObject:
        if self._arguments:
            self.run()
        self._tell(HOSTED[self._item["type"]].ends[status])
        whole = {**self._item, **self._said, **self._end, "status": status}
        return {name: whole[name] for name in self._item}

    def _seen(self, item: JsonObject) -> JsonObject:
        return self._sees(item)

    def _tell(self, event: str) -> None:
        self._frames.write_event(f"response.{self._item['type']}.{event}", **self._at)


class MessageItem(OutputItem):
    def __init__(self, frames: EventWriter, index: int, id: str) -> None:
        item = {"id": id, "type": "message", "status": "in_progress", "role": "assistant", "content": []}
        super().__init__(frames, index, item)
        self._part: OutputPart | None = None
        self._parts: list[JsonObject] = []  # those that have ended

    def text(self, *texts: str) -> None:
        self._in(OutputTextPart).text(*texts)

    def add_with_logprobs(self, text: str, logprobs: tuple[Logprob, ...]) -> None:
        self._in(OutputTextPart).add_with_logprobs(text, logprobs)

    def annotate(self, annotation: JsonObject) -> None:
        self._in(OutputTextPart).annotate(annotation)

    def add_refusal(self, text: str) -> None:
        self._in(RefusalPart).delta(text)

    def _in(self, kind: type[_Kind]) -> _Kind:
        """The part that is open, if it is such a one; else a new one."""
        if isinstance(self._part, kind):
            return self._part
        self._end_part()
        self._part = part = kind(self._frames, self._at, len(self._parts))
        return part

    def ended(self, part: JsonObject) -> None:
        """This is what the open part came to."""
        self._parts.append(part)
        self._part = None

    def _end_part(self) -> None:
        if self._part:
            self.ended(self._part.close())

    def _whole(self, status: ItemStatus) -> JsonObject:
        self._end_part()
        return {**self._item, "status": status, "content": self._parts}


# By carrier: the part that shows the reasoning as it comes, and those that repeat it at the end.
_CARRIERS: dict[Carrier, tuple[type[OutputPart], ...]] = {
    "summary": (SummaryPart,),
    "text": (ReasoningTextPart,),
    "both": (SummaryPart, ReasoningTextPart),
    "hidden": (),
}


class ReasoningItem(OutputItem):
    """A reasoning item.  `seal` makes its encrypted_content of the text and the signed blocks."""

    def __init__(self, frames: EventWriter, index: int, id: str, carrier: Carrier, seal: EncryptReasoning) -> None:
        self._kinds, self._seal = _CARRIERS[carrier], seal
        lists: JsonObject = {"summary": [], **{kind.member: [] for kind in self._kinds}}
        item = {"id": id, "type": "reasoning", "status": "in_progress", **lists, "encrypted_content": None}
        super().__init__(frames, index, item)
        self._live: OutputPart | None = None
        self._texts: list[str] = []
        self._blocks = ThinkingBlocks()
        self._signed: list[dict[str, Any]] = []

    def add_reasoning(self, thought: ReasoningDelta) -> None:
        if thought.text:
            self.text(thought.text)
        if block := self._blocks.add(thought):
            self._signed.append(block)

    def text(self, text: str) -> None:
        self._texts.append(text)
        if not self._live and self._kinds:
            self._live = self._kinds[0](self._frames, self._at, 0)
        if self._live:
            self._live.delta(text)

    def _whole(self, status: ItemStatus) -> JsonObject:
        text = "".join(self._texts)
        fields: JsonObject = {"status": status}
        if self._live:
            fields[self._live.member] = [self._live.close()]
            fields |= {kind.member: [self._repeated(kind, text)] for kind in self._kinds[1:]}
        return {**self._item, **fields, "encrypted_content": self._seal(text, self._signed)}

    def _repeated(self, kind: type[OutputPart], text: str) -> JsonObject:
        part = kind(self._frames, self._at, 0)
        part.delta(text)
        return part.close()


class ToolCallItem(OutputItem):
    """A call of a function or a custom tool; `item` is without what it is called with."""

    def __init__(self, frames: EventWriter, index: int, item: JsonObject) -> None:
        run = FunctionArguments if item["type"] == "function_call" else CustomToolInput
        super().__init__(frames, index, {**item, run.field: ""})
        self._run = run(frames, self._at)

    def add_arguments(self, text: str) -> None:
        self._run.delta(text)

    def _whole(self, status: ItemStatus) -> JsonObject:
        # Older clients want the name again.
        beside = {"name": self._item["name"]} if isinstance(self._run, FunctionArguments) else {}
        return {**self._item, "status": status, self._run.field: self._run.done(**beside)}
