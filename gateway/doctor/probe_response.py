"""Read the response to a probe: bytes in, one ProbeResponse out.  Markup is not parsed here."""

import re
from collections.abc import Iterable

from msgspec import Struct

from gateway.backends import Kind
from gateway.backends.dialects import DIALECTS
from gateway.doctor.probe_requests import ProbeRequest
from gateway.errors import Problem
from gateway.events import (
    Event,
    Failure,
    Finish,
    ReasoningDelta,
    TextDelta,
    ToolArgsDelta,
    ToolCallEnd,
    ToolCallStart,
    Usage,
)
from gateway.formats.parser import ParseContext
from gateway.pipeline.tool_calls import ParserSettings
from gateway.pipeline.upstream_reader import UpstreamReader
from gateway.request import Request, Tool
from gateway.warnings import Warnings

_LIMIT = 4 << 20  # bytes of a response
_TOO_LONG = Problem(502, f"The response is larger than {_LIMIT} bytes.")
# No text can look like these: a quote inside a text is escaped.
_FIELDS = re.compile(rb'"(reasoning_content|reasoning|reasoning_text|thinking|thinking_blocks)"\s*:\s*(?:"[^"]|\[)')


class ObservedToolCall(Struct, frozen=True):
    """A tool call; complete: its arguments are complete JSON."""

    name: str
    arguments: str
    complete: bool


class ObservedMessage(Struct, frozen=True):
    """One choice, as a whole.  finish: its finish reason, or ""."""

    text: str = ""
    thought: str = ""
    calls: tuple[ObservedToolCall, ...] = ()
    finish: str = ""


class ProbeResponse(Struct, frozen=True, kw_only=True):
    """The response to a probe.

    message: the first choice.
    problem: the error, before or after the message.
    choices: the number of choices.
    delta_count: the number of text and reasoning deltas.
    has_logprobs: some text has log probabilities.
    usage: the tokens, if the server counted them.
    field: the field with the reasoning; "" for none.
    omitted_fields: fields that the request left out.
    warnings: the repairs that the response needed.
    begun: seconds until the first content; None if there was none.
    is_abandoned: the client disconnected before the response ended.
    """

    message: ObservedMessage = ObservedMessage()
    problem: Problem | None = None
    choices: int = 0
    delta_count: int = 0
    has_logprobs: bool = False
    usage: Usage | None = None
    field: str = ""
    omitted_fields: frozenset[str] = frozenset()
    warnings: frozenset[str] = frozenset()
    begun: float | None = None
    is_abandoned: bool = False

    @property
    def cut(self) -> bool:
        """True if the response was cut off before the model had finished."""
        return self.message.finish == "length" or self.is_abandoned

    @property
    def is_reasoning_only(self) -> bool:
        """True if the response is complete and has nothing but reasoning."""
        return bool(self.message.thought) and not (self.message.text or self.message.calls or self.cut)


class ProbeResponseReader:
    """Collect a response with the times of its parts; used like an UpstreamReader."""

    def __init__(self, probe: ProbeRequest, request: Request, kind: Kind) -> None:
        self._ledger = Warnings()
        settings = ParserSettings(None, ParseContext(parameter_schemas(request.tools)), str, self._ledger)
        decoder = DIALECTS[kind.dialect].decoder(request, self._ledger)
        self._upstream = UpstreamReader(decoder, settings, lambda: 0, (), _LIMIT)
        self._probe = probe
        self._events: list[Event] = []
        self._raw = bytearray()
        self._begun: float | None = None

    @property
    def done(self) -> bool:
        """True if no more data is needed."""
        failed = bool(self._events) and type(self._events[-1]) is Failure
        return failed or (self._probe.is_abandoned and self._begun is not None)

    def set_content_type(self, content_type: str) -> None:
        """Note the content type of a response without an error."""
        self._upstream.set_content_type(content_type)

    def feed(self, data: bytes, seconds: float) -> None:
        """Read data.  seconds: the time since the request."""
        self._raw += data
        self._take(self._upstream.feed(data), seconds)
        if len(self._raw) > _LIMIT:
            self.fail(_TOO_LONG)

    def close(self, seconds: float) -> None:
        """Note the end of the response.  seconds: the time since the request."""
        self._take(self._upstream.close(), seconds)

    def fail(self, problem: Problem) -> None:
        """Note an error."""
        self._events += self._upstream.fail(problem)

    def response(self) -> ProbeResponse:
        """Return the response as read so far."""
        events, noted = self._events, frozenset(self._ledger.entries())
        words = [event for event in events if isinstance(event, TextDelta | ReasoningDelta) and event.text]
        counts = [event for event in events if isinstance(event, Usage)]
        found = _FIELDS.search(self._raw)
        return ProbeResponse(
            message=message_from_events(events),
            problem=next((event.problem for event in events if isinstance(event, Failure)), None),
            choices=len({event.choice for event in events if isinstance(event, Finish)}),
            delta_count=len(words),
            has_logprobs=any(isinstance(event, TextDelta) and event.logprobs for event in events),
            usage=counts[-1] if counts and "estimated:usage" not in noted else None,
            field=found[1].decode() if found else "",
            warnings=noted,
            begun=self._begun,
            is_abandoned=self._probe.is_abandoned
            and not (self._upstream.finished or any(isinstance(e, Failure) for e in events)),
        )

    def _take(self, events: Iterable[Event], seconds: float) -> None:
        for event in events:
            self._events.append(event)
            if self._begun is None and isinstance(event, TextDelta | ReasoningDelta | ToolCallStart):
                self._begun = seconds


def message_from_events(events: Iterable[Event]) -> ObservedMessage:
    """Join the events of the first choice."""
    texts: list[str] = []
    thoughts: list[str] = []
    calls: list[ObservedToolCall] = []
    finish = ""
    for event in events:
        match event:
            case TextDelta(choice=0):
                texts.append(event.text)
            case ReasoningDelta(choice=0):
                thoughts.append(event.text)
            case ToolCallStart(choice=0):
                calls.append(ObservedToolCall(event.name, "", complete=False))
            case ToolArgsDelta(choice=0):
                calls[-1] = ObservedToolCall(calls[-1].name, calls[-1].arguments + event.json, complete=False)
            case ToolCallEnd(choice=0):
                calls[-1] = ObservedToolCall(calls[-1].name, calls[-1].arguments, event.complete)
            case Finish(choice=0):
                finish = event.reason
    return ObservedMessage("".join(texts), "".join(thoughts).strip(), tuple(calls), finish)


def parameter_schemas(tools: Iterable[Tool]) -> dict[str, dict[str, object]]:
    """Return the schema of each tool's parameters by its name."""
    return {tool.name: tool.definition["parameters"] for tool in tools}
