"""The rounds of one answer, one at a time: where they are put, and what is tried when nothing comes of one."""

import asyncio
from collections.abc import Callable
from contextlib import closing
from functools import partial

from msgspec import Raw, json
from msgspec.structs import replace
from starlette.requests import Request as HttpRequest

from gateway.api.responses import SummaryEncoder
from gateway.builtin_tools import BuiltinToolResult, ToolLoop
from gateway.config import Config
from gateway.errors import ClientError, GatewayError, Problem, UpstreamFailed
from gateway.pipeline.pipeline import Pipeline
from gateway.request import Request
from gateway.server.conversations.reasoning_memory import NoReasoningMemory
from gateway.server.fetch import attachments
from gateway.server.observability.request_record import StreamTiming, record_of
from gateway.server.observability.request_recorder import record_rounds
from gateway.server.relay import response_headers, token_limit
from gateway.server.relay.hedge import HedgeCall, HedgedCall
from gateway.server.relay.model_request import ModelRequest, no_tools
from gateway.server.relay.relay import Relay
from gateway.server.relay.retry_policy import RetryPolicy, Target
from gateway.server.relay.round_builder import build_round
from gateway.server.relay.rounds import RoundLoop, UpstreamRound, count_input_tokens
from gateway.server.tools import ToolRoundCall, Toolset, Used
from gateway.server.upstream.backend import Backend
from gateway.server.upstream.model_registry import BackendRoute
from gateway.server.upstream.upstream_call import DeferredCall, UpstreamCall
from gateway.transforms.context_window import (
    CompactionItemFilter,
    request_after_summary,
    summary_request,
    truncated_versions,
)
from gateway.warnings import WarningCode, Warnings

_TOO_LONG = "context_length_exceeded"


class Attempts:
    """`begin`, then a `turn`; its Relay wants a `call` for each round, and another one `after` a failure."""

    def __init__(self, http: HttpRequest, question: ModelRequest, ways: RetryPolicy, settings: Config) -> None:
        self._http, self._question, self._ways, self._settings = http, question, ways, settings
        self.seen = record_of(http.scope)
        self._ledger, self._rounds = question.ledger, RoundLoop(question.memory.capture_filter)
        self._summing = False  # what was said is to be summed up first
        self._judged = False  # the request has passed strict mode once
        self._limited = False  # an error has left a smaller token limit
        self._toolbox: Toolset

    async def begin(self, way: Target) -> None:
        """Raises what the request is refused for."""
        request = await self._question.without_files(self._settings.files, self._ways.asker.tenant)
        if toolbox := self._question.tools(way.route.settings):
            request = await self._with_tools(toolbox, request)
        self._versions = truncated_versions(request)
        self._mark = self._ledger.savepoint()
        self._note_model()
        await self._build_next_round(way.route)

    async def open_pipeline(self) -> Pipeline:
        """One that has started."""
        rounds, endpoint = self._rounds, self._question.encoder(self._ways.served.settings)
        if compaction := self._question.compaction:
            self._summing = (
                compaction.threshold == 0 or await count_input_tokens(rounds.now, self._ledger) > compaction.threshold
            )
        self._turn = Pipeline(
            rounds.now.request, record_rounds(rounds.open, self.seen.recorder), endpoint, again=rounds.again
        )
        self._turn.start()
        self._question.turns.append(self._turn)
        return self._turn

    def response_headers(self) -> dict[str, str]:
        """Return the headers that describe the route of the response."""
        return response_headers.gateway_headers(self._http, self.route, self._rounds.now.chosen, self._ledger)

    @property
    def route(self) -> BackendRoute:
        """Where the round of now is."""
        return self._rounds.now.route

    @property
    def backend(self) -> Backend:
        return self.route.backend

    def next_call(self) -> UpstreamCall:
        if self._summing:
            return DeferredCall(self._after_compaction())
        if self._rounds.loop and self._rounds.loop.running:
            return ToolRoundCall(partial(self._run_tools, self._rounds.loop))
        round, seconds = self._rounds.now, self._ways.served.settings.hedge_seconds
        call = round.make_call(self._rounds.source, self._turn.answered, self._ways.asker, self.seen)
        hedged = seconds and len(round.bodies) == 1 and not self._rounds.repeats
        return HedgedCall(call, seconds, self._hedge) if hedged else call

    def call_after_failure(self, problem: Problem, retry_after: str | None) -> UpstreamCall | None:
        if self._limit(problem):
            way: Target | None = Target(self.route)
        elif way := self._ways.next(problem, retry_after):
            self._note_model()
        elif problem.code == _TOO_LONG and len(self._versions) > 1:
            way = Target(self.route)
            self._versions = self._versions[1:]
            self._note("truncated", self._question.conversation)
        return DeferredCall(self._retry(way, UpstreamFailed(problem, retry_after))) if way else None

    def _limit(self, problem: Problem) -> bool:
        """Change the token limit if the backend refuses it beside a prompt that fits; True if it can ask again."""
        request = self._versions[0]
        smaller = token_limit.smaller(request, problem, again=self._limited)
        if not smaller:
            return False
        self._limited = True
        self._versions = [replace(version, max_tokens=smaller.max_tokens) for version in self._versions]
        self._note("translated", self._limit_name)
        return True

    @property
    def _limit_name(self) -> str:
        return token_limit.name(self._question.request, self._question.conversation)

    async def _retry(self, way: Target, failed: GatewayError) -> UpstreamCall:
        """Raises why it is tried again where that cannot be done: what one server takes another may refuse.

        What was noted of a round that came to nothing is not said of the answer.
        """
        await asyncio.sleep(way.pause)
        self._ledger.rollback(self._mark)
        try:
            await self._build_next_round(way.route)
        except ClientError:
            raise failed from None
        self._turn.start()
        return self.next_call()

    async def _hedge(self) -> HedgeCall | None:
        """The same at another backend, of which nothing is noted unless it gives the answer."""
        if not (way := self._ways.hedge()):
            return None
        types: list[str] = []

        async def won() -> None:
            self._ledger.rollback(self._mark)
            await self._build_next_round(way.route)
            self._turn.start()
            self._turn.answered(*types)

        try:
            round = await self._build_round(way.route, Warnings())
        except ClientError:
            return None
        return HedgeCall(round.make_call(None, types.append, self._ways.asker, self.seen), won)

    async def _build_next_round(self, route: BackendRoute) -> None:
        """Return the next round, and report it to all observers."""
        round = await self._build_round(route, self._ledger)
        self._rounds.begin(round)
        self.seen.set_route(route.model, route.backend.name, round.chosen.format)
        if self.seen.recorder:
            self.seen.recorder.record_prepared(round.recording_entry(self.seen.recorder.now()))
        if self.seen.trace:
            self.seen.trace.model = route.upstream_model

    async def _build_round(self, route: BackendRoute, ledger: Warnings) -> UpstreamRound:
        route, settings = response_headers.strict_route(self._http, route), self._settings
        before = ledger.savepoint() if self._judged else 0  # what came since then is of responses
        request = self._versions[0]
        if request.max_tokens:
            request = token_limit.fitted(request, route, ledger, self._limit_name)
        request = await attachments.inline_request_images(request, route.backend.kind, settings.images, ledger)
        round = await self._question.prepare(request, route, ledger, settings.limits.frame_bytes)
        response_headers.reject_if_strict(route, ledger.entries()[before:])
        self._judged = ledger is self._ledger or self._judged
        return round

    def _note_model(self) -> None:
        if self._ways.is_fallback:
            self._note("translated", "model")

    def _note(self, code: WarningCode, subject: str) -> None:
        """Of the answer, whatever becomes of the round."""
        self._ledger.rollback(self._mark)
        self._ledger.add(code, subject)
        self._mark = self._ledger.savepoint()

    # tools that run here

    async def _with_tools(self, toolbox: Toolset, request: Request) -> Request:
        self._rounds.add_tool_loop(await toolbox.open())
        self._toolbox = toolbox
        return toolbox.add_to_request(request, self._ledger)

    async def _run_tools(self, loop: ToolLoop, tell: Callable[[BuiltinToolResult], None], used: Used) -> None:
        """Run what is due, and put what the model is asked next."""
        if loop.pending_runs:
            await self._question.on_tools_start()
        if self.seen.trace:
            tell = self.seen.trace.running(loop.pending_runs, tell)
        await self._toolbox.run(loop.pending_runs, tell)
        await used()
        if loop.needs_another_round:
            self._versions = truncated_versions(loop.next_request(self._versions[0]))
            self._mark = self._ledger.savepoint()
            await self._build_next_round(self.route)

    # what comes before

    async def _after_compaction(self) -> UpstreamCall:
        """The call for the answer, once there is a summary to go on from; raises what went wrong with that."""
        compaction = self._question.compaction
        assert compaction
        summary = compaction.encoder()
        route = await self._make_summary(summary)
        self._mark, self._summing = self._ledger.savepoint(), False
        self.seen.pace = StreamTiming()
        told, listening = CompactionItemFilter(Raw(json.encode(summary.item()))), self._rounds.listening
        self._rounds.listening = lambda round: listening(round).with_filter(told)
        self._versions = [request_after_summary(self._versions[0], summary.text)]
        self._turn.add_usage(summary.spent)
        await self._build_next_round(route)
        self._turn.start()
        return self.next_call()

    async def _make_summary(self, summary: SummaryEncoder) -> BackendRoute:
        """Where it was made."""
        question = replace(
            self._question,
            request=summary_request(self._versions[0]),
            encoder=lambda _: summary,
            memory=NoReasoningMemory(),
            compaction=None,
            prepare=build_round,
            turns=[],
            tools=no_tools,
        )
        attempts = Attempts(self._http, question, self._ways, self._settings)
        await attempts.begin(Target(self.route))
        with closing(Relay(await attempts.open_pipeline(), attempts, self._settings.stream, question.kept)) as exchange:
            await exchange.whole()
        return attempts.route
