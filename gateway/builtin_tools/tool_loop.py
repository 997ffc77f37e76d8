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
_NO_JSON = "This call was not made: its arguments are not a JSON object."
_GONE = "This tool was not called: it is not available any more."
_GAP = TextDelta(0, "\n\n")
_NON_CONTENT = Usage | ExtraField
_decode = json.Decoder(list[BuiltinToolResult]).decode


class ToolRound:
    """The messages and tool calls of one round.

    calls: the tool calls that have begun, by index; the ToolLoop adds each as the right class.
    finish: the end of the round; None until then.
    written: the completion tokens of the round.
    """

    def __init__(self) -> None:
        self._texts: list[str] = []
        self._thoughts: list[str] = []
        self._blocks, self._signed = ThinkingBlocks(), list[dict[str, Any]]()
        self.calls: dict[int, ClientToolCall] = {}
        self.finish: Finish | None = None
        self.written = 0

    def add_event(self, event: Event) -> None:
        """Add an event of the round to the message and to its tool calls."""
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
        """End the round.  Tools have side effects, so no tool call of a truncated round runs."""
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
        """The tool calls of the round that run at the gateway."""
        return [call for call in self.calls.values() if isinstance(call, BuiltinToolCall)]

    @property
    def pending_runs(self) -> list[BuiltinToolRun]:
        """The tool calls to run now; empty until the round has ended."""
        return [call.run for call in self.running if not call.result] if self.finish else []

    @property
    def can_continue(self) -> bool:
        """True if the loop can continue without the client."""
        calls, finish = self.calls.values(), self.finish
        return bool(calls) and bool(finish and finish.reason in _WELL) and all(call.goes_on for call in calls)

    def left(self, most: int | None) -> int | None:
        """Return the tokens left of `most`, at least 1: the request after the round needs a valid limit."""
        return None if most is None else max(most - self.written, 1)

    def abort(self) -> None:
        """Fail the complete tool calls that have no result."""
        for call in self.running:
            if call.complete and not call.result:
                call.fail(_BROKE_OFF)

    def messages_after(self, messages: Sequence[Message]) -> tuple[Message, ...]:
        """Return the request's messages plus this round's assistant message and the outputs of its tool calls."""
        text, thought = "".join(self._texts), "".join(self._thoughts)
        fields = {"reasoning_content": thought, "thinking_blocks": self._signed}
        members: Message = {"role": "assistant", "content": text or None}
        members |= {name: value for name, value in fields.items() if value}
        members["tool_calls"] = [message_tool_call(call) for call in self.calls.values()]
        return (*messages, members, *_outputs(self.calls))


class ApprovedToolRound(ToolRound):
    """The round of the approved tool calls; their messages exist already and get their outputs here."""

    def messages_after(self, messages: Sequence[Message]) -> tuple[Message, ...]:
        """Return the messages with the outputs in their places."""
        outputs = {one["tool_call_id"]: one for one in _outputs(self.calls)}
        return tuple(outputs.get(message.get("tool_call_id", ""), message) for message in messages)


def _outputs(calls: Mapping[int, ClientToolCall]) -> list[Message]:
    return [
        {"role": "tool", "tool_call_id": call.start.id, "content": call.content}
        for call in calls.values()
        if isinstance(call, BuiltinToolCall | SkippedToolCall)
    ]


class ToolLoopLimits(Struct, frozen=True):
    """Limits of a response.

    calls: tool calls; max_rounds: rounds in which the model may call tools.
    uses: the client's own limits of calls, each of some tools together.
    """

    calls: int
    max_rounds: int
    uses: Mapping[frozenset[ToolName], int] = {}


class ToolLoop:
    """The last filter of each round; between the rounds, `ToolRoundSource` passes on its events.

    new_id: a prefix → a new id.
    prelude: the events at the beginning of the response.
    approved: the tool calls that the client approved; they run first.
    sources: the sources that the model may cite; None: the response gets no annotations.
    running: True while tools run or are about to.
    pending_runs: the tool calls to run now.
    needs_another_round: True if the model gets a further request after the tools.
    """

    citations: ClassVar[type[CitationMarker]] = CitationMarker

    def __init__(
        self,
        tools: Iterable[BuiltinTool],
        limits: ToolLoopLimits,
        new_id: Callable[[str], str],
        prelude: Sequence[Event] = (),
        approved: Sequence[ApprovedToolCall] = (),
        sources: Sources | None = None,
    ) -> None:
        self._citations = self.citations(sources) if sources is not None else None
        self._tools = {ToolName(ours.tool.name, ours.tool.namespace): ours for ours in tools}
        self._new_id, self._prelude = new_id, prelude
        self._calls, self._rounds, self._uses = limits.calls, limits.max_rounds, {**limits.uses}
        self._theirs = 0  # number of the client's tool calls
        self._open: BuiltinToolCall | None = None
        self._held: list[Event] = []
        self._ends_in_text = self._apart = False  # the last event was text; a text that comes next is of another round
        self._round = ToolRound()
        self.running = bool(approved)
        if approved:
            self._resume(approved)

    @property
    def pending_runs(self) -> list[BuiltinToolRun]:
        """The tool calls to run now."""
        return self._round.pending_runs

    @property
    def needs_another_round(self) -> bool:
        """True if the loop can continue without the client."""
        return self._round.can_continue

    # A round with a backend

    def begin(self) -> None:
        """Start a round with a backend."""
        self._round, self._open, self._held = ToolRound(), None, []
        self._apart = self._ends_in_text

    def feed(self, event: Event) -> Iterable[Event]:
        """Return the events for the client after one event of the round."""
        if isinstance(event, _NON_CONTENT):
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
        """Return no events at the end of the round's stream."""
        return ()  # held events follow with the results of the tools

    def _broken(self, failure: Failure) -> Iterable[Event]:
        """Return the held events, then the failure."""
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

    # Events for the client

    def _shown(self, events: list[Event]) -> list[Event]:
        """Return the events with citations, and with a gap between texts of two rounds that nothing else separates."""
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
        """Yield the events for the client; hold those of other tool calls while an output item is open."""
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
        """Yield the held events whose output items have a result now."""
        while self._open and self._open.result:
            yield self._open.close()
            self._open = None
            held, self._held = self._held, []
            yield from self._flow(held)

    # A round of tools

    def add_results(self, results: Iterable[BuiltinToolResult]) -> list[Event]:
        """Return the events for the client after results of tools."""
        found = {result.id: result for result in results}
        for call in self._round.running:
            call.result = call.result or found.get(call.start.id)
        held, self._held = (self._held, []) if not self._open else ([], self._held)
        return self._shown([*self._begun(), *self._flow(held), *self._released()])

    def broken(self, problem: Problem) -> list[Event]:
        """Return the events for the client after the tools failed as a whole."""
        return [*self._shown([*self._begun()]), *self._broken(Failure(problem))]

    def next_request(self, request: Request) -> Request:
        """Return the request for the next round.

        A forced tool choice applies to the first round only.  If a limit is reached, the built-in tools are not
        callable.
        """
        self._rounds -= 1
        messages, left = self._round.messages_after(request.messages), self._round.left(request.max_tokens)
        choice = request.tool_choice if request.tool_choice == "none" else None
        request = replace(request, messages=messages, tool_choice=choice, max_tokens=left)
        if self._rounds > 0 and self._calls > 0:
            return request
        allowed = {ToolName(tool.name, tool.namespace) for tool in request.callable_tools} - self._tools.keys()
        return replace(request, allowed=frozenset(allowed))

    def _resume(self, approved: Sequence[ApprovedToolCall]) -> None:
        """Start with the approved tool calls, as if a round had made them."""
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
    """A tool loop whose client has no place for the items of built-in tools."""

    citations: ClassVar[type[CitationMarker]] = ChatCitationMarker

    def _shown(self, events: list[Event]) -> list[Event]:
        return super()._shown([event for event in events if not isinstance(event, BuiltinEvent | BuiltinItem)])


class ToolRoundSource:
    """The event source of a round of tools.  `feed` takes lists of BuiltinToolResult as JSON."""

    usage = Usage(0, 0)
    single_chunk_decoder = None
    done = False

    def __init__(self, loop: ToolLoop) -> None:
        self._loop = loop

    def set_content_type(self, content_type: str) -> None:
        """Accept any content type: the results have only one."""

    def feed(self, data: bytes) -> list[Event]:
        """Return the events for the client after these results."""
        return self._loop.add_results(_decode(data)) if data else []

    def close(self) -> list[Event]:
        """Return no events; the tools have ended."""
        self._loop.running = False
        return []

    def fail(self, problem: Problem) -> list[Event]:
        """Return the events for the client after the tools failed as a whole."""
        return self._loop.broken(problem)
