"""Build the model request of the Responses API, from the body and the stored context."""

import time
from contextlib import AsyncExitStack
from functools import cached_property, partial
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from gateway.api import responses
from gateway.api.responses.params import Carrier
from gateway.config import ModelSettings, ResponsesSettings
from gateway.pipeline.pipeline import ResponseEncoder
from gateway.request import Request
from gateway.server.conversations.encryption import ReasoningEncryptor
from gateway.server.conversations.reasoning_memory import NoReasoningMemory
from gateway.server.conversations.stored_context import Predecessor, StoredContext, StoredObject
from gateway.server.fetch.pdf_reader import Pdfs
from gateway.server.ids import new_id, padding
from gateway.server.relay.model_request import CompactionPlan, InputRequest
from gateway.server.tools import ToolRegistry, Toolset
from gateway.server.worker_thread import MANY, run_in_thread
from gateway.store.records import NewJob
from gateway.warnings import Warnings


class ResponseIdentity(Struct, frozen=True):
    """The id of a response, and its creation in Unix seconds.  A response that is repeated keeps both."""

    id: str
    created: int


class RequestServices(Struct, frozen=True):
    """The services for a response besides models.

    tools: None if no tool runs at the gateway; held: takes resources that live as long as the response.
    """

    memory: NoReasoningMemory
    encryptor: ReasoningEncryptor
    tools: ToolRegistry | None
    held: AsyncExitStack
    pdfs: Pdfs


class ResponseContext(Struct, frozen=True):
    """The place of a response among the stored data: its draft, the history that it continues, and the store."""

    stored: StoredContext
    draft: responses.ResponseDraft
    origin: Predecessor
    ledger: Warnings

    async def save(self, record: StoredObject) -> None:
        """Store the response with its request and its warnings.  Raise StoreFailed."""
        await self.stored.save_response(self.draft, self.origin, self.ledger, record)

    async def open(self, record: StoredObject, job: NewJob) -> None:
        """Store a response that is in progress, with its job.  Raise StoreFailed."""
        await self.stored.open_response(self.draft, self.origin, record, job)

    async def finish(self, record: StoredObject, holder: str) -> bool:
        """Store the end of a response that is in progress; return False if this holder does not have its job."""
        return await self.stored.finish_response(self.origin, self.ledger, record, holder)


class ResponsesRequest(InputRequest):
    """A request of POST /v1/responses, or of a message of a WebSocket.

    can_outlive_client: the response goes on as a job if its connection ends.
    """

    def __init__(
        self,
        identity: ResponseIdentity,
        params: responses.ResponseParams,
        request: Request,
        context: ResponseContext,
        services: RequestServices,
        outlives: bool,
    ) -> None:
        super().__init__(request, context.ledger, services.memory, services.pdfs, _affinity(params, context))
        self.identity, self.params, self.can_outlive_client = identity, params, outlives
        self._inputs = encoder_inputs(services.encryptor)
        # A response that is not stored does not hold its history.
        self._context = context if params.stored or outlives else None
        self._toolset = services.tools.toolset_for(params.hosted, request, self.ledger) if services.tools else None
        if params.compact_above is not None:
            summary = partial(responses.SummaryEncoder, self._inputs, self.ledger)
            self.compaction = CompactionPlan(params.compact_above, summary)

    def encoder(self, model: ModelSettings) -> ResponseEncoder:
        return self.encoder_after(0, model)

    def encoder_after(self, events_sent: int, model: ModelSettings) -> ResponseEncoder:
        """Return the encoder of the events behind the first `events_sent`."""
        head = self._head(model.reasoning.carrier, events_sent)
        return responses.response_encoder(head, self.params, self.ledger, self._inputs)

    async def store(self, record: StoredObject) -> None:
        assert self._context, "only a response that is stored has a record"
        await self._context.save(record)

    def toolset(self, _: ModelSettings | None = None) -> Toolset | None:
        return self._toolset  # the client names the tools

    @cached_property
    def created_events(self) -> tuple[StoredObject, bytes]:
        """The Response as it is accepted as a job, and the events that report this."""
        return responses.created_events(self._head(), self.params)

    async def open_job(self, job: NewJob) -> None:
        """Store that the response is in progress, with its job.  Raise StoreFailed."""
        assert self._context, "a job is stored"
        await self._context.open({**self.created_events[0], "status": "in_progress"}, job)

    async def finish_job(self, record: StoredObject, holder: str) -> bool:
        """Store the end of the response; return False if this holder does not have its job."""
        assert self._context, "a job is stored"
        return await self._context.finish(record, holder)

    def _head(self, carrier: Carrier = "summary", events_sent: int = 0) -> responses.ResponseHead:
        identity = self.identity
        return responses.ResponseHead(identity.id, identity.created, self.request.model, carrier, events_sent)


def _affinity(params: responses.ResponseParams, context: ResponseContext) -> str | None:
    """Return the name of requests that should reach the same backend: a cache key, a conversation or a chain."""
    behind = context.origin.behind
    return params.echo["prompt_cache_key"] or context.draft.conversation or (behind.thread if behind else None)


async def parse_responses_request(
    body: dict[str, Any],
    settings: ResponsesSettings,
    stored: StoredContext,
    services: RequestServices,
    identity: ResponseIdentity | None = None,
) -> ResponsesRequest:
    """Parse a body, with the history that it continues.  Raise BadRequest or NotFound.

    Raise StoreFailed if the response is to be stored and too many writes wait.
    identity: that of a response that is repeated; it was accepted before.
    """
    ledger, tools = Warnings(), services.tools
    rules = parse_settings(
        settings, services.encryptor, tools.builtin_tool_filter if tools else responses.no_builtin_tools
    )
    draft = responses.draft_response(body, rules)
    if draft.stored and not identity:
        stored.check_room()
    identity = identity or ResponseIdentity(new_id("resp_"), int(time.time()))
    origin = await stored.load_predecessor(draft, identity.id, services.held)
    params = await parse_input(draft, origin.context, rules, ledger)
    params = replace(params, stored=params.stored or stored.can_store)
    all_turns = params.echo["reasoning"].get("context") != "current_turn"
    request = params.request.with_whole_past() if _needs_whole_past(params, services) else params.request
    request = await services.memory.restore(request, ledger, all_turns=all_turns)
    context = ResponseContext(stored, draft, origin, ledger)
    outlives = stored.can_outlive_client(params, settings.resume_seconds)
    result = ResponsesRequest(identity, params, request, context, services, outlives)
    result.keep_body_with_parts(body)
    if toolset := result.toolset():
        await services.held.enter_async_context(toolset)
    return result


def _needs_whole_past(params: responses.ResponseParams, services: RequestServices) -> bool:
    """Return True if more than the backend reads the messages: something changes, looks up or counts them."""
    request, hosted = params.request, params.hosted
    reads = request.shorten or params.compact_above is not None or bool(hosted.definitions or hosted.approved)
    return reads or services.memory.reads_messages


async def parse_input(
    draft: responses.ResponseDraft, context: responses.InputContext, rules: responses.ParseSettings, ledger: Warnings
) -> responses.ResponseParams:
    """Parse the input of a draft; a worker thread parses many items."""
    data = draft.body.get("input")
    items = len(data) if type(data) is list else 0
    if items + len(context.before) < MANY:
        return responses.parse_response(draft, context, rules, ledger)
    return await run_in_thread(responses.parse_response, draft, context, rules, ledger)


def parse_settings(
    settings: ResponsesSettings,
    encryptor: ReasoningEncryptor,
    runs: responses.BuiltinToolFilter | None,
    *,
    keeps_body: bool = False,
) -> responses.ParseSettings:
    """Return the settings of the parser.  runs: decides which built-in tools run at the gateway."""
    repairs = settings.repair_dangling_calls
    return responses.ParseSettings(encryptor.open, settings.min_output_tokens, repairs, runs, keeps_body)


def encoder_inputs(encryptor: ReasoningEncryptor) -> responses.EncoderInputs:
    """Return the functions that a pure encoder needs."""
    return responses.EncoderInputs(new_id, lambda: int(time.time()), encryptor.seal, padding)
