"""One request: upstream rounds in, client bytes out.

Pure.  It tells its caller what to do next and never does it; retries, the tool loop, background mode and
WebSocket are callers, or other drivers, of the same Turn.
"""

from collections.abc import Callable, Set
from typing import Any, Protocol

from msgspec import Struct
from msgspec.structs import replace

from gateway.errors import Problem
from gateway.events import Event, Extra, Failure, Finish, Text, ToolArgs, ToolEnd, ToolStart, Usage
from gateway.request import Message, Request


class Send(Struct, frozen=True):
    data: bytes


class CallUpstream(Struct, frozen=True):
    request: Request


class RunTool(Struct, frozen=True):
    id: str
    name: str
    arguments: str


class Failed(Struct, frozen=True):
    """The round came to nothing, and nothing was told of it: `start` another, or `give_up`."""

    problem: Problem


class Keep(Struct, frozen=True):
    """The whole answer, to be stored before the client hears that it is over; then `kept` goes on."""

    record: dict[str, Any]


class End(Struct, frozen=True):
    pass


_APART = frozenset((Usage, Extra, Failure))
_NOTHING = Usage(0, 0)

Action = Send | CallUpstream | RunTool | Failed | Keep | End


class Endpoint(Protocol):
    """A dialect out: how a client is told what happens.  Usage is the sum of all rounds, the last one holds.

    record: what is to be stored of the answer, None for nothing; close: the end, and whether that has been done.
    """

    def start(self) -> bytes: ...
    def encode(self, event: Event) -> bytes: ...
    def keep_alive(self) -> bytes: ...
    def record(self) -> dict[str, Any] | None: ...
    def close(self, *, kept: bool) -> bytes: ...


class Source(Protocol):
    """Where a round's events come from: an Upstream, or a Fan of them."""

    def answered(self, content_type: str) -> None: ...
    def feed(self, data: bytes) -> list[Event]: ...
    def close(self) -> list[Event]: ...
    def fail(self, problem: Problem) -> list[Event]: ...
    @property
    def used(self) -> Usage: ...


class Turn:
    """start, then per round answered, feed* and close or fail; between rounds tool_result for each RunTool; kept.

    again: what to ask after a round of which nothing was told, as its answer was none; asked once for each round.
    begun: the client has been given content; until then a round that fails is no end.
    problem: why the round failed, if it did; the client is told of it at the end only.
    """

    def __init__(
        self,
        request: Request,
        open_round: Callable[[Request], Source],
        endpoint: Endpoint,
        tools: Set[str] = frozenset(),
        again: Callable[[], Request | None] = lambda: None,
    ) -> None:
        self._request, self._open_round, self._endpoint, self._again = request, open_round, endpoint, again
        self._round = _Round(tools)
        self._spent = _NOTHING  # of the rounds before
        self._counted = _NOTHING  # of this one
        self._running = False
        self._started = False
        self.begun = False
        self.problem: Problem | None = None

    def start(self) -> list[Action]:
        self.problem, self._counted, self._running = None, _NOTHING, True
        self._upstream = self._open_round(self._request)
        return [CallUpstream(self._request)]

    def spend(self, usage: Usage) -> None:
        """Count what was used on the way to the first round."""
        self._spent += usage

    @property
    def spent(self) -> Usage:
        """Tokens by now; where they were not counted, as the round goes on or broke off, they are estimated."""
        return self._spent + (self._so_far if self._running else _NOTHING)

    @property
    def _so_far(self) -> Usage:
        return self._upstream.used if self._counted == _NOTHING else self._counted

    def answered(self, content_type: str) -> None:
        self._upstream.answered(content_type)

    def commit(self) -> bytes:
        """The head of the answer, if it did not go out yet."""
        started, self._started = self._started, True
        return b"" if started else self._endpoint.start()

    def keep_alive(self) -> bytes:
        return self._endpoint.keep_alive()

    def feed(self, data: bytes) -> bytes:
        """What the client gets for what the upstream sent."""
        return b"".join(map(self._encode, self._upstream.feed(data)))

    def fail(self, problem: Problem) -> list[Action]:
        """The round broke off; what it had sent is delivered first."""
        return self._end(b"".join(map(self._encode, self._upstream.fail(problem))))

    def close(self) -> list[Action]:
        """The round is over: end the turn, or run the tools that were called."""
        return self._end(b"".join(map(self._encode, self._upstream.close())))

    def end(self, problem: Problem) -> list[Action]:
        """It is over, for this reason, whatever could still be tried; what had come is delivered."""
        if self.problem:  # one round has failed, and the other has not begun
            self.problem = problem
            return self._over(b"")
        return self._over(b"".join(map(self._encode, self._upstream.fail(problem))))

    def give_up(self) -> list[Action]:
        """Nothing else is tried after a round that Failed."""
        return self._over(b"")

    def tool_result(self, id: str, output: str) -> list[Action]:
        """Another round, once each tool has answered."""
        self._round.results[id] = output
        if len(self._round.results) < len(self._round.calls):
            return []
        messages = (*self._request.messages, *self._round.messages())
        self._request = replace(self._request, messages=messages)
        self._round = _Round(self._round.tools)
        return self.start()

    def kept(self, *, well: bool) -> list[Action]:
        """The answer has been stored, or could not be."""
        return [Send(self._endpoint.close(kept=well)), End()]

    def _end(self, last: bytes) -> list[Action]:
        failed_at_once = self.problem and not self.begun  # then the backend has done nothing that was of use
        self._spent += self._counted if failed_at_once else self._so_far
        self._counted, self._running = _NOTHING, False
        if self._round.goes_on and not self.problem:
            return [Send(last), *self._round.tools_to_run()]
        if not self.problem and (request := self._again()):
            self._request = request
            return [Send(last), *self.start()]
        if self.problem and not self.begun:
            return [Send(last), Failed(self.problem)]
        return self._over(last)

    def _over(self, last: bytes) -> list[Action]:
        if self.problem:
            last += self._endpoint.encode(Failure(self.problem))
        record = self._endpoint.record()
        if record is None:
            return [Send(last + self._endpoint.close(kept=False)), End()]
        return [Send(last), Keep(record)]

    def _encode(self, event: Event) -> bytes:
        if type(event) in _APART:
            return self._encode_apart(event)
        if self._round.tools and self._round.keeps(event):
            return b""
        if self.begun:
            return self._endpoint.encode(event)
        self.begun = True
        return self.commit() + self._endpoint.encode(event)

    def _encode_apart(self, event: Event) -> bytes:
        """What is no content."""
        if isinstance(event, Usage):
            self._counted = event
            return self._endpoint.encode(self._spent + event)
        if isinstance(event, Failure):
            self.problem = event.problem
            return b""
        return self.commit() + self._endpoint.encode(event)


class _Round:
    """What one round said of the gateway's own tools; the client does not see it."""

    def __init__(self, tools: Set[str]) -> None:
        self.tools = tools
        self.calls: dict[int, tuple[ToolStart, list[str]]] = {}
        self.results: dict[str, str] = {}
        self._said: list[str] = []
        self._theirs = False  # a call that the client must answer

    def keeps(self, event: Event) -> bool:
        """True if the event is the gateway's business: its own call, or a Finish that is not the last."""
        if type(event) is Finish:
            return self.goes_on
        if type(event) is Text:
            self._said.append(event.text)
        elif type(event) is ToolStart and event.name in self.tools:
            self.calls[event.call] = event, []
        elif type(event) is ToolStart:
            self._theirs = True
        elif type(event) is ToolArgs and event.call in self.calls:
            self.calls[event.call][1].append(event.json)
        return isinstance(event, ToolStart | ToolArgs | ToolEnd) and event.call in self.calls

    @property
    def goes_on(self) -> bool:
        return bool(self.calls) and not self._theirs

    def tools_to_run(self) -> list[RunTool]:
        return [RunTool(start.id, start.name, "".join(args)) for start, args in self.calls.values()]

    def messages(self) -> list[Message]:
        """The round as the upstream must see it in the next."""
        calls = [
            {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
            for call in self.tools_to_run()
        ]
        said: Message = {"role": "assistant", "content": "".join(self._said), "tool_calls": calls}
        return [said, *({"role": "tool", "tool_call_id": id, "content": out} for id, out in self.results.items())]
