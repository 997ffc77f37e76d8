"""Build output items: an open item may hold an open part, and the part a run of deltas.

Each object begins when it is constructed and ends with `close`, which returns its final form.  It owns its index and
its id, and takes content only while it is open.  The order of events follows from that.
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
    """A text that comes in deltas.

    event: the prefix of its event names.
    field: the member that holds the whole text at the end.
    """

    event: ClassVar[str]
    field: ClassVar[str]

    def __init__(self, frames: EventWriter, at: JsonObject) -> None:
        self._frames, self._at = frames, at
        self._pieces: list[str] = []
        self._like = delta_template(f"{self.event}.delta", at)

    def delta(self, *texts: str, more: bytes = b"") -> None:
        """Write one delta for each text.

        more: further members of each, encoded with a comma in front.
        """
        self._pieces += texts
        self._frames.write_deltas(self._like, texts, more)

    def done(self, **beside: object) -> str:
        """Write the done event with these further members, and return the whole text."""
        text = "".join(self._pieces)
        self._frames.write_event(f"{self.event}.done", **self._at, **{self.field: text}, **beside)
        return text


class FunctionArguments(StreamedText):
    """The arguments of a function call."""

    event, field = "response.function_call_arguments", "arguments"


class CustomToolInput(StreamedText):
    """The input of a custom tool call."""

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
        """Write the end of the part, and return the part."""
        part = self._part(self.done(**self._beside()))
        self._frames.write_event(f"{self.boundary_events}.done", **self._at, part=part)
        return part

    def _part(self, text: str) -> JsonObject:
        return {"type": self.type, self.field: text}

    def _beside(self) -> JsonObject:
        return {}


class RefusalPart(OutputPart):
    """A refusal in a message."""

    event, field, type = "response.refusal", "refusal", "refusal"


class ReasoningTextPart(OutputPart):
    """Reasoning in the `content` of a reasoning item."""

    event, field, type = "response.reasoning_text", "text", "reasoning_text"


class SummaryPart(OutputPart):
    """Reasoning in the `summary` of a reasoning item."""

    event, field, type = "response.reasoning_summary_text", "text", "summary_text"
    member, boundary_events = "summary", "response.reasoning_summary_part"


class OutputTextPart(OutputPart):
    """A text in a message, with its annotations and log-probabilities."""

    event, field, type = "response.output_text", "text", "output_text"

    def __init__(self, frames: EventWriter, at: JsonObject, index: int) -> None:
        self._logprobs: list[Logprob] = []
        self._annotations: list[JsonObject] = []
        super().__init__(frames, at, index)

    def text(self, *texts: str, logprobs: tuple[Logprob, ...] = ()) -> None:
        """Add texts; log-probabilities are those of a single text."""
        if not logprobs:
            self.delta(*texts, more=b',"logprobs":[]')
            return
        self._logprobs += logprobs
        self.delta(*texts, more=b',"logprobs":' + encode(event_logprobs(logprobs)))

    def annotate(self, annotation: JsonObject) -> None:
        """Add an annotation."""
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
    """Stream one output item.

    item: its object at the start.
    index: its position in the output.
    """

    def __init__(self, frames: EventWriter, index: int, item: JsonObject) -> None:
        self._frames, self._item, self._index = frames, item, index
        self._at = {"item_id": item["id"], "output_index": index}
        frames.write_event("response.output_item.added", output_index=index, item=item)

    def close(self, status: ItemStatus) -> JsonObject:
        """Write the end of the item, and return its object."""
        item = self._whole(status)
        self._frames.write_event("response.output_item.done", output_index=self._index, item=self._seen(item))
        return item

    def _seen(self, item: JsonObject) -> JsonObject:
        """Return the item as the client sees it."""
        return item

    @abstractmethod
    def _whole(self, status: ItemStatus) -> JsonObject:
        """Close what is open within the item, and return its final object."""


# By type of item: the event between its start and its end.
_MEANWHILE = {"compaction": "response.compaction.compacting"}


class CompleteItem(OutputItem):
    """An item that is complete at its start, and needs only its end."""

    def __init__(self, frames: EventWriter, index: int, item: JsonObject) -> None:
        super().__init__(frames, index, item)
        if event := _MEANWHILE.get(item["type"]):
            frames.write_event(event, **self._at)

    def _whole(self, _: ItemStatus) -> JsonObject:
        return {**self._item, "status": "completed"} if self._item.get("status") == "in_progress" else self._item


class ItemEvents(NamedTuple):
    """The last words of the names of an item's events between its start and its end.

    run: for complete arguments; "" if the events carry the `arguments` themselves.
    ends: by the status of the item.
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
    """The arguments of an MCP call."""

    event, field = "response.mcp_call_arguments", "arguments"


class BuiltinCallItem(OutputItem):
    """A call of a tool that runs at the gateway, of a type in HOSTED.

    seen: returns an item as the client sees it.
    """

    def __init__(
        self, frames: EventWriter, index: int, item: JsonObject, seen: Callable[[JsonObject], JsonObject] = dict
    ) -> None:
        super().__init__(frames, index, item)
        self._sees = seen
        self._tell("in_progress")
        self._arguments = McpArguments(frames, self._at) if "arguments" in item else None
        self._complete_arguments: JsonObject = {}
        self._end: JsonObject = {}

    def add_arguments(self, text: str) -> None:
        """Add the next piece of the arguments."""
        if self._arguments:
            self._arguments.delta(text)

    def run(self) -> None:
        """Note that the arguments are complete."""
        if self._arguments:
            self._complete_arguments = {"arguments": self._arguments.done()}
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
        whole = {**self._item, **self._complete_arguments, **self._end, "status": status}
        return {name: whole[name] for name in self._item}

    def _seen(self, item: JsonObject) -> JsonObject:
        return self._sees(item)

    def _tell(self, event: str) -> None:
        self._frames.write_event(f"response.{self._item['type']}.{event}", **self._at)


class MessageItem(OutputItem):
    """A message of the assistant."""

    def __init__(self, frames: EventWriter, index: int, id: str) -> None:
        item = {"id": id, "type": "message", "status": "in_progress", "role": "assistant", "content": []}
        super().__init__(frames, index, item)
        self._part: OutputPart | None = None
        self._parts: list[JsonObject] = []  # ended parts

    def text(self, *texts: str, logprobs: tuple[Logprob, ...] = ()) -> None:
        """Add texts; log-probabilities are those of a single text."""
        self._in(OutputTextPart).text(*texts, logprobs=logprobs)

    def annotate(self, annotation: JsonObject) -> None:
        """Add an annotation of the text."""
        self._in(OutputTextPart).annotate(annotation)

    def add_refusal(self, text: str) -> None:
        """Add to the refusal."""
        self._in(RefusalPart).delta(text)

    def _in(self, kind: type[_Kind]) -> _Kind:
        """Return the open part if it is of this class, else a new one."""
        if isinstance(self._part, kind):
            return self._part
        self._end_part()
        self._part = part = kind(self._frames, self._at, len(self._parts))
        return part

    def ended(self, part: JsonObject) -> None:
        """Replace the open part by its final object."""
        self._parts.append(part)
        self._part = None

    def _end_part(self) -> None:
        if self._part:
            self.ended(self._part.close())

    def _whole(self, status: ItemStatus) -> JsonObject:
        self._end_part()
        return {**self._item, "status": status, "content": self._parts}


# By carrier: the part that streams the reasoning, and the parts that repeat it at the end.
_CARRIERS: dict[Carrier, tuple[type[OutputPart], ...]] = {
    "summary": (SummaryPart,),
    "text": (ReasoningTextPart,),
    "both": (SummaryPart, ReasoningTextPart),
    "hidden": (),
}


class ReasoningItem(OutputItem):
    """A reasoning item.

    seal: returns its encrypted_content for the text and the signed blocks.
    """

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
        """Add a piece of reasoning, perhaps with a signature."""
        if thought.text:
            self.text(thought.text)
        if block := self._blocks.add(thought):
            self._signed.append(block)

    def text(self, text: str) -> None:
        """Add a piece of reasoning without a signature."""
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
    """A call of a function or a custom tool.

    item: its object without arguments or input.
    """

    def __init__(self, frames: EventWriter, index: int, item: JsonObject) -> None:
        run = FunctionArguments if item["type"] == "function_call" else CustomToolInput
        super().__init__(frames, index, {**item, run.field: ""})
        self._run = run(frames, self._at)

    def add_arguments(self, text: str) -> None:
        """Add the next piece of the arguments or the input."""
        self._run.delta(text)

    def _whole(self, status: ItemStatus) -> JsonObject:
        # Older clients expect the name again.
        beside = {"name": self._item["name"]} if isinstance(self._run, FunctionArguments) else {}
        return {**self._item, "status": status, self._run.field: self._run.done(**beside)}
