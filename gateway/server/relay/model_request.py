"""Build the model request of each API: the neutral request, the encoder of its response, and how it is stored."""

import logging
import time
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from msgspec import Struct, field
from msgspec.structs import replace

from gateway import config
from gateway.api import chat, completions, responses
from gateway.api.body import Counts, decode_body
from gateway.api.completion_encoder import CompletionHead
from gateway.config import Config
from gateway.errors import Problem, StoreFailed
from gateway.events import Usage
from gateway.pipeline.pipeline import Pipeline, ResponseEncoder
from gateway.request import Request
from gateway.server.conversations.encryption import EncryptionKeys, ReasoningEncryptor
from gateway.server.conversations.reasoning_memory import NoReasoningMemory, ReasoningMemory
from gateway.server.conversations.stored_context import Held, Predecessor, ReadOnlyContext, StoredContext, StoredObject
from gateway.server.fetch import attachments
from gateway.server.fetch.pdf_reader import Pdfs
from gateway.server.ids import new_id, padding
from gateway.server.relay import round_builder, token_limit
from gateway.server.relay.rounds import UpstreamRound
from gateway.server.tools import ToolRegistry, Toolset
from gateway.server.upstream.model_registry import BackendRoute
from gateway.server.worker_thread import MANY, apart, parsed
from gateway.store.database import Database
from gateway.transforms.context_window import summary_request
from gateway.warnings import Warnings

if TYPE_CHECKING:
    from sqlalchemy.ext.asyncio import AsyncConnection


_log = logging.getLogger("gateway")
_NOTHING = Usage(0, 0)


class CompactionPlan(Struct, frozen=True):
    """above: how many tokens a prompt may have without one; encoder: makes the endpoint of the summary."""

    threshold: int
    encoder: Callable[[], responses.SummaryEncoder]


class ResponseIdentity(Struct, frozen=True):
    """A response that is asked again: its id, and when it was created in Unix seconds."""

    id: str
    created: int


class RequestServices(Struct, frozen=True):
    """The services for a response besides models.  workshop: None if no tool runs; held: takes resources."""

    memory: NoReasoningMemory
    workshop: ToolRegistry | None
    exit_stack: Held
    pdfs: Pdfs


class JobPlan(Struct, frozen=True):
    """The values with which a response goes on without its client.

    background: no client has to wait for it; streamed: clients can follow it.
    queued, opening: the Response as it is accepted in the background, and the events that say so.
    encoder: makes the endpoint for a model, behind so many events that were told.
    open: stores that it is in progress; finish: stores how it ended, False if it was deleted meanwhile.
    """

    id: str
    background: bool
    streamed: bool
    queued: StoredObject
    opening: bytes
    encoder: Callable[[config.ModelSettings, int], ResponseEncoder]
    open: Callable[["AsyncConnection"], Awaitable[None]]
    finish: Callable[["AsyncConnection", StoredObject], Awaitable[bool]]


def no_tools(_: config.ModelSettings) -> Toolset | None:
    """Nothing runs at the gateway."""
    return None


async def noop() -> None:
    """An answer that ends with its client is never begun again."""


class ModelRequest(Struct, frozen=True):
    """encoder: makes the endpoint of an answer, for the model that gives it; keep: stores the answer.

    memory: of the reasoning that the client does not send back.
    sticky: the client's own name for what should meet at the same backend.
    conversation: what the API calls the parameter that the request's messages were read from.
    compaction: what may have to come before the answer.
    lasting: if the answer is to outlive the client's connection.
    prepare: puts the request to the backend of a route; the last argument is the limit of a frame in bytes.
    accept: is offered, when all that can be refused has been, the head of the answer; True if that is out with it.
    turns: those of its answer, as they come.
    tools: that run at the gateway, for the model that gives the answer; None: none do.
    pdfs: reads those among the request's files.
    body: that it was read from, if an error may be about a part of a message, which stands elsewhere in it.
    act: is told before any of them does; raises StoreFailed where that has to be known and cannot be.
    """

    request: Request
    ledger: Warnings
    encoder: Callable[[config.ModelSettings], ResponseEncoder]
    store: Callable[[StoredObject], Awaitable[None]]
    memory: NoReasoningMemory
    sticky: str | None = None
    conversation: str = "messages"
    compaction: CompactionPlan | None = None
    job_plan: JobPlan | None = None
    prepare: Callable[[Request, BackendRoute, Warnings, int], Awaitable[UpstreamRound]] = round_builder.build_round
    on_accepted: Callable[[Callable[[], dict[str, str]]], Awaitable[bool]] | None = None
    turns: list[Pipeline] = field(default_factory=list)
    tools: Callable[[config.ModelSettings], Toolset | None] = no_tools
    on_tools_start: Callable[[], Awaitable[None]] = noop
    pdfs: Pdfs | None = None
    body: Mapping[str, Any] = {}

    def used_tokens(self) -> int:
        """Tokens, by now."""
        spent = self.usage()
        return spent.prompt + spent.completion

    def usage(self) -> Usage:
        return sum([turn.usage for turn in self.turns], _NOTHING)

    async def without_files(self, settings: config.FetchSettings, tenant: str) -> Request:
        """Return the request with the text of its files; raise BadRequest."""
        if not self.pdfs:
            return self.request
        return await attachments.inline_request_files(self.request, settings, self.ledger, self.pdfs, tenant)

    async def kept(self, record: StoredObject) -> bool:
        """Store the answer; False, and the ledger knows, if that cannot be done: the client gets it all the same."""
        try:
            await self.store(record)
        except StoreFailed as error:
            _log.warning("an answer could not be stored: %s", error.__cause__)
            self.ledger.add("dropped", "store")
            return False
        return True

    def localize_problem(self, problem: Problem) -> Problem:
        """The problem, with its place as the client knows it."""
        if problem.param in ("max_tokens", "max_completion_tokens"):
            return replace(problem, param=token_limit.name(self.request, self.conversation))
        param = problem.param or ""
        if not param.startswith("messages") or self.conversation == "messages":
            return problem
        place = responses.place(self.body, self.request.messages, param) or self.conversation
        return replace(problem, param=place, message=problem.message.replace(param, place))


async def parse_chat_request(
    raw: bytes, counts: Counts, state: StoredContext, memory: NoReasoningMemory, workshop: ToolRegistry
) -> ModelRequest:
    params, ledger, created = await parsed(chat.parse_chat, raw, counts), Warnings(), int(time.time())

    def encoder(model: config.ModelSettings) -> ResponseEncoder:
        head = chat.CompletionHead(new_id("chatcmpl-"), created, params.request.model, _fields(model))
        return chat.chat_encoder(head, params, ledger, padding)

    async def keep(record: StoredObject) -> None:
        await state.save_completion({**record, "metadata": params.metadata}, [*params.request.messages])

    request = await memory.restore(params.request, ledger)
    key, tools = request.rest.get("prompt_cache_key"), partial(workshop.default_toolset, request, ledger)
    return ModelRequest(request, ledger, encoder, keep, memory, key, tools=tools, pdfs=workshop.pdfs)


async def parse_completion_request(raw: bytes, counts: Counts) -> ModelRequest:
    """A text to be completed, of which nothing is stored."""
    params, ledger, created = await parsed(completions.parse_completion, raw, counts), Warnings(), int(time.time())

    def encoder(_: config.ModelSettings) -> ResponseEncoder:
        return completions.completion_encoder(
            CompletionHead(new_id("cmpl-"), created, params.request.model), params, ledger
        )

    return ModelRequest(
        params.request,
        ledger,
        encoder,
        _never,
        NoReasoningMemory(),
        conversation="prompt",
        prepare=round_builder.build_completion_round,
    )


async def _never(_: StoredObject) -> None:
    """Nothing of the answer is stored, so it does not come to that; what would be stored is not held meanwhile."""


async def parse_responses_request(
    body: dict[str, Any],
    settings: config.ResponsesSettings,
    state: StoredContext,
    sealer: ReasoningEncryptor,
    beside: RequestServices,
    named: ResponseIdentity | None = None,
) -> ModelRequest:
    """named: the response that it is, if it is asked again."""
    memory, workshop, held = beside.memory, beside.workshop, beside.exit_stack
    ledger, edge = Warnings(), _edge(sealer)
    rules = _rules(settings, sealer, workshop.builtin_tool_filter if workshop else responses.no_builtin_tools)
    named = named or ResponseIdentity(new_id("resp_"), int(time.time()))
    draft = responses.draft_response(body, rules)

    def encoder(model: config.ModelSettings, told: int = 0) -> ResponseEncoder:
        head = responses.ResponseHead(named.id, named.created, params.request.model, model.reasoning.carrier, told)
        return responses.response_encoder(head, params, ledger, edge)

    origin = await state.load_predecessor(draft, named.id, held)
    params = await _read(draft, origin.context, rules, ledger)
    params = replace(params, kept=params.kept or state.can_store)
    all_turns = params.echo["reasoning"].get("context") != "current_turn"
    request = await memory.restore(params.request, ledger, all_turns=all_turns)
    above, keep = params.compact_above, partial(state.save_response, draft, origin, ledger) if params.kept else _never
    compaction = None if above is None else CompactionPlan(above, partial(responses.SummaryEncoder, edge, ledger))
    lasts = state.can_outlive_client(params, settings.resume_seconds)
    lasting = _lasting(named, params, state, (draft, origin, ledger), encoder) if lasts else None
    thread = origin.behind.thread if origin.behind else None
    sticky = params.echo["prompt_cache_key"] or draft.conversation or thread
    box = workshop.toolset_for(params.hosted, request, ledger) if workshop else None
    if box:
        await held.stack.enter_async_context(box)
    question = ModelRequest(request, ledger, encoder, keep, memory, sticky, "input", compaction, lasting)
    return replace(question, tools=lambda _: box, pdfs=beside.pdfs, body=_told_of(body, request))


def _told_of(body: dict[str, Any], request: Request) -> Mapping[str, Any]:
    """Return a body whose parts an error may be about; without such, it is not held while the answer goes on."""
    return body if not request.is_text_only and responses.has_parts(request.messages) else {}


def _lasting(
    named: ResponseIdentity,
    params: responses.ResponseParams,
    state: StoredContext,
    place: tuple[responses.ResponseDraft, Predecessor, Warnings],
    encoder: Callable[[config.ModelSettings, int], ResponseEncoder],
) -> JobPlan:
    draft, origin, ledger = place
    queued, opening = responses.created_events(
        responses.ResponseHead(named.id, named.created, params.request.model), params
    )
    stored = partial(state.open_response, draft, origin, {**queued, "status": "in_progress"})
    finish = partial(state.finish_response, origin, ledger)
    return JobPlan(named.id, params.background, params.streamed, queued, opening, encoder, stored, finish)


async def parse_compaction_request(
    body: dict[str, Any],
    settings: config.ResponsesSettings,
    state: StoredContext,
    sealer: ReasoningEncryptor,
    held: Held,
    pdfs: Pdfs,
) -> ModelRequest:
    """The question for a summary alone, of which nothing is stored; `held` takes what it holds."""
    ledger, created, edge = Warnings(), int(time.time()), _edge(sealer)
    rules, id = _rules(settings, sealer, responses.no_builtin_tools), new_id("resp_")
    draft = responses.draft_response(body, rules)

    def encoder(_: config.ModelSettings) -> ResponseEncoder:
        return responses.CompactionEncoder(responses.ResponseHead(id, created, request.model), edge, ledger, users)

    origin = await state.load_predecessor(draft, id, held)
    request = summary_request((await _read(draft, origin.context, rules, ledger)).request)
    users = responses.user_messages([*origin.context.before, *draft.input(origin.context.items)], new_id)
    told_of, sticky = _told_of(body, request), draft.conversation
    return ModelRequest(request, ledger, encoder, _never, NoReasoningMemory(), sticky, "input", pdfs=pdfs, body=told_of)


async def _read(
    draft: responses.ResponseDraft, context: responses.InputContext, rules: responses.ParseSettings, ledger: Warnings
) -> responses.ResponseParams:
    """Return what was asked; many items are read apart."""
    data = draft.body.get("input")
    items = len(data) if type(data) is list else 0
    if items + len(context.before) < MANY:
        return responses.parse_response(draft, context, rules, ledger)
    return await apart(responses.parse_response, draft, context, rules, ledger)


def _rules(
    settings: config.ResponsesSettings, sealer: ReasoningEncryptor, runs: responses.BuiltinToolFilter | None
) -> responses.ParseSettings:
    return responses.ParseSettings(sealer.open, settings.min_output_tokens, settings.repair_dangling_calls, runs)


def _edge(sealer: ReasoningEncryptor) -> responses.EncoderInputs:
    return responses.EncoderInputs(new_id, lambda: int(time.time()), sealer.seal, padding)


def _fields(model: config.ModelSettings) -> tuple[str, ...]:
    """Where a chat completion has the model's reasoning."""
    field = model.reasoning.field
    return ("reasoning_content", "reasoning") if field == "both" else (field,)


Asked = Awaitable[ModelRequest]


class RequestParser(Struct, frozen=True):
    """Each makes a question of a body, for a tenant; raises BadRequest or NotFound.

    held: takes what has to be let go of when the question is answered.
    """

    store: Database
    keyring: EncryptionKeys
    config: Config
    workshop: ToolRegistry
    counts: Counts

    def chat_completion(self, raw: bytes, tenant: str, _: Held) -> Asked:
        return parse_chat_request(
            raw, self.counts, StoredContext(self.store, tenant), self._memory(tenant), self.workshop
        )

    def completion(self, raw: bytes, _: str, __: Held) -> Asked:
        return parse_completion_request(raw, self.counts)

    def response(self, raw: bytes, tenant: str, held: Held) -> Asked:
        return self.response_in_context(StoredContext(self.store, tenant), raw, held)

    def response_in_context(
        self, state: StoredContext, raw: bytes, held: Held, named: ResponseIdentity | None = None
    ) -> Asked:
        """A response that finds what it goes on from in this state; `named`: if it is asked again."""
        return self._response(state, raw, self._beside(state.tenant, self.workshop, held), named)

    def token_count_request(self, raw: bytes, tenant: str, held: Held) -> Asked:
        """A response that is not going to be answered."""
        return self._response(ReadOnlyContext(self.store, tenant), raw, self._beside(tenant, None, held))

    async def compaction(self, raw: bytes, tenant: str, held: Held) -> ModelRequest:
        state, sealer = ReadOnlyContext(self.store, tenant), self.keyring.sealer(tenant)
        body = await parsed(decode_body, raw, self.counts)
        return await parse_compaction_request(body, self.config.responses, state, sealer, held, self.workshop.pdfs)

    async def _response(
        self, state: StoredContext, raw: bytes, beside: RequestServices, named: ResponseIdentity | None = None
    ) -> ModelRequest:
        sealer = self.keyring.sealer(state.tenant)
        body = await parsed(decode_body, raw, self.counts)
        return await parse_responses_request(body, self.config.responses, state, sealer, beside, named)

    def _beside(self, tenant: str, workshop: ToolRegistry | None, held: Held) -> RequestServices:
        return RequestServices(self._memory(tenant), workshop, held, self.workshop.pdfs)

    def _memory(self, tenant: str) -> NoReasoningMemory:
        return ReasoningMemory(self.store, tenant) if self.config.responses.reasoning_memory else NoReasoningMemory()
