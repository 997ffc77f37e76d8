"""Share the parts of the encoders of chat and legacy completions, for whole bodies and streams.

Each API adds the encoding of a choice.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, Generic, Protocol, TypeVar

from msgspec import Raw, Struct, json

from gateway import events as ev
from gateway.api.extra_members import DELTAS, LISTS, Values, add_value, members
from gateway.api.whole_encoder import WholeEncoder
from gateway.events import IN_EACH, Logprob, ToolCallStart, Usage, forward
from gateway.request import Request, ToolName
from gateway.warnings import Warnings

encode: Callable[[Any], bytes] = json.Encoder().encode
_NOTHING = ev.Usage(0, 0)
_Place = tuple[int | None, bool]  # the position of a member: its choice, and True within the choice's message


class CompletionHead(Struct, frozen=True):
    """The members that are the same in all of a response.  `created` in Unix seconds; `model` as the client named it.

    reasoning: the fields that carry the model's reasoning.
    """

    id: str
    created: int
    model: str
    reasoning: tuple[str, ...] = ("reasoning_content",)


def usage_object(counted: Usage) -> dict[str, Any]:
    """Return the `usage` object of a completion."""
    read = {"cached_tokens": counted.cached}
    if counted.cache_written:
        read["cache_write_tokens"] = counted.cache_written
    return {
        "prompt_tokens": counted.prompt,
        "completion_tokens": counted.completion,
        "total_tokens": counted.prompt + counted.completion,
        "prompt_tokens_details": read,
        "completion_tokens_details": {"reasoning_tokens": counted.reasoning},
    }


def logprobs_object(content: Sequence[Logprob], refusal: Sequence[Logprob]) -> dict[str, Any]:
    """Return the `logprobs` object of a chat choice; a side without entries is null."""
    return {"content": content or None, "refusal": refusal or None}


def flat_tool_name(start: ToolCallStart) -> str:
    """Return a tool's name with its namespace in front, because names in chat have none of their own."""
    return ToolName(start.name, start.namespace).flat_name


class BodyChoice(Protocol):
    """A choice of a whole body, built event by event."""

    def add(self, event: Any) -> None:  # noqa: ANN401 - any event of a choice
        """Add an event of the choice."""


class HasRequest(Protocol):
    """The parsed parameters of an API, with the neutral request in them."""

    @property
    def request(self) -> Request:
        """The neutral request."""


_Params = TypeVar("_Params", bound=HasRequest)
_Choice = TypeVar("_Choice", bound=BodyChoice)


class BodyEncoder(WholeEncoder, ABC, Generic[_Params, _Choice]):
    """Encode a response as one body, at its end."""

    def __init__(self, head: CompletionHead, params: _Params, ledger: Warnings) -> None:
        self._head, self._params, self._ledger = head, params, ledger
        self._choices: dict[int, _Choice] = {}
        self._usage = _NOTHING
        self._extras: dict[str, Raw] = {}
        self._failed = False

    def encode(self, events: Sequence[ev.Event]) -> bytes:
        """Collect the events, and return no bytes."""
        for event in events:
            if type(event) is ev.Usage:
                self._usage = event
            elif type(event) is ev.Failure:
                self._failed = True
            else:
                self._take(event)
        return b""

    def _take(self, event: Any) -> None:  # noqa: ANN401 - any other event
        if type(event) is ev.ExtraField:
            forward(event, self._ledger)
        if event.choice is None:
            self._extras[event.name] = event.json
            return
        choice = self._choices.get(event.choice)
        if choice is None:
            choice = self._choices[event.choice] = self._new_choice()
        choice.add(event)

    def close(self, *, stored: bool) -> bytes:
        """Return the body; empty after a failure."""
        return b"" if self._failed else encode(self._completion())

    @abstractmethod
    def _new_choice(self) -> _Choice:
        """Return an empty choice."""

    @abstractmethod
    def _completion(self) -> dict[str, Any]:
        """Return the object of the whole response."""

    def _sorted(self) -> list[tuple[int, _Choice]]:
        """Return the choices in order; report missing ones as a warning."""
        if len(self._choices) < self._params.request.n:
            self._ledger.add("unenforced", "n")
        return sorted(self._choices.items())


class StreamEncoder(ABC):
    """Encode events as SSE frames.

    head: the members of each frame, except its choices.
    include_usage: the usage follows at the end.
    continuous_usage: each frame has the usage so far.
    """

    def __init__(
        self, head: Mapping[str, Any], ledger: Warnings, *, include_usage: bool, continuous_usage: bool
    ) -> None:
        self._members = {**head}
        self._head = self._opening()
        self._tail = b'],"usage":null}\n\n' if include_usage else b"]}\n\n"
        self._ledger, self._include, self._continuous = ledger, include_usage, continuous_usage
        self._waiting: dict[_Place, Values] = {}  # members that go into the next frame
        self._usage = ev.Usage(0, 0)
        self._failed = False
        self._text_choice: int | None = None  # whose frame of a text is known; None after a change of head or tail

    def encode(self, events: Sequence[ev.Event]) -> bytes:
        """Return the frames of events of one type that follow one another; at least one event."""
        kind = type(events[0])
        arm = self._arms[kind]
        if len(events) == 1:
            return arm(self, events[0])
        run = self._runs.get(kind)
        return run(self, events) if run else b"".join([arm(self, event) for event in events])

    def keep_alive(self) -> bytes:
        """Return an SSE comment."""
        return b": keep-alive\n\n"

    def _end(self, *, whole: bool) -> bytes:
        """Return the end of the stream; empty after a failure.

        whole: all requested choices have come.
        """
        if self._failed:
            return b""
        if not whole:
            self._ledger.add("unenforced", "n")
        rest = self._rest() if self._waiting else b""
        text = self._ledger.take_unsent()
        comment = b": gateway-warnings %b\n\n" % text.encode() if text else b""
        count = b""
        if self._include:
            parts = self._head, self._extras(None), encode(usage_object(self._usage))
            count = b'%b]%b,"usage":%b}\n\n' % parts
        return rest + comment + count + b"data: [DONE]\n\n"

    def _rest(self) -> bytes:
        """Return frames of the members that still wait, except those that the last usage frame carries."""
        places = sorted({choice for choice, _ in self._waiting if choice is not None})
        frames = b"".join([self._frame_of(choice) for choice in places])
        return frames + self._head + self._ending() if self._waiting and not self._include else frames

    @abstractmethod
    def _frame_of(self, choice: int) -> bytes:
        """Return a frame with nothing but the members that wait for a choice."""

    def _opening(self) -> bytes:
        return b"data: " + encode(self._members)[:-1] + b',"choices":['

    def _ending(self) -> bytes:
        """Return the end of a frame, with the waiting members of the whole response."""
        return b"]" + self._extras(None) + self._tail[1:] if (None, False) in self._waiting else self._tail

    def _extras(self, choice: int | None, *, inside: bool = False) -> bytes:
        """Return the members that wait for the next frame of a choice."""
        waiting = self._waiting.pop((choice, inside), None)
        return b"," + encode(members(waiting))[1:-1] if waiting else b""

    def _counted(self, e: ev.Usage) -> bytes:
        self._usage = e
        if self._continuous:
            self._tail, self._text_choice = b'],"usage":%b}\n\n' % encode(usage_object(e)), None
        return b""

    def _extra(self, e: ev.ExtraField) -> bytes:
        forward(e, self._ledger)
        if e.is_sent_at_once:
            return b"%b],%b%b" % (self._head, encode({e.name: e.json})[1:-1], self._tail[1:])
        if e.choice is None and e.name in IN_EACH:
            self._members[e.name] = e.json
            self._head, self._text_choice = self._opening(), None
            return b""
        waiting = self._waiting.setdefault((e.choice, e.inside), {})
        if e.choice is None:
            waiting[e.name] = [e.json]
            return b""
        frame = b""
        if e.inside and e.name in waiting:  # a further delta of it, as of an audio
            frame, waiting = self._frame_of(e.choice), self._waiting.setdefault((e.choice, True), {})
        add_value(waiting, e.name, e.json, DELTAS if e.inside else LISTS)
        return frame

    def _failure(self, e: ev.Failure) -> bytes:
        self._failed = True
        return b"data: %b\n\n" % e.problem.body()

    def _nothing(self, _: ev.Event) -> bytes:
        return b""

    _arms: ClassVar[dict[type[Any], Callable[[Any, Any], bytes]]] = {
        ev.Usage: _counted, ev.ExtraField: _extra, ev.Failure: _failure,
    }  # fmt: skip
    _runs: ClassVar[dict[type[Any], Callable[[Any, Any], bytes]]] = {}  # methods that take several events at once
