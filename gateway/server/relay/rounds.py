"""Run the rounds of a response: each is one upstream call, or several for several choices.

The headers of the response describe its round, and strict mode refuses a round with certain warnings.
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Protocol, Self
from urllib.parse import quote

from msgspec import Struct
from msgspec.structs import replace
from starlette.requests import Request as HttpRequest

from gateway.backends.dialects import Dialect
from gateway.backends.field_rules import EmulatedRule
from gateway.backends.openai.usage import estimate_tokens_from_characters
from gateway.builtin_tools import ToolLoop, ToolRoundSource
from gateway.errors import BadRequest
from gateway.formats.selection import FormatChoice
from gateway.pipeline.empty_round import EmptyRoundPolicy, MaybeEmptySource
from gateway.pipeline.fan_out import FanOut
from gateway.pipeline.pipeline import RoundSource
from gateway.pipeline.tool_calls import ParserSettings
from gateway.pipeline.upstream_reader import UpstreamReader
from gateway.recording import PreparedEntry
from gateway.request import Request
from gateway.server.http.request_reader import header_dict
from gateway.server.observability.request_record import RequestRecord
from gateway.server.relay.fan_out_call import FanOutCall
from gateway.server.upstream.model_registry import BackendRoute
from gateway.server.upstream.slots import QueueIdentity
from gateway.server.upstream.upstream_call import HttpUpstreamCall, UpstreamCall
from gateway.transforms import EventFilter
from gateway.transforms.continuous_usage import Continuous
from gateway.transforms.output_validation import FailedOutput
from gateway.warnings import Warnings, header_text

# Settings that name other models, or grant access.
_NOT_RECORDED = {"aliases", "backends", "fallback", "limits", "mcp"}
WARNINGS = "x-gateway-warnings"
_UNFIT = re.compile("[^ -~]")  # characters that a header cannot have
_EARLIER_REASONING = "input.reasoning"  # agents send it each time, and chat templates leave it out as well


class UpstreamRound(Struct, frozen=True):
    """One round, ready to start: its route, its request and the format of its response.

    bodies: one; or one for each choice, where the server generates one at a time.
    """

    route: BackendRoute
    request: Request  # as the backend gets it
    bodies: Sequence[bytes]
    chosen: FormatChoice
    _dialect: Dialect
    _settings: ParserSettings
    _filters: Sequence[EventFilter]

    def open(self) -> RoundSource:
        """Return the source of the round's events."""
        filters = [*self._filters, *self._counting()] if self.request.stream else self._filters
        if len(self.bodies) == 1:
            return self._upstream(self.request, filters)
        one = replace(self.request, n=1)
        return FanOut([self._upstream(one, ()) for _ in self.bodies], filters)

    def _counting(self) -> Sequence[EventFilter]:
        """Return a filter that adds usage to each chunk, if the client requests that."""
        options = self.request.rest.get("stream_options")
        if not options or options.get("continuous_usage_stats") is not True:
            return ()
        return (
            Continuous(
                lambda: estimate_tokens_from_characters(self.prompt_characters),
                estimate_tokens_from_characters,
                self._settings.ledger,
            ),
        )

    def _upstream(self, request: Request, filters: Sequence[EventFilter]) -> UpstreamReader:
        settings = self._settings
        decoder = self._dialect.decoder(request, settings.ledger)
        return UpstreamReader(decoder, settings, lambda: self.prompt_characters, filters, settings.limit)

    def make_call(
        self,
        source: RoundSource | None,
        set_content_type: Callable[[str], None],
        identity: QueueIdentity,
        record: RequestRecord,
    ) -> UpstreamCall:
        """Call the backend.

        source: the open source of the round; set_content_type: called with the content type of the response.
        """
        backend, path = self.route.backend, self._dialect.path
        if isinstance(source, FanOut):
            return FanOutCall(
                partial(HttpUpstreamCall, backend, path=path, identity=identity, record=record),
                self.bodies,
                set_content_type,
                source,
            )
        call = HttpUpstreamCall(backend, self.bodies[0], set_content_type, path, identity, record)
        if self.request.sent:
            call.headers = self.client_headers
        return call

    @property
    def client_headers(self) -> Mapping[str, str]:
        """Return the client's headers that the backend gets, which speaks the client's API; mostly none."""
        sent = self.request.sent
        return sent.headers if sent and self.route.backend.dialect.sent_body else {}

    def split_choices(self, request: Request, prepared: Callable[[Request], "UpstreamRound"]) -> "UpstreamRound":
        """Return the round with a body for each choice, if the server generates one at a time.

        One seed would make all choices equal, so each gets its own.  prepared: makes a round of a request.
        """
        if request.n == 1 or not isinstance(self.route.backend.kind.fields["n"], EmulatedRule):
            return self
        self._settings.ledger.add("emulated", "n")
        if not isinstance(seed := request.rest.get("seed"), int):
            return replace(self, bodies=[*self.bodies] * request.n)
        seeded = (replace(request, rest={**request.rest, "seed": seed + i}) for i in range(request.n))
        return replace(self, bodies=[prepared(one).bodies[0] for one in seeded])

    def follow_up(self) -> "UpstreamRound | None":
        """Return the round that has to follow, if the response of this one cannot be used."""
        return None

    def with_filter(self, filter: EventFilter) -> Self:
        """Return the round with another filter, the last to see its events."""
        return replace(self, _filters=[*self._filters, filter])

    def with_policies(
        self,
        policies: "Sequence[FilterPolicy]",
        empty: EmptyRoundPolicy | None,
        rebuild: "Callable[[Request, FailedOutput], UpstreamRound]",
    ) -> "EnforcedRound":
        """Return the round with policies that its response has to meet.

        empty: finds a response without content; rebuild: makes the round of another attempt.
        """
        filters = [*self._filters, *policies]
        round = self.route, self.request, self.bodies, self.chosen, self._dialect, self._settings, filters
        return EnforcedRound(*round, policies, empty, rebuild)

    def recording_entry(self, at: float) -> PreparedEntry:
        """Return the entry of the round in a recording.  at: seconds since the request began."""
        route, chosen, server = self.route, self.chosen, self.route.backend.settings
        return PreparedEntry(
            at,
            model=route.model,
            backend=route.backend.name,
            upstream_model=route.upstream_model,
            server={"kind": server.kind, "ignores": server.ignores},
            settings=route.settings.model_dump(mode="json", by_alias=True, exclude_unset=True, exclude=_NOT_RECORDED),
            format=chosen.format,
            reason=chosen.reason,
            learned=route.backend.metadata_cache.cached_metadata(route.upstream_model),
        )

    @property
    def prompt_characters(self) -> int:
        """Return the length of the prompt in characters, near enough for an estimate."""
        tools = [tool.definition for tool in self.request.callable_tools]
        past = len(self.request.past.messages) if self.request.past else 0
        return len(str(self.request.messages)) + past + len(str(tools))


class Policy(Protocol):
    """A demand on a response.

    failed: the output of this attempt, if it broke the demand.
    """

    failed: FailedOutput | None

    def retry_request(self) -> Request:
        """Return the request of another attempt."""


class FilterPolicy(Policy, EventFilter, Protocol):
    """A policy that filters the response."""


class EnforcedRound(UpstreamRound, frozen=True):
    """A round whose response has to meet policies.

    See `UpstreamRound.with_policies`.
    """

    _policies: Sequence[FilterPolicy]
    _empty: EmptyRoundPolicy | None
    _rebuild: Callable[[Request, FailedOutput], UpstreamRound]

    def open(self) -> RoundSource:
        """Return the source, which holds back a round that may be empty."""
        source = super().open()
        return MaybeEmptySource(source, self._empty) if self._empty and isinstance(source, UpstreamReader) else source

    def follow_up(self) -> UpstreamRound | None:
        """Return another attempt for the first policy that failed."""
        policies: Sequence[Policy] = [*self._policies, self._empty] if self._empty else self._policies
        return next((self._rebuild(one.retry_request(), one.failed) for one in policies if one.failed), None)


class ResponseRounds:
    """The rounds of one pipeline, one at a time.  It does not know its pipeline, as both would be a reference cycle.

    filters: read the events of each round, in this order; source: the open source of the current round.
    tool_loop: the tools that run at the gateway between rounds, if there are any.
    repeats: the current round is another attempt of the one before it.
    """

    current: UpstreamRound
    source: RoundSource
    repeats: bool

    def __init__(self, filters: Iterable[EventFilter]) -> None:
        self.filters = [*filters]
        self.tool_loop: ToolLoop | None = None

    def add_tool_loop(self, loop: ToolLoop) -> None:
        """Add the tools that run between rounds; the loop reads the events of each round as the last filter."""
        self.tool_loop = loop
        self.filters.append(loop)

    def begin(self, round: UpstreamRound, *, repeats: bool = False) -> None:
        """Make a round the current one."""
        for filter in self.filters:
            round = round.with_filter(filter)
        self.current, self.repeats = round, repeats

    def open(self, _: Request) -> RoundSource:
        """Open the current round, or the tools that run before it.  The pipeline calls this."""
        if self.tool_loop and self.tool_loop.running:
            self.source = ToolRoundSource(self.tool_loop)
            return self.source
        if self.tool_loop:
            self.tool_loop.begin()
        self.source = self.current.open()
        return self.source

    def next_request(self) -> Request | None:
        """Return the request of the next round; None after the last.  The pipeline calls this."""
        if another := self.current.follow_up():
            self.begin(another, repeats=True)
            return self.current.request
        return (
            self.current.request
            if self.tool_loop and (self.tool_loop.running or self.tool_loop.needs_another_round)
            else None
        )


async def count_input_tokens(round: UpstreamRound, ledger: Warnings) -> int:
    """Return the tokens of the prompt, by the server's count or by an estimate, with a warning."""
    counted = await round.route.backend.count(round.bodies[0], round.client_headers)
    if counted is None:
        ledger.add("estimated", "input_tokens")
        return estimate_tokens_from_characters(round.prompt_characters)
    return counted


def gateway_headers(http: HttpRequest, route: BackendRoute, chosen: FormatChoice, ledger: Warnings) -> dict[str, str]:
    """Return the warnings header, and the debug headers if the client requests them."""
    data = _debug(http, route, chosen)
    if warnings := ledger.header_value():
        data[WARNINGS] = header_text(warnings)
    return data


def strict_route(http: HttpRequest, route: BackendRoute) -> BackendRoute:
    """Return the route, in strict mode if the client requests it."""
    if route.settings.strict or header_dict(http.scope).get(b"x-gateway-strict") != b"1":
        return route
    return route.strict_route


def reject_if_strict(route: BackendRoute, entries: Sequence[str]) -> None:
    """Raise BadRequest in strict mode for a part of the request that is dropped, not enforced or unknown."""
    if not route.settings.strict:
        return
    for entry in entries:
        code, _, subject = entry.partition(":")
        if code == "forwarded":
            raise BadRequest(f"Unknown parameter: '{subject}'.", code="unknown_parameter", param=subject)
        if code in ("dropped", "unenforced") and subject != _EARLIER_REASONING:
            message = f"Unsupported parameter: this model's backend cannot honor '{subject}', and strict mode is on."
            raise BadRequest(message, code="unsupported_parameter", param=subject)


def _debug(http: HttpRequest, route: BackendRoute, chosen: FormatChoice) -> dict[str, str]:
    if header_dict(http.scope).get(b"x-gateway-debug") != b"1":
        return {}
    begins = "; responses start inside a thought" if chosen.thought_open else ""
    return {
        "x-gateway-model": quote(route.model, safe="/@+,"),
        "x-gateway-backend": route.backend.name,
        "x-gateway-format": _UNFIT.sub("?", f"{chosen.format}; {chosen.reason}{begins}"),
    }
