"""Make the upstream calls of one response: a call for each round, and further attempts after failures."""

import asyncio
import logging
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
from gateway.server.fetch import attachments
from gateway.server.observability.request_record import StreamTiming, record_of
from gateway.server.observability.request_recorder import RecordedPipeline, record_rounds
from gateway.server.relay import token_limit
from gateway.server.relay.compaction_request import SummaryRequest
from gateway.server.relay.hedged_call import HedgedCall, SecondCall
from gateway.server.relay.model_request import CompactionPlan, ModelRequest
from gateway.server.relay.relay import Relay
from gateway.server.relay.retry_policy import RetryPolicy, Target
from gateway.server.relay.round_builder import goes_as_sent
from gateway.server.relay.rounds import (
    ResponseRounds,
    UpstreamRound,
    count_input_tokens,
    gateway_headers,
    reject_if_strict,
    strict_route,
)
from gateway.server.tools import ToolRoundCall, Toolset, Used
from gateway.server.upstream import model_registry
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

_log = logging.getLogger("gateway")
_TOO_LONG, _CHECKED = "context_length_exceeded", "short window"
_SHORT = 8192  # tokens of an agent's prompt with its tools: a shorter context is too short for tools


class Attempts:
    """The attempts at one response: `begin`, then `plan_summary` if a compaction may be due, then `open_pipeline`.

    The relay takes `next_call` for each round, and `call_after_failure` for another attempt.
    """

    def __init__(self, http: HttpRequest, model_request: ModelRequest, targets: RetryPolicy, settings: Config) -> None:
        self._http, self._model_request, self._targets, self._settings = http, model_request, targets, settings
        self.record = record_of(http.scope)
        self._ledger, self._rounds = model_request.ledger, ResponseRounds(model_request.memory.filters)
        self._needs_summary = False  # of the earlier messages, before the response
        self._passed_strict = False  # the request has passed strict mode once
        self._limit_reduced = False  # after an error that left a smaller token limit
        self._request: Request  # with its files, and in its present length
        self._shorter: list[Request] | None = None  # versions of it that are left; None: not made yet
        self._toolset: Toolset

    async def begin(self, target: Target) -> None:
        """Build the first round.  Raise a ClientError for a request that is refused."""
        request = self._model_request.request
        if not (request.sent or request.is_text_only):
            request = await self._without_files(request)
        if toolset := self._model_request.toolset(target.route.settings):
            request = await self._add_tools(toolset, request)
        self._request, self._savepoint = request, self._ledger.savepoint()
        self._warn_of_fallback()
        await self._build_next_round(target.route)

    async def plan_summary(self, plan: CompactionPlan) -> None:
        """Decide whether a summary of the earlier messages comes before the response."""
        tokens = plan.threshold and await count_input_tokens(self._rounds.current, self._ledger)
        self._needs_summary = plan.threshold == 0 or tokens > plan.threshold

    def open_pipeline(self) -> Pipeline:
        """Return the pipeline of the response, which has started."""
        rounds, encoder = self._rounds, self._model_request.encoder(self._targets.served.settings)
        recorder, localize = self.record.recorder, self._model_request.localizer()
        kind = RecordedPipeline if recorder else Pipeline
        open_round = record_rounds(rounds.open, recorder) if recorder else rounds.open
        self._pipeline = kind(
            rounds.current.request, open_round, encoder, next_request=rounds.next_request, localize=localize
        )
        self._pipeline.start()
        self._model_request.pipelines.append(self._pipeline)
        return self._pipeline

    def response_headers(self) -> dict[str, str]:
        """Return the headers that describe the route of the response."""
        return gateway_headers(self._http, self.route, self._rounds.current.chosen, self._ledger)

    @property
    def route(self) -> BackendRoute:
        """The route of the current round."""
        return self._rounds.current.route

    @property
    def backend(self) -> Backend:
        """The backend of the current round."""
        return self.route.backend

    def next_call(self) -> UpstreamCall:
        """Return the call of the current round: to a backend, or for a summary or tools before it."""
        if self._needs_summary:
            return DeferredCall(self._after_compaction())
        if self._rounds.tool_loop and self._rounds.tool_loop.running:
            return ToolRoundCall(partial(self._run_tools, self._rounds.tool_loop))
        round, seconds = self._rounds.current, self._targets.served.settings.hedge_seconds
        call = round.make_call(
            self._rounds.source, self._pipeline.set_content_type, self._targets.identity, self.record
        )
        hedged = seconds and len(round.bodies) == 1 and not self._rounds.repeats
        return HedgedCall(call, seconds, self._hedge) if hedged else call

    def call_after_failure(self, problem: Problem, retry_after: str | None) -> UpstreamCall | None:
        """Return the call of another attempt after such a failure; None if there is no other."""
        if self._reduce_token_limit(problem):
            target: Target | None = Target(self.route)
        elif target := self._targets.next(problem, retry_after):
            self._warn_of_fallback()
        elif problem.code == _TOO_LONG and self._shorten():
            target = Target(self.route)
            self._warn("truncated", self._model_request.conversation)
        return DeferredCall(self._retry(target, UpstreamFailed(problem, retry_after))) if target else None

    def _shorten(self) -> bool:
        """Take the next shorter version of the request; return False without one."""
        if self._shorter is None:
            _, *self._shorter = truncated_versions(self._request)
        if not self._shorter:
            return False
        self._request = replace(self._shorter.pop(0), max_tokens=self._request.max_tokens)
        return True

    def _reduce_token_limit(self, problem: Problem) -> bool:
        """Reduce the token limit if the backend refuses it beside a prompt that fits; return True if it did."""
        request, limited = self._request, self._limit_reduced
        request, _ = self._model_request.with_parameters(request, self.route.settings, Warnings(), limited=limited)
        smaller = token_limit.smaller(request, problem, again=self._limit_reduced)
        if not smaller:
            return False
        self._limit_reduced = True
        self._request = replace(self._request, max_tokens=smaller.max_tokens)
        self._warn("translated", self._limit_name)
        return True

    @property
    def _limit_name(self) -> str:
        return token_limit.name(self._model_request.request, self._model_request.conversation)

    async def _retry(self, target: Target, failed: GatewayError) -> UpstreamCall:
        """Return the call of another attempt.  Raise `failed` if the other server refuses the request.

        The warnings of the failed round are removed: they are not about the response.
        """
        await asyncio.sleep(target.pause)
        self._ledger.rollback(self._savepoint)
        try:
            await self._build_next_round(target.route)
        except ClientError:
            raise failed from None
        self._pipeline.start()
        return self.next_call()

    async def _hedge(self) -> SecondCall | None:
        """Return a second call of the same round, at another backend; its warnings count only if it wins."""
        if not (target := self._targets.hedge()):
            return None
        types: list[str] = []

        async def won() -> None:
            self._ledger.rollback(self._savepoint)
            await self._build_next_round(target.route)
            self._pipeline.start()
            self._pipeline.set_content_type(*types)

        try:
            round = await self._build_round(target.route, Warnings())
        except ClientError:
            return None
        return SecondCall(round.make_call(None, types.append, self._targets.identity, self.record), won)

    async def _build_next_round(self, route: BackendRoute) -> None:
        """Build the next round, and report it to all observers."""
        round = await self._build_round(route, self._ledger)
        self._rounds.begin(round)
        if round.request.tools:
            warn_of_short_window(route)
        self.record.set_route(route.model, route.backend.name, round.chosen.format)
        if self.record.recorder:
            self.record.recorder.record_prepared(round.recording_entry(self.record.recorder.now()))
        if self.record.trace:
            self.record.trace.model = route.upstream_model

    async def _build_round(self, route: BackendRoute, ledger: Warnings) -> UpstreamRound:
        route, settings = strict_route(self._http, route), self._settings
        before = ledger.savepoint() if self._passed_strict else 0  # later warnings are about responses
        request, names = self._model_request.with_parameters(
            self._request, route.settings, ledger, limited=self._limit_reduced
        )
        mark = ledger.savepoint()
        if request.sent and not goes_as_sent(request, route):
            request = await self._without_files(request)
        if request.max_tokens:
            request = token_limit.fitted(request, route, ledger, self._limit_name)
        if not route.backend.kind.fetches:
            room = self._model_request.room
            request = await attachments.inline_request_images(request, settings.images, ledger, room)
        round = await self._model_request.build_round(request, route, ledger, settings.limits.frame_bytes)
        if names:
            ledger.discard(mark, names)
        if route.settings.strict:
            reject_if_strict(route, ledger.entries()[before:])
        self._passed_strict = ledger is self._ledger or self._passed_strict
        return round

    async def _without_files(self, request: Request) -> Request:
        tenant = self._targets.identity.tenant
        return await self._model_request.without_files(request, self._settings.files, tenant)

    def _warn_of_fallback(self) -> None:
        if self._targets.is_fallback:
            self._warn("translated", "model")

    def _warn(self, code: WarningCode, subject: str) -> None:
        """Warn of something about the response, whatever becomes of the round."""
        self._ledger.rollback(self._savepoint)
        self._ledger.add(code, subject)
        self._savepoint = self._ledger.savepoint()

    # tools that run at the gateway

    async def _add_tools(self, toolset: Toolset, request: Request) -> Request:
        self._rounds.add_tool_loop(await toolset.open())
        self._toolset = toolset
        return toolset.add_to_request(request, self._ledger)

    async def _run_tools(
        self, loop: ToolLoop, on_result: Callable[[BuiltinToolResult], None], wait_until_used: Used
    ) -> None:
        """Run the due tools, and build the next round.

        on_result: gets each result; wait_until_used: returns when the pipeline has read all of them.
        """
        if loop.pending_runs:
            await self._model_request.on_tools_start()
        if self.record.trace:
            on_result = self.record.trace.running(loop.pending_runs, on_result)
        await self._toolset.run(loop.pending_runs, on_result)
        await wait_until_used()
        if loop.needs_another_round:
            self._request, self._shorter = loop.next_request(self._request), None
            self._savepoint = self._ledger.savepoint()
            await self._build_next_round(self.route)

    # the summary before a response

    async def _after_compaction(self) -> UpstreamCall:
        """Make the summary, and return the call of the response that goes on from it.  Raise the summary's failure."""
        plan = self._model_request.compaction
        assert plan
        summary = plan.encoder()
        route = await self._make_summary(summary)
        self._savepoint, self._needs_summary = self._ledger.savepoint(), False
        self.record.pace = StreamTiming()
        self._rounds.filters.append(CompactionItemFilter(Raw(json.encode(summary.item()))))
        self._request, self._shorter = request_after_summary(self._request, summary.text), []
        self._pipeline.add_usage(summary.spent)
        await self._build_next_round(route)
        self._pipeline.start()
        return self.next_call()

    async def _make_summary(self, summary: SummaryEncoder) -> BackendRoute:
        """Fill the encoder with a summary of the messages; return the route that it was made on."""
        request = SummaryRequest(self._model_request, summary_request(self._request), summary)
        attempts = Attempts(self._http, request, self._targets, self._settings)
        await attempts.begin(Target(self.route))
        pipeline = attempts.open_pipeline()
        with closing(Relay(pipeline, attempts, self._settings.stream, request.store_or_warn)) as relay:
            await relay.whole()
        return attempts.route


def warn_of_short_window(route: BackendRoute) -> None:
    """Log a warning if the context of a model that gets tools is known and short; once for each route."""
    if _CHECKED in route.cache or not (window := model_registry.remembered(route)):
        return
    route.cache[_CHECKED] = True
    if window < _SHORT:
        words = "the context of model %s has %d tokens, too few for tools; %s"
        _log.warning(words, route.model, window, _window_advice(route))


def _window_advice(route: BackendRoute) -> str:
    if route.backend.settings.kind == "ollama":
        return f"set models.{route.model}.defaults: {{num_ctx: 32768}}"
    return f"start backend {route.backend.name} with a longer one (`gateway doctor` says how)"
