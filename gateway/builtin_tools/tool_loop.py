"""Run the tool loop over the rounds of a response: collect calls, pass items to the client, build the next request."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, ClassVar

from msgspec import Struct, json
from msgspec.structs import replace

from gateway.api.signatures import ThinkingBlocks
from gateway.builtin_tools.citations import ChatCitationMarker, CitationMarker, Sources
from gateway.builtin_tools.tool_calls import (
    ApprovalToolCall,
    BuiltinTool,
    BuiltinToolCall,
    BuiltinToolResult,
    BuiltinToolRun,
    ClientToolCall,
    SkippedToolCall,
    message_tool_call,
)
from gateway.errors import Problem
from gateway.events import (
    BuiltinEvent,
    BuiltinItem,
    Event,
    ExtraField,
    Failure,
    Finish,
    ReasoningDelta,
    TextDelta,
    ToolArgsDelta,
    ToolCallEnd,
    ToolCallStart,
    ToolInputDelta,
    Usage,
)
from gateway.request import ApprovedToolCall, Message, Request, ToolName

_WELL = ("stop", "tool_calls")
_BROKE_OFF = "The answer broke off before this call was made."
_NO_JSON = "This call was not made: its arguments are no JSON object."
_GONE = "This tool was not called: it is not available any more."
_GAP = TextDelta(0, "\n\n")
_APART = Usage | ExtraField
_decode = json.Decoder(list[BuiltinToolResult]).decode


class ToolRound:
    """calls: those that have begun, to be put in by who knows their kind; finish: how the round ended, once it has.

    written: tokens of what was said.
    """

    def __init__(self) -> None:
        self._texts: list[str] = []
        self._thoughts: list[str] = []
        self._blocks, self._signed = ThinkingBlocks(), list[dict[str, Any]]()
        self.calls: dict[int, ClientToolCall] = {}
        self.finish: Finish | None = None
        self.written = 0

    def add_event(self, event: Event) -> None:
        if type(event) is TextDelta:
            self._texts.append(event.text)
        elif type(event) is ReasoningDelta:
            self._think(event)
        elif type(event) is ToolCallEnd:
            self.calls[event.call].complete = event.complete
        elif type(event) is Finish:
            self._end(event)
        elif type(event) is ToolArgsDelta:
            self.calls[event.call].argument_chunks.append(event.json)
        elif type(event) is Usage:
            self.written = event.completion

    def _think(self, thought: ReasoningDelta) -> None:
        self._thoughts.append(thought.text)
        if block := self._blocks.add(thought):
            self._signed.append(block)

    def _end(self, finish: Finish) -> None:
        """Tools act on the world: nothing is run of a round that was cut."""
        self.finish = finish
        for call in self.running:
            if finish.reason not in _WELL:
                self._cut(call)
            elif not call.complete:
                call.fail(_NO_JSON)

    @staticmethod
    def _cut(call: BuiltinToolCall) -> None:
        if call.complete:
            call.fail(_BROKE_OFF)
        else:
            call.result = BuiltinToolResult(call.start.id, "", {"status": "incomplete"})

    @property
    def running(self) -> list[BuiltinToolCall]:
        return [call for call in self.calls.values() if isinstance(call, BuiltinToolCall)]

    @property
    def pending_runs(self) -> list[BuiltinToolRun]:
        """The calls that have to be made now."""
        return [call.run for call in self.running if not call.result] if self.finish else []

    @property
    def can_continue(self) -> bool:
        """Return True if all its calls ran at the gateway."""
        calls, finish = self.calls.values(), self.finish
        return bool(calls) and bool(finish and finish.reason in _WELL) and all(call.goes_on for call in calls)

    def left(self, most: int | None) -> int | None:
        """Of so many tokens; where there are none, the one with which the model is told to end."""
        return None if most is None else max(most - self.written, 1)

    def abort(self) -> None:
        for call in self.running:
            if call.complete and not call.result:
                call.fail(_BROKE_OFF)

    def messages_after(self, messages: Sequence[Message]) -> tuple[Message, ...]:
        """Return the messages so far, once every call in them has its output."""
        text, thought = "".join(self._texts), "".join(self._thoughts)
        fields = {"reasoning_content": thought, "thinking_blocks": self._signed}
        members: Message = {"role": "assistant", "content": text or None}
        members |= {name: value for name, value in fields.items() if value}
        members["tool_calls"] = [message_tool_call(call) for call in self.calls.values()]
        return (*messages, members, *_outputs(self.calls))


class ApprovedToolRound(ToolRound):
    """The calls that were approved: the messages have them, and want their outputs."""

    def messages_after(self, messages: Sequence[Message]) -> tuple[Message, ...]:
        outputs = {one["tool_call_id"]: one for one in _outputs(self.calls)}
        return tuple(outputs.get(message.get("tool_call_id", ""), message) for message in messages)


def _outputs(calls: Mapping[int, ClientToolCall]) -> list[Message]:
    return [
        {"role": "tool", "tool_call_id": call.start.id, "content": call.content}
        for call in calls.values()
        if isinstance(call, BuiltinToolCall | SkippedToolCall)
    ]


class ToolLoopLimits(Struct, frozen=True):
    """calls: of the tools in an answer, at most; rounds: that may call them."""

    calls: int
    max_rounds: int


class ToolLoop:
    """A filter, the last one of each round; between the rounds its `ToolRoundSource` is the source of what is told.

    new_id: a prefix → an id.  told: what the answer begins with.  sources: that it may cite; None: it is given none.
    running: tools are to run next, or do; due: these calls; goes_on: the model is to be asked again after that.
    """

    citations: ClassVar[type[CitationMarker]] = CitationMarker

    def __init__(
        self,
        tools: Iterable[BuiltinTool],
        limits: ToolLoopLimits,
        new_id: Callable[[str], str],
        told: Sequence[Event] = (),
        approved: Sequence[ApprovedToolCall] = (),
        sources: Sources | None = None,
    ) -> None:
        self._citations = self.citations(sources) if sources is not None else None
        self._tools = {ToolName(ours.tool.name, ours.tool.namespace): ours for ours in tools}
        self._new_id, self._prelude = new_id, told
        self._calls, self._rounds = limits.calls, limits.max_rounds
        self._theirs = 0  # calls of the client's
        self._open: BuiltinToolCall | None = None
        self._held: list[Event] = []
        self._ends_in_text = self._apart = False  # what was told; what is said next is of another round
        self._round = ToolRound()
        self.running = bool(approved)
        if approved:
            self._resume(approved)

    @property
    def pending_runs(self) -> list[BuiltinToolRun]:
        return self._round.pending_runs

    @property
    def needs_another_round(self) -> bool:
        return self._round.can_continue

    # a round with a backend

    def begin(self) -> None:
        self._round, self._open, self._held = ToolRound(), None, []
        self._apart = self._ends_in_text

    def feed(self, event: Event) -> Iterable[Event]:
        if isinstance(event, _APART):
            self._round.add_event(event)
            return (event,)
        if type(event) is Failure:
            return self._broken(event)
        if type(event) is ToolCallStart:
            self._round.calls[event.call] = self._call(event)
        self._round.add_event(event)
        if type(event) is Finish:
            self.running = bool(self._round.pending_runs) or self._round.can_continue
        return self._shown([*self._begun(), *self._flow((event,)), *self._released()])

    def close(self) -> Iterable[Event]:
        return ()  # what is held comes with the results

    def _broken(self, failure: Failure) -> Iterable[Event]:
        """Yield the held output, then the failure."""
        self.running = False
        self._round.abort()
        return [*self._shown([*self._released()]), failure]

    def _call(self, start: ToolCallStart) -> ClientToolCall:
        ours = self._tools.get(ToolName(start.name, start.namespace))
        if not ours:
            self._theirs += 1
            return ClientToolCall(start, self._theirs - 1)
        if ours.request is not None:
            return ApprovalToolCall(start, {"id": self._new_id("mcpr_"), **ours.request})
        self._calls -= 1
        return self._running(start, ours) if self._calls >= 0 else SkippedToolCall(start)

    def _running(self, start: ToolCallStart, ours: BuiltinTool) -> BuiltinToolCall:
        return BuiltinToolCall(start, ours, {"id": self._new_id(ours.prefix), **ours.item})

    # what is told

    def _shown(self, events: list[Event]) -> list[Event]:
        """With a gap between the texts of two rounds, if there is nothing else between them."""
        shown: list[Event] = []
        for event in events:
            if type(event) is TextDelta and self._apart:
                shown.append(_GAP)
            self._ends_in_text, self._apart = type(event) is TextDelta, False
            shown.append(event)
        return [*self._citations.annotate(shown)] if self._citations else shown

    def _begun(self) -> Sequence[Event]:
        prelude, self._prelude = self._prelude, ()
        return prelude

    def _flow(self, events: Iterable[Event]) -> Iterator[Event]:
        """As far as no open item is in the way."""
        for event in events:
            if self._open and getattr(event, "call", -1) != self._open.start.call:
                self._held.append(event)
            else:
                yield from self._tell(event)

    def _tell(self, event: Event) -> Iterable[Event]:
        if isinstance(event, ToolCallStart):
            call = self._round.calls[event.call]
            self._open = call if isinstance(call, BuiltinToolCall) else None
            return call.begin()
        if isinstance(event, ToolArgsDelta | ToolInputDelta):
            return self._round.calls[event.call].on_arguments(event)
        if isinstance(event, ToolCallEnd):
            return self._round.calls[event.call].end(event)
        return () if type(event) is Finish and self.needs_another_round else (event,)

    def _released(self) -> Iterator[Event]:
        """Yield the events that waited for results which have arrived."""
        while self._open and self._open.result:
            yield self._open.close()
            self._open = None
            held, self._held = self._held, []
            yield from self._flow(held)

    # a round of tools

    def answered(self, results: Iterable[BuiltinToolResult]) -> list[Event]:
        found = {result.id: result for result in results}
        for call in self._round.running:
            call.result = call.result or found.get(call.start.id)
        held, self._held = (self._held, []) if not self._open else ([], self._held)
        return self._shown([*self._begun(), *self._flow(held), *self._released()])

    def broken(self, problem: Problem) -> list[Event]:
        return [*self._shown([*self._begun()]), *self._broken(Failure(problem))]

    def next_request(self, request: Request) -> Request:
        """Return the request after the round.  A forced choice held for the round before only."""
        self._rounds -= 1
        messages, left = self._round.messages_after(request.messages), self._round.left(request.max_tokens)
        choice = request.tool_choice if request.tool_choice == "none" else None
        request = replace(request, messages=messages, tool_choice=choice, max_tokens=left)
        if self._rounds > 0 and self._calls > 0:
            return request
        allowed = {ToolName(tool.name, tool.namespace) for tool in request.callable_tools} - self._tools.keys()
        return replace(request, allowed=frozenset(allowed))

    def _resume(self, approved: Sequence[ApprovedToolCall]) -> None:
        """Calls that were approved, as if a round had made them."""
        self._round = ApprovedToolRound()
        for number, one in enumerate(approved):
            start = ToolCallStart(0, number, one.id, one.tool_name.name, namespace=one.tool_name.namespace)
            ours = self._tools.get(one.tool_name)
            item = {"approval_request_id": one.id}
            self._round.calls[number] = (
                self._running(start, replace(ours, item={**ours.item, **item}))
                if ours
                else SkippedToolCall(start, _GONE)
            )
            self._held += [start, ToolArgsDelta(0, number, one.arguments), ToolCallEnd(0, number)]
        for event in self._held:
            if not isinstance(event, ToolCallStart):
                self._round.add_event(event)
        self._round.add_event(Finish(0, "tool_calls"))
        self._calls -= len(approved)


class HiddenToolLoop(ToolLoop):
    """Whose client has no place for what is run here."""

    citations: ClassVar[type[CitationMarker]] = ChatCitationMarker

    def _shown(self, events: list[Event]) -> list[Event]:
        return super()._shown([event for event in events if not isinstance(event, BuiltinEvent | BuiltinItem)])


class ToolRoundSource:
    """A round of tools: results in, events out.  `feed` takes lists of Results as JSON."""

    usage = Usage(0, 0)
    feed_one = None
    done = False

    def __init__(self, loop: ToolLoop) -> None:
        self._loop = loop

    def answered(self, content_type: str) -> None:
        """There is one type only."""

    def feed(self, data: bytes) -> list[Event]:
        return self._loop.answered(_decode(data)) if data else []

    def close(self) -> list[Event]:
        self._loop.running = False
        return []

    def fail(self, problem: Problem) -> list[Event]:
        return self._loop.broken(problem)
