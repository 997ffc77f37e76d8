"""Read the response to a probe: its bytes in, one ProbeResponse out.  Markup is not parsed here."""

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

_LIMIT = 4 << 20  # bytes of an answer
_TOO_LONG = Problem(502, f"The answer has more than {_LIMIT} bytes.")
# No text can look like these: a quote inside a text is escaped.
_FIELDS = re.compile(rb'"(reasoning_content|reasoning|reasoning_text|thinking|thinking_blocks)"\s*:\s*(?:"[^"]|\[)')


class ObservedToolCall(Struct, frozen=True):
    """A call; `complete`: its arguments are JSON."""

    name: str
    arguments: str
    complete: bool


class ObservedMessage(Struct, frozen=True):
    """One choice, as a whole.  `finish`: why it ended, "" if it did not."""

    text: str = ""
    thought: str = ""
    calls: tuple[ObservedToolCall, ...] = ()
    finish: str = ""


class ProbeResponse(Struct, frozen=True, kw_only=True):
    """said: the first choice; problem: what went wrong, before or after what was said.

    choices: how many there are; pieces: those that its text and thought came in.
    chances: some of the text had log-probabilities.
    usage: the tokens, as far as the server has counted them.
    field: in which a thought came, "" for none.
    unasked: fields that were left out of the request; noted: the ledger of what had to be repaired in the answer.
    begun: seconds until the first word, None if there was none; left: the probe ended before the response did.
    """

    message: ObservedMessage = ObservedMessage()
    problem: Problem | None = None
    choices: int = 0
    delta_count: int = 0
    chances: bool = False
    usage: Usage | None = None
    field: str = ""
    omitted_fields: frozenset[str] = frozenset()
    warnings: frozenset[str] = frozenset()
    begun: float | None = None
    left: bool = False

    @property
    def cut(self) -> bool:
        """True if it is not all that the model would have said."""
        return self.message.finish == "length" or self.left

    @property
    def is_reasoning_only(self) -> bool:
        """True if the answer came to its end and is nothing but a thought."""
        return bool(self.message.thought) and not (self.message.text or self.message.calls or self.cut)


class ProbeResponseReader:
    """Is told of an answer as an UpstreamReader is, and when its words came; then it gives what was `heard`."""

    def __init__(self, question: ProbeRequest, request: Request, kind: Kind) -> None:
        self._ledger = Warnings()
        setting = ParserSettings(None, ParseContext(parameter_schemas(request.tools)), str, self._ledger)
        decoder = DIALECTS[kind.dialect].decoder(request, self._ledger)
        self._upstream = UpstreamReader(decoder, setting, lambda: 0, (), _LIMIT)
        self._question = question
        self._events: list[Event] = []
        self._raw = bytearray()
        self._begun: float | None = None

    @property
    def done(self) -> bool:
        """True if nothing more is to be listened to."""
        failed = bool(self._events) and type(self._events[-1]) is Failure
        return failed or (self._question.left and self._begun is not None)

    def answered(self, content_type: str) -> None:
        self._upstream.answered(content_type)

    def feed(self, data: bytes, seconds: float) -> None:
        """Take data that came so many seconds after the request."""
        self._raw += data
        self._take(self._upstream.feed(data), seconds)
        if len(self._raw) > _LIMIT:
            self.fail(_TOO_LONG)

    def close(self, seconds: float) -> None:
        """The answer came to its end."""
        self._take(self._upstream.close(), seconds)

    def fail(self, problem: Problem) -> None:
        self._events += self._upstream.fail(problem)

    def response(self) -> ProbeResponse:
        events, noted = self._events, frozenset(self._ledger.entries())
        words = [event for event in events if isinstance(event, TextDelta | ReasoningDelta) and event.text]
        counts = [event for event in events if isinstance(event, Usage)]
        found = _FIELDS.search(self._raw)
        return ProbeResponse(
            message=message_from_events(events),
            problem=next((event.problem for event in events if isinstance(event, Failure)), None),
            choices=len({event.choice for event in events if isinstance(event, Finish)}),
            delta_count=len(words),
            chances=any(isinstance(event, TextDelta) and event.logprobs for event in events),
            usage=counts[-1] if counts and "estimated:usage" not in noted else None,
            field=found[1].decode() if found else "",
            warnings=noted,
            begun=self._begun,
            left=self._question.left and not (self._upstream.finished or any(isinstance(e, Failure) for e in events)),
        )

    def _take(self, events: Iterable[Event], seconds: float) -> None:
        for event in events:
            self._events.append(event)
            if self._begun is None and isinstance(event, TextDelta | ReasoningDelta | ToolCallStart):
                self._begun = seconds


def message_from_events(events: Iterable[Event]) -> ObservedMessage:
    """The first choice of promised events."""
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
    """The name of each tool and what its parameters may be."""
    return {tool.name: tool.definition["parameters"] for tool in tools}
