"""Build the upstream bodies of a round for the backend of a route, and the settings of its parser."""

from functools import cached_property, partial

from msgspec import Struct
from msgspec.structs import replace

from gateway.api import completions, validation
from gateway.api.chat import schema
from gateway.backends.dialects import DIALECTS
from gateway.backends.openai import request_body
from gateway.backends.openai.messages import MessagePolicy
from gateway.backends.openai.request_body import BodyTarget, Prefill, fit_prefill, prefill_of, without_prefill
from gateway.backends.services import CompletionsSupport
from gateway.errors import BadRequest
from gateway.formats import FORMATS
from gateway.formats.parser import Format, ParseContext
from gateway.formats.selection import FormatChoice
from gateway.pipeline import empty_round
from gateway.pipeline.empty_round import EmptyRoundPolicy
from gateway.pipeline.tool_calls import ParserSettings
from gateway.request import Request, ToolName
from gateway.server.ids import id_maker, short_id
from gateway.server.relay.format_selection import choose_format, format_by_names, tool_call_id_form
from gateway.server.relay.rounds import UpstreamRound
from gateway.server.upstream import model_registry
from gateway.server.upstream.model_registry import BackendRoute
from gateway.server.worker_thread import run_in_thread
from gateway.transforms import (
    EventFilter,
    invalid_calls,
    lower_request,
    output_enforcement,
    past_tool_calls,
    prompted_tools,
)
from gateway.transforms.invalid_calls import HeldCalls
from gateway.transforms.output_validation import (
    EnforcementTerms,
    FailedOutput,
    OutputValidationFilter,
    output_validation,
)
from gateway.transforms.text_filters import LLAMA_ENDS, MIDDLE_ENDS, EchoFilter, Ending, StopFilter, stop_filters
from gateway.warnings import Warnings

_NONE: frozenset[str] = frozenset()
_LLAMA = {"llama3_json", "llama4_pythonic", "pythonic", "functionary31"}  # formats of models that write its end tokens
_COMPLETION_FORMAT = FormatChoice("native", "a completed text is not parsed")
_SENT_FORMAT = FormatChoice("native", "the backend speaks the client's API")


async def build_round(original: Request, route: BackendRoute, ledger: Warnings, frame_bytes: int) -> UpstreamRound:
    """Build a round of a chat.  It may query the backend for metadata, once for each model.

    Raises BadRequest for a part that only a backend of another kind takes.
    """
    if original.sent:
        if round := _round_as_sent(original, route, ledger, frame_bytes):
            return round
        if original.sent.refusal:
            raise original.sent.refusal
        ledger.put(original.sent.warnings)
    if original.past and original.past.call_ids and route.settings.tools == "prompt":
        original = original.with_whole_past()
    if original.past:
        original = route.backend.dialect.fit_past(original, original.past, route.kind, route.message_policy)
    large = original.large
    if original.is_plain:
        request, filters = original, list[EventFilter]()
    else:
        request, filters = (
            await run_in_thread(lower_request, original, ledger) if large else lower_request(original, ledger)
        )
    chosen = await choose_format(route, request)
    if original.past and original.past.call_ids and past_tool_calls.has_own_ids(tool_call_id_form(route, chosen)):
        return await build_round(original.with_whole_past(), route, ledger, frame_bytes)
    continues = not prefill_of(request, route.backend.kind) or await route.backend.metadata_cache.continues_messages(
        route.upstream_model
    )
    can_reason = route.backend.dialect.thinking.isdisjoint(request.rest) or await _can_reason(route)
    context = _cached_context(route, chosen, continues, can_reason, frame_bytes)
    parts = context, original, (request, filters), ledger
    round = await run_in_thread(_build_chat_round, *parts) if large else _build_chat_round(*parts)
    return round if original.n == 1 else round.split_choices(original, partial(_rebuild_round, context, ledger))


class RoundContext(Struct, frozen=True, dict=True):
    """The facts that requests to a route depend on, and the values that follow from them.

    continues_messages: the server goes on from a prefill; can_reason: the effort of the model's reasoning can be set.
    """

    route: BackendRoute
    chosen: FormatChoice
    continues_messages: bool
    can_reason: bool
    frame_bytes: int

    @cached_property
    def target(self) -> BodyTarget:
        """Return the rules of the request body."""
        route = self.route
        special, prompted = route.format_spec(self.chosen.format).special, route.settings.tools == "prompt"
        return BodyTarget(
            route.upstream_model,
            route.kind,
            route.message_policy,
            route.parses_tool_calls,
            special,
            self.can_reason,
            prompted,
            route.backend.settings.cache == "auto",
        )

    @cached_property
    def format(self) -> Format | None:
        """Return the parser of the format; None if the server parses."""
        return self.route.format_spec(self.chosen.format).parse

    @cached_property
    def short_ids(self) -> bool:
        """Return True if the templates of the model accept only ids of nine characters."""
        return tool_call_id_form(self.route, self.chosen) == "nine"

    @cached_property
    def parse_context(self) -> ParseContext:
        """Return the parser settings of a request without tools and without a prefill."""
        chosen = self.chosen
        return ParseContext({}, thought_open=chosen.thought_open, in_thought=chosen.in_thought, unopened=self.unopened)

    @cached_property
    def unopened(self) -> bool:
        """Return True if a closing tag alone may end the reasoning."""
        return self.route.backend.kind.takes_openings and self.route.format_spec(self.chosen.format).thinks


def goes_as_sent(request: Request, route: BackendRoute) -> bool:
    """Return True if the backend gets the client's own body: it speaks the client's API."""
    sent, prompted = request.sent, route.settings.tools == "prompt" and bool(request.callable_tools)
    return bool(sent and route.backend.dialect.sent_body and sent.stands_for(request)) and not prompted


def _round_as_sent(request: Request, route: BackendRoute, ledger: Warnings, frame_bytes: int) -> UpstreamRound | None:
    """Build the round that sends the client's own body; None if the backend has another API or the body changed."""
    dialect = route.backend.dialect
    if not (dialect.sent_body and goes_as_sent(request, route)):
        return None
    context = _cached_context(route, _SENT_FORMAT, True, True, frame_bytes)
    body = dialect.sent_body(request, context.target, ledger)
    return UpstreamRound(
        route, request, [body], _SENT_FORMAT, dialect, _parser_settings(request, context, _NONE, ledger), ()
    )


def _cached_context(route: BackendRoute, *facts: *tuple[FormatChoice, bool, bool, int]) -> RoundContext:
    """Return the context of requests to a route, from a cache."""
    context: RoundContext | None = route.cache.get(facts)
    return context or route.cache.setdefault(facts, RoundContext(route, *facts))


def _build_chat_round(
    context: RoundContext,
    original: Request,
    translated: tuple[Request, list[EventFilter]],
    ledger: Warnings,
    failed: FailedOutput | None = None,
) -> UpstreamRound:
    """Build the round.  failed: the output of the attempt before, if it broke a policy."""
    route, chosen, target = context.route, context.chosen, context.target
    request, filters = translated
    called = not (original.is_text_only or past_tool_calls.has_no_calls(original))
    if called:
        request = past_tool_calls.convert_call_ids(request, tool_call_id_form(route, chosen), ledger)
    if target.prompted:
        request = prompted_tools.tools_to_prompt(request, ledger)
    may_demand = bool(original.tool_choice or original.rest)
    means = _choose_means(target, failed) if may_demand and output_enforcement.is_enforced(original) else None
    if means:
        request = output_enforcement.enforce_output(request, target.kind, means, ledger)
    request = (
        fit_prefill(request, target.kind, ledger) if context.continues_messages else without_prefill(request, ledger)
    )
    if request.stream and target.kind.logprobs_only_whole:
        request = _unstreamed_for_logprobs(request, target, ledger)
    body = route.backend.dialect.body(request, target, schema.KNOWN, ledger)
    taken = past_tool_calls.past_call_ids(original, request) if called else _NONE
    if original.past:
        taken = original.past.call_ids | taken if taken else original.past.call_ids
    settings = _parser_settings(request, context, taken, ledger)
    if target.kind.keeps_stops:
        filters = [*stop_filters(request), *filters]
    round = UpstreamRound(route, request, [body], chosen, route.backend.dialect, settings, filters)
    validation_filter = means and output_validation(
        original, partial(_terms, context, target, means), ledger, failed, request.tool_choice
    )
    return (
        _with_policies(round, context, original, validation_filter, ledger, failed)
        if validation_filter or original.tools
        else round
    )


def _with_policies(
    round: UpstreamRound,
    context: RoundContext,
    request: Request,
    validation_filter: OutputValidationFilter | None,
    ledger: Warnings,
    failed: FailedOutput | None,
) -> UpstreamRound:
    """Return the round with the policies that its response has to meet."""
    calls = _held_calls(context, request, ledger, failed)
    policies = [one for one in (validation_filter, calls) if one]
    empty = _empty_round_policy(context, request, ledger, failed)
    return (
        round.with_policies(policies, empty, partial(_rebuild_round, context, ledger)) if policies or empty else round
    )


def _rebuild_round(
    context: RoundContext, ledger: Warnings, request: Request, failed: FailedOutput | None = None
) -> UpstreamRound:
    """Build the round of another request to the same route."""
    return _build_chat_round(context, request, lower_request(request, ledger), ledger, failed)


def _held_calls(
    context: RoundContext, request: Request, ledger: Warnings, failed: FailedOutput | None
) -> HeldCalls | None:
    """Return the policy that repeats calls with invalid arguments; one response is repeated at most once."""
    retries = context.route.settings.enforce.arguments == "retry" and request.n == 1 and request.callable_tools
    own = not failed or failed.subject == invalid_calls.SUBJECT
    return HeldCalls(request, ledger, context.frame_bytes, failed) if retries and own else None


def _empty_round_policy(
    context: RoundContext, request: Request, ledger: Warnings, failed: FailedOutput | None
) -> EmptyRoundPolicy | None:
    """Return the policy that repeats an empty round, where tools are offered."""
    if not request.tools or request.tool_choice == "none" or request.n > 1 or not request.generates:
        return None
    route = context.route
    retries = route.settings.enforce.empty == "retry" and not failed
    prefills = route.kind.continues and _parses(route)
    own = failed if failed and failed.subject == empty_round.SUBJECT else None
    return EmptyRoundPolicy(request, ledger, own, retries=retries, prefills=prefills, limit=context.frame_bytes)


def _choose_means(target: BodyTarget, failed: FailedOutput | None) -> output_enforcement.EnforcementMeans:
    """Return the means of forcing a tool call; `failed` may show that one of them does not work."""
    return output_enforcement.enforcement_means(
        target.kind, mute=target.cannot_force_tools, again=bool(failed and failed.broken)
    )


def _terms(context: RoundContext, target: BodyTarget, means: output_enforcement.EnforcementMeans) -> EnforcementTerms:
    """Return the terms of enforcement; in strict mode a prompt alone enforces nothing."""
    enforce, strict = context.route.settings.enforce, context.route.settings.strict
    call = "refuse" if strict and means == "words" else enforce.tool_choice
    form = (
        "refuse"
        if strict and output_enforcement.ignores_field(target.kind, "response_format")
        else enforce.response_format
    )
    return EnforcementTerms(call, form, means, strict, context.frame_bytes)


def _unstreamed_for_logprobs(request: Request, target: BodyTarget, ledger: Warnings) -> Request:
    """Request a whole response for log-probabilities beside tools; the client still gets a stream."""
    if target.prompted or not (request.callable_tools and request.rest.get("logprobs")):
        return request
    ledger.add("emulated", "logprobs")
    return replace(request, stream=False)


async def _can_reason(route: BackendRoute) -> bool:
    """Return False if the server reports that the model does not reason."""
    abilities = (await model_registry.metadata_of_route(route)).abilities
    return abilities is None or "reasoning" in abilities


def _parser_settings(
    request: Request, context: RoundContext, taken: frozenset[str], ledger: Warnings
) -> ParserSettings:
    """Return the settings of the parser.  taken: ids of calls that the client knows."""
    parse, mask_problem = context.format, context.route.backend.mask_problem
    if not parse and request.guided:
        parse = FORMATS["think"].parse  # there are no tags, and JSON is the call
    new_id = short_id if context.short_ids else id_maker(request.call_prefix)
    same = bool(request.sent and context.route.backend.dialect.sent_body)  # the order of all events matters then
    whole, auto = not (request.stream or same), context.route.format == "auto" and not same
    parse_context = _parse_context(request, context)
    return ParserSettings(parse, parse_context, new_id, ledger, taken, context.frame_bytes, mask_problem, whole, auto)


def _parses(route: BackendRoute) -> bool:
    """Return True if the server itself parses reasoning and calls."""
    return route.kind.parses and not route.parses_tool_calls


def _begins_in_thought(begun: Prefill, context: RoundContext) -> bool:
    """Return True if text begins as reasoning; a server that parses labels each text itself."""
    return begun.in_thought and not _parses(context.route)


def _parse_context(request: Request, context: RoundContext) -> ParseContext:
    choice, chosen = request.tool_choice, context.chosen
    begun = prefill_of(request, context.route.backend.kind)
    if not (request.tools or choice or begun):
        return context.parse_context
    return ParseContext(
        {tool.name: tool.definition.get("parameters") or {} for tool in request.callable_tools},
        thought_open=_begins_in_thought(begun, context) if begun else chosen.thought_open,
        in_thought=chosen.in_thought,
        forced=choice.name if isinstance(choice, ToolName) else "" if choice == "required" else None,
        prefill=begun.text if begun else "",
        echoed=begun.echoed if begun else False,
        unopened=context.unopened,
    )


class CompletionRound(UpstreamRound, frozen=True):
    """The round of a legacy completion."""

    @property
    def prompt_characters(self) -> int:
        """Return the length of the prompt, in characters."""
        return validation.text_characters(request_body.prompt_list(self.request))


async def build_completion_round(
    request: Request, route: BackendRoute, ledger: Warnings, frame_bytes: int
) -> UpstreamRound:
    """Build a round of a legacy completion.  Raise BadRequest for a feature that the kind of the backend lacks."""
    round = _build_completion_round(request, route, ledger, frame_bytes)
    return round.split_choices(request, lambda one: _build_completion_round(one, route, ledger, frame_bytes))


def _build_completion_round(request: Request, route: BackendRoute, ledger: Warnings, frame_bytes: int) -> UpstreamRound:
    if not (support := route.backend.services.completions):
        message = f"The model '{route.model}' cannot complete texts: use /v1/chat/completions."
        raise BadRequest(message, code="unsupported_value", param="model")
    dialect = replace(DIALECTS["openai"], path=request_body.PATH, body=partial(request_body.completion_body, support))
    body = dialect.body(
        request, BodyTarget(route.upstream_model, route.backend.kind, MessagePolicy()), completions.KNOWN, ledger
    )
    new_id, mask_problem = id_maker("call_"), route.backend.mask_problem
    settings = ParserSettings(None, ParseContext({}), new_id, ledger, limit=frame_bytes, mask_problem=mask_problem)
    return CompletionRound(
        route, request, [body], _COMPLETION_FORMAT, dialect, settings, _filters(request, route, support, ledger)
    )


def _filters(request: Request, route: BackendRoute, support: CompletionsSupport, ledger: Warnings) -> list[EventFilter]:
    filters: list[EventFilter] = [*stop_filters(request)] if support.kind.keeps_stops else []
    if _LLAMA & {route.format, format_by_names(route, "auto").format}:
        filters.append(Ending(LLAMA_ENDS))
    if request_body.supports_suffix(request, support):
        filters.append(StopFilter(MIDDLE_ENDS))
    if prompts := request_body.prompts_to_echo(request, support, ledger):
        filters.append(EchoFilter(prompts, request.rest.get("n", 1)))
    return filters
