"""One round with a backend, ready to be begun, and the one after it where its answer was none."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Protocol

from msgspec import Struct
from msgspec.structs import replace

from gateway.backends.dialects import Dialect
from gateway.backends.verdicts import EmulatedRule
from gateway.calls import ParserSettings
from gateway.empty_turn import EmptyTurn, Watched
from gateway.fan import FanOut
from gateway.formats.chosen import FormatChoice
from gateway.hosted import ToolLoop, ToolRoundSource
from gateway.request import Request
from gateway.server.admission import QueueIdentity
from gateway.server.call import HttpUpstreamCall, UpstreamCall
from gateway.server.directory import BackendRoute
from gateway.server.fanning import FanOutCall
from gateway.server.telemetry.observation import RequestRecord
from gateway.translate import EventFilter
from gateway.translate.continuous_usage import Continuous
from gateway.translate.promises import FailedOutput
from gateway.turn import RoundSource
from gateway.upstream import UpstreamReader, estimate_tokens_from_characters


class UpstreamRound(Struct, frozen=True):
    """One round, ready to be begun: where, and how the format of its answer was chosen.

    bodies: one; or one for each choice, where the server gives one at a time.
    """

    route: BackendRoute
    request: Request  # as the backend gets it
    bodies: Sequence[bytes]
    chosen: FormatChoice
    _dialect: Dialect
    _setting: ParserSettings
    _filters: Sequence[EventFilter]

    def open(self) -> RoundSource:
        filters = [*self._filters, *self._counting()] if self.request.stream else self._filters
        if len(self.bodies) == 1:
            return self._upstream(self.request, filters)
        one = replace(self.request, n=1)
        return FanOut([self._upstream(one, ()) for _ in self.bodies], filters)

    def _counting(self) -> Sequence[EventFilter]:
        """Return what gives each chunk its usage, if the client asks for that."""
        options = self.request.rest.get("stream_options")
        if not options or options.get("continuous_usage_stats") is not True:
            return ()
        return (
            Continuous(
                lambda: estimate_tokens_from_characters(self.size),
                estimate_tokens_from_characters,
                self._setting.ledger,
            ),
        )

    def _upstream(self, request: Request, filters: Sequence[EventFilter]) -> UpstreamReader:
        setting = self._setting
        decoder = self._dialect.decoder(request, setting.ledger)
        return UpstreamReader(decoder, setting, lambda: self.size, filters, setting.limit)

    def call(
        self, source: RoundSource | None, answered: Callable[[str], None], asker: QueueIdentity, seen: RequestRecord
    ) -> UpstreamCall:
        """Call its backend; `source`: opened by it; `answered`: called with the content type of the response."""
        backend, path = self.route.backend, self._dialect.path
        if isinstance(source, FanOut):
            return FanOutCall(
                partial(HttpUpstreamCall, backend, path=path, asker=asker, seen=seen), self.bodies, answered, source
            )
        return HttpUpstreamCall(backend, self.bodies[0], answered, path, asker, seen)

    def fanned(self, asked: Request, prepared: Callable[[Request], "UpstreamRound"]) -> "UpstreamRound":
        """With a body for each choice, if the server gives one at a time.

        A seed would make them one, so each has its own: `prepared` makes another round of a request.
        """
        if asked.n == 1 or not isinstance(self.route.backend.kind.fields["n"], EmulatedRule):
            return self
        self._setting.ledger.note("emulated", "n")
        if not isinstance(seed := asked.rest.get("seed"), int):
            return replace(self, bodies=[*self.bodies] * asked.n)
        seeded = (replace(asked, rest={**asked.rest, "seed": seed + i}) for i in range(asked.n))
        return replace(self, bodies=[prepared(one).bodies[0] for one in seeded])

    def another(self) -> "UpstreamRound | None":
        """The one that has to follow, once this is over: its answer was none that could be given to anybody."""
        return None

    def seen_by(self, filter: EventFilter) -> "UpstreamRound":
        """The same, with another filter that sees last what is answered."""
        return replace(self, _filters=[*self._filters, filter])

    def owing(
        self,
        policies: "Sequence[Filtering]",
        empty: EmptyTurn | None,
        after: "Callable[[Request, FailedOutput], UpstreamRound]",
    ) -> "EnforcedRound":
        """Return the same, whose answer has to be something."""
        filters = [*self._filters, *policies]
        round = self.route, self.request, self.bodies, self.chosen, self._dialect, self._setting, filters
        return EnforcedRound(*round, policies, empty, after)

    @property
    def size(self) -> int:
        """Characters of the prompt, near enough for an estimate."""
        tools = [tool.definition for tool in self.request.callable_tools]
        return len(str(self.request.messages)) + len(str(tools))


class Policy(Protocol):
    """A demand on a response.  failed: this attempt, if it broke the demand; asking: the request for another one."""

    failed: FailedOutput | None

    def asking(self) -> Request: ...


class Filtering(Policy, EventFilter, Protocol):
    """One that is a filter on the answer."""


class EnforcedRound(UpstreamRound, frozen=True):
    """A round whose answer has to be something.  `_after`: makes the round of another attempt.

    empty: looks for an answer without content, if that is wanted.
    """

    _policies: Sequence[Filtering]
    _empty: EmptyTurn | None
    _after: Callable[[Request, FailedOutput], UpstreamRound]

    def open(self) -> RoundSource:
        source = super().open()
        return Watched(source, self._empty) if self._empty and isinstance(source, UpstreamReader) else source

    def another(self) -> UpstreamRound | None:
        policies: Sequence[Policy] = [*self._policies, self._empty] if self._empty else self._policies
        return next((self._after(one.asking(), one.failed) for one in policies if one.failed), None)


class RoundLoop:
    """The rounds of one pipeline, one at a time.  It does not know its pipeline, as both would be a reference cycle.

    listening: gives each what is to hear its answer; source: what the one of now has opened.
    loop: of the tools that run at the gateway between them, if there are any.
    repeats: the one of now is another attempt, and knows the one before it.
    """

    now: UpstreamRound
    source: RoundSource
    repeats: bool

    def __init__(self, listening: Callable[[UpstreamRound], UpstreamRound]) -> None:
        self.listening = listening
        self.loop: ToolLoop | None = None

    def run_tools(self, loop: ToolLoop) -> None:
        """Start the round of tools; the loop reads its output as the last filter."""
        listening, self.loop = self.listening, loop
        self.listening = lambda round: listening(round).seen_by(loop)

    def begin(self, round: UpstreamRound, *, repeats: bool = False) -> None:
        self.now, self.repeats = self.listening(round), repeats

    def open(self, _: Request) -> RoundSource:
        if self.loop and self.loop.running:
            self.source = ToolRoundSource(self.loop)
            return self.source
        if self.loop:
            self.loop.begin()
        self.source = self.now.open()
        return self.source

    def again(self) -> Request | None:
        """Return the request for another round, if there is to be one."""
        if another := self.now.another():
            self.begin(another, repeats=True)
            return self.now.request
        return self.now.request if self.loop and (self.loop.running or self.loop.goes_on) else None
