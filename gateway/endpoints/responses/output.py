"""What is open in an answer: an item, in it perhaps a part, and in that a run of deltas (`spec.md` C6).

Each of them begins by being made and ends by `close`, which gives what it came to.  It owns its index and its id, and
only while it is there can something be added to it: that is what keeps the order of events.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Literal, NamedTuple, TypeVar

from gateway.endpoints.responses.asked import Carrier
from gateway.endpoints.responses.frames import Frames, template
from gateway.endpoints.responses.shape import Wire, encode, event_logprobs, part_logprobs
from gateway.endpoints.signatures import Blocks
from gateway.events import Logprob, Reasoning

Status = Literal["completed", "incomplete", "failed"]
Seal = Callable[[str, list[dict[str, Any]]], str | None]


class Run:
    """A text that comes in deltas.  `event` is what its events' names begin with, `field` what it is in the end."""

    event: ClassVar[str]
    field: ClassVar[str]

    def __init__(self, frames: Frames, at: Wire) -> None:
        self._frames, self._at = frames, at
        self._pieces: list[str] = []
        self._like = template(f"{self.event}.delta", at)

    def delta(self, *texts: str, more: bytes = b"") -> None:
        """Each is a delta of its own."""
        self._pieces += texts
        self._frames.put_deltas(self._like, texts, more)

    def done(self, **beside: object) -> str:
        """The whole text, told with what stands beside it."""
        text = "".join(self._pieces)
        self._frames.put(f"{self.event}.done", **self._at, **{self.field: text}, **beside)
        return text


class Arguments(Run):
    event, field = "response.function_call_arguments", "arguments"


class Input(Run):
    event, field = "response.custom_tool_call_input", "input"


class Part(Run):
    """A run that is a part of its item: the next in its member `place`, told by the events `around`."""

    type: ClassVar[str]
    place: ClassVar[str] = "content"
    around: ClassVar[str] = "response.content_part"

    def __init__(self, frames: Frames, at: Wire, index: int) -> None:
        super().__init__(frames, {**at, f"{self.place}_index": index})
        frames.put(f"{self.around}.added", **self._at, part=self._part(""))

    def close(self) -> Wire:
        part = self._part(self.done(**self._beside()))
        self._frames.put(f"{self.around}.done", **self._at, part=part)
        return part

    def _part(self, text: str) -> Wire:
        return {"type": self.type, self.field: text}

    def _beside(self) -> Wire:
        return {}


class RefusalPart(Part):
    event, field, type = "response.refusal", "refusal", "refusal"


class ThoughtPart(Part):
    event, field, type = "response.reasoning_text", "text", "reasoning_text"


class SummaryPart(Part):
    event, field, type = "response.reasoning_summary_text", "text", "summary_text"
    place, around = "summary", "response.reasoning_summary_part"


class TextPart(Part):
    event, field, type = "response.output_text", "text", "output_text"

    def __init__(self, frames: Frames, at: Wire, index: int) -> None:
        self._logprobs: list[Logprob] = []
        self._annotations: list[Wire] = []
        super().__init__(frames, at, index)

    def text(self, *texts: str) -> None:
        self.delta(*texts, more=b',"logprobs":[]')

    def likely(self, text: str, logprobs: tuple[Logprob, ...]) -> None:
        """A text, and how likely it was."""
        self._logprobs += logprobs
        self.delta(text, more=b',"logprobs":' + encode(event_logprobs(logprobs)))

    def annotate(self, annotation: Wire) -> None:
        at = {**self._at, "annotation_index": len(self._annotations)}
        self._annotations.append(annotation)
        self._frames.put("response.output_text.annotation.added", **at, annotation=annotation)

    def _part(self, text: str) -> Wire:
        marks = {"annotations": self._annotations, "logprobs": part_logprobs(self._logprobs)}
        return {**super()._part(text), **marks}

    def _beside(self) -> Wire:
        return {"logprobs": event_logprobs(self._logprobs)}


_Kind = TypeVar("_Kind", bound=Part)


class Item(ABC):
    """`item` is how it begins, `index` its place in the output."""

    def __init__(self, frames: Frames, index: int, item: Wire) -> None:
        self._frames, self._item, self._index = frames, item, index
        self._at = {"item_id": item["id"], "output_index": index}
        frames.put("response.output_item.added", output_index=index, item=item)

    def close(self, status: Status) -> Wire:
        item = self._whole(status)
        self._frames.put("response.output_item.done", output_index=self._index, item=self._seen(item))
        return item

    def _seen(self, item: Wire) -> Wire:
        """As the client sees it."""
        return item

    @abstractmethod
    def _whole(self, status: Status) -> Wire:
        """The item with what came of it.  Ends what is open in it."""


# By type of item: what is told between its beginning and its end.
_MEANWHILE = {"compaction": "response.compaction.compacting"}


class Told(Item):
    """An item that is whole when it begins; it needs no more than its end."""

    def __init__(self, frames: Frames, index: int, item: Wire) -> None:
        super().__init__(frames, index, item)
        if event := _MEANWHILE.get(item["type"]):
            frames.put(event, **self._at)

    def _whole(self, _: Status) -> Wire:
        return {**self._item, "status": "completed"} if self._item.get("status") == "in_progress" else self._item


class Stages(NamedTuple):
    """What is told of an item between its beginning and its end, as the last words of the names of its events.

    run: what it is called with is known; "" where the `arguments` themselves are told.  ends: by its status.
    """

    run: str
    ends: Mapping[str, str]


_BOTH = {"completed": "completed", "failed": "failed", "incomplete": "failed"}
_ONE = dict.fromkeys(_BOTH, "completed")  # the API has no other event
HOSTED: Mapping[str, Stages] = {
    "mcp_call": Stages("", _BOTH),
    "mcp_list_tools": Stages("", _BOTH),
    "web_search_call": Stages("searching", _ONE),
    "file_search_call": Stages("searching", _ONE),
}


class McpArguments(Run):
    event, field = "response.mcp_call_arguments", "arguments"


class Hosted(Item):
    """Something that is done on our side of the client, of a type that is among HOSTED.

    seen: an item → as the client sees it.
    """

    def __init__(self, frames: Frames, index: int, item: Wire, seen: Callable[[Wire], Wire] = dict) -> None:
        super().__init__(frames, index, item)
        self._sees = seen
        self._tell("in_progress")
        self._arguments = McpArguments(frames, self._at) if "arguments" in item else None
        self._said: Wire = {}
        self._end: Wire = {}

    def piece(self, text: str) -> None:
        if self._arguments:
            self._arguments.delta(text)

    def run(self) -> None:
        """It is called with all that."""
        if self._arguments:
            self._said = {"arguments": self._arguments.done()}
        elif event := HOSTED[self._item["type"]].run:
            self._tell(event)
        self._arguments = None

    def end(self, members: Wire) -> Wire:
        """What these members say of how it ended."""
        self._end = members
        return self.close(members.get("status", "completed"))

    def _whole(self, status: Status) -> Wire:
        if self._arguments:
            self.run()
        self._tell(HOSTED[self._item["type"]].ends[status])
        whole = {**self._item, **self._said, **self._end, "status": status}
        return {name: whole[name] for name in self._item}

    def _seen(self, item: Wire) -> Wire:
        return self._sees(item)

    def _tell(self, event: str) -> None:
        self._frames.put(f"response.{self._item['type']}.{event}", **self._at)


class Message(Item):
    def __init__(self, frames: Frames, index: int, id: str) -> None:
        item = {"id": id, "type": "message", "status": "in_progress", "role": "assistant", "content": []}
        super().__init__(frames, index, item)
        self._part: Part | None = None
        self._parts: list[Wire] = []  # those that have ended

    def text(self, *texts: str) -> None:
        self._in(TextPart).text(*texts)

    def likely(self, text: str, logprobs: tuple[Logprob, ...]) -> None:
        self._in(TextPart).likely(text, logprobs)

    def annotate(self, annotation: Wire) -> None:
        self._in(TextPart).annotate(annotation)

    def refuse(self, text: str) -> None:
        self._in(RefusalPart).delta(text)

    def _in(self, kind: type[_Kind]) -> _Kind:
        """The part that is open, if it is such a one; else a new one."""
        if isinstance(self._part, kind):
            return self._part
        self._end_part()
        self._part = part = kind(self._frames, self._at, len(self._parts))
        return part

    def ended(self, part: Wire) -> None:
        """This is what the open part came to."""
        self._parts.append(part)
        self._part = None

    def _end_part(self) -> None:
        if self._part:
            self.ended(self._part.close())

    def _whole(self, status: Status) -> Wire:
        self._end_part()
        return {**self._item, "status": status, "content": self._parts}


# By carrier: the part that shows the reasoning as it comes, and those that repeat it at the end.
_CARRIERS: dict[Carrier, tuple[type[Part], ...]] = {
    "summary": (SummaryPart,),
    "text": (ThoughtPart,),
    "both": (SummaryPart, ThoughtPart),
    "hidden": (),
}


class Thinking(Item):
    """A reasoning item.  `seal` makes its encrypted_content of the text and the signed blocks."""

    def __init__(self, frames: Frames, index: int, id: str, carrier: Carrier, seal: Seal) -> None:
        self._kinds, self._seal = _CARRIERS[carrier], seal
        lists: Wire = {"summary": [], **{kind.place: [] for kind in self._kinds}}
        item = {"id": id, "type": "reasoning", "status": "in_progress", **lists, "encrypted_content": None}
        super().__init__(frames, index, item)
        self._live: Part | None = None
        self._texts: list[str] = []
        self._blocks = Blocks()
        self._signed: list[dict[str, Any]] = []

    def think(self, thought: Reasoning) -> None:
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

    def _whole(self, status: Status) -> Wire:
        text = "".join(self._texts)
        said: Wire = {"status": status}
        if self._live:
            said[self._live.place] = [self._live.close()]
            said |= {kind.place: [self._repeated(kind, text)] for kind in self._kinds[1:]}
        return {**self._item, **said, "encrypted_content": self._seal(text, self._signed)}

    def _repeated(self, kind: type[Part], text: str) -> Wire:
        part = kind(self._frames, self._at, 0)
        part.delta(text)
        return part.close()


class Call(Item):
    """A call of a function or a custom tool; `item` is without what it is called with."""

    def __init__(self, frames: Frames, index: int, item: Wire) -> None:
        run = Arguments if item["type"] == "function_call" else Input
        super().__init__(frames, index, {**item, run.field: ""})
        self._run = run(frames, self._at)

    def piece(self, text: str) -> None:
        self._run.delta(text)

    def _whole(self, status: Status) -> Wire:
        # Older clients want the name again.
        beside = {"name": self._item["name"]} if isinstance(self._run, Arguments) else {}
        return {**self._item, "status": status, self._run.field: self._run.done(**beside)}
