"""Parse the body of each model endpoint into a model request: of chat, completions, responses and messages."""

import re
import time
from collections.abc import Awaitable, Callable, Collection, Mapping
from contextlib import AsyncExitStack
from functools import partial
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from gateway.api import chat, completions, messages
from gateway.api.body import Counts, decode_body
from gateway.api.completion_encoder import CompletionHead
from gateway.api.named_models import models_in_fields
from gateway.api.responses import no_builtin_tools
from gateway.api.responses.parse import ParseSettings
from gateway.config import Config, ModelSettings
from gateway.pipeline.pipeline import ResponseEncoder
from gateway.request import Request
from gateway.server.conversations.encryption import EncryptionKeys
from gateway.server.conversations.past_cache import PastCache
from gateway.server.conversations.reasoning_memory import NoReasoningMemory, ReasoningMemory
from gateway.server.conversations.stored_context import ReadOnlyContext, StoredContext, StoredObject
from gateway.server.fetch.stored_files import StoredFileReader
from gateway.server.ids import new_id, padding
from gateway.server.limits.rate_limiter import estimate_tokens
from gateway.server.relay.compaction_request import CompactionRequest, parse_compaction_request
from gateway.server.relay.model_request import ModelRequest
from gateway.server.relay.responses_request import (
    RequestServices,
    ResponseIdentity,
    ResponsesRequest,
    encoder_inputs,
    parse_responses_request,
    parse_settings,
)
from gateway.server.relay.round_builder import build_completion_round
from gateway.server.relay.rounds import UpstreamRound
from gateway.server.tools import ToolRegistry, Toolset
from gateway.server.upstream.model_registry import BackendRoute, remembered
from gateway.server.worker_thread import LARGE, parse_body, run_in_thread
from gateway.store.database import Database
from gateway.warnings import Warnings

_PASSED = ("anthropic-version", "anthropic-beta")  # headers of the client
_FIT = re.compile(r"[ -~]+")  # a value of these headers
_FALLBACKS = "fallbacks"
ParseParams = Callable[[dict[str, Any], ParseSettings, Warnings], messages.MessageParams]


class MessageRequest(ModelRequest):
    """A request of POST /v1/messages; the gateway stores nothing of it.

    body: as the client sent it, so that an error can name the block that it is about.
    """

    def __init__(
        self, body: dict[str, Any], params: messages.MessageParams, ledger: Warnings, services: RequestServices
    ) -> None:
        super().__init__(params.request, ledger, NoReasoningMemory(), services.pdfs, params.sticky)
        self._params, self._inputs = params, encoder_inputs(services.encryptor)
        self._body = {} if params.request.is_text_only else body
        self._toolset = services.tools.toolset_for(params.hosted, self.request, ledger) if services.tools else None
        self._window: int | None = None  # of the model that responds, once a round is built

    def encoder(self, model: ModelSettings) -> ResponseEncoder:
        head = messages.MessageHead(
            new_id("msg_"),
            self.request.model,
            self.request_id,
            estimate_tokens(replace(self.request, max_tokens=None)),
            self._window,
            hidden=model.reasoning.carrier == "hidden",
        )
        return messages.message_encoder(head, self._params, self.ledger, self._inputs)

    async def build_round(
        self, request: Request, route: BackendRoute, ledger: Warnings, max_frame_bytes: int
    ) -> UpstreamRound:
        self._window = remembered(route)
        return await super().build_round(request, route, ledger, max_frame_bytes)

    keeps_headers = True

    def keep_headers(self, headers: Mapping[str, str]) -> None:
        if sent := self.request.sent:
            kept = {name: headers[name] for name in _PASSED if _FIT.fullmatch(headers.get(name, ""))}
            self.request = replace(self.request, sent=replace(sent, headers=kept))

    def keep_to_models(self, allowed: Collection[str]) -> None:
        sent = self.request.sent
        fields = (sent and sent.fields) or {}
        if sent and any(model not in allowed for field, model in models_in_fields(fields) if field == _FALLBACKS):
            kept = {name: value for name, value in fields.items() if name != _FALLBACKS}
            sent = replace(sent, fields=kept, notes=(*sent.notes, f"dropped:{_FALLBACKS}"))
            self.request = replace(self.request, sent=sent)

    def toolset(self, _: ModelSettings | None = None) -> Toolset | None:
        return self._toolset  # the client names the tools

    def _place_finder(self) -> Callable[[str], str]:
        body, chat = self._body, self.request.messages
        return lambda param: messages.block_path(body, chat, param) or param


async def parse_message_request(
    raw: bytes, counts: Counts, settings: ParseSettings, services: RequestServices, parse: ParseParams
) -> MessageRequest:
    """Parse a body.  Raise BadRequest.  parse: of a message, or of a count of its tokens."""
    ledger = Warnings()

    def read(raw: bytes) -> tuple[dict[str, Any], messages.MessageParams]:
        body = decode_body(raw, counts)
        return body, parse(body, settings, ledger)

    body, params = await parse_body(read, raw)
    result = MessageRequest(body, params, ledger, services)
    if toolset := result.toolset():
        await services.held.enter_async_context(toolset)
    return result


class ChatRequest(ModelRequest):
    """A request of POST /v1/chat/completions.  context: gets the response; None: it is not stored."""

    def __init__(
        self,
        params: chat.ChatParams,
        request: Request,
        ledger: Warnings,
        memory: NoReasoningMemory,
        context: StoredContext | None,
        tools: ToolRegistry,
    ) -> None:
        super().__init__(request, ledger, memory, tools.pdfs, request.rest.get("prompt_cache_key"))
        self._params, self._context, self._tools = params, context, tools
        self._created = int(time.time())

    def encoder(self, model: ModelSettings) -> ResponseEncoder:
        field = model.reasoning.field
        fields = ("reasoning_content", "reasoning") if field == "both" else (field,)
        head = CompletionHead(new_id("chatcmpl-"), self._created, self._params.request.model, fields)
        return chat.chat_encoder(head, self._params, self.ledger, padding)

    async def store(self, record: StoredObject) -> None:
        assert self._context
        fields = {**record, "metadata": self._params.metadata}
        await self._context.save_completion(fields, [*self._params.request.messages])

    def toolset(self, model: ModelSettings) -> Toolset | None:
        offered = model.mcp or model.web_search
        return self._tools.default_toolset(self.request, self.ledger, model) if offered else None


async def parse_chat_request(
    raw: bytes, counts: Counts, stored: Callable[[], StoredContext], memory: NoReasoningMemory, tools: ToolRegistry
) -> ChatRequest:
    """Parse the body of a chat completion.  Raise BadRequest, and StoreFailed if it is to be stored and cannot be.

    stored: returns the context of a response that is stored.
    """
    parse, ledger = chat.parse_chat, Warnings()
    params = parse(raw, counts) if len(raw) < LARGE else await run_in_thread(parse, raw, counts)
    context = stored() if params.store else None
    if context:
        context.check_room()
    request = await memory.restore(params.request, ledger) if memory.reads_messages else params.request
    return ChatRequest(params, request, ledger, memory, context, tools)


class CompletionRequest(ModelRequest):
    """A request of POST /v1/completions; nothing of it is stored."""

    conversation = "prompt"
    fields = completions.KNOWN

    def __init__(self, params: completions.CompletionParams) -> None:
        super().__init__(params.request, Warnings(), NoReasoningMemory())
        self._params, self._created = params, int(time.time())

    def encoder(self, model: ModelSettings) -> ResponseEncoder:
        head = CompletionHead(new_id("cmpl-"), self._created, self.request.model)
        return completions.completion_encoder(head, self._params, self.ledger)

    def with_parameters(
        self, request: Request, model: ModelSettings, ledger: Warnings, *, limited: bool = False
    ) -> tuple[Request, frozenset[str]]:
        made, names = super().with_parameters(request, model, ledger, limited=limited)
        if made.max_tokens is None and not limited:
            made = replace(made, max_tokens=completions.MAX_TOKENS)
        return made, names

    async def build_round(
        self, request: Request, route: BackendRoute, ledger: Warnings, max_frame_bytes: int
    ) -> UpstreamRound:
        return await build_completion_round(request, route, ledger, max_frame_bytes)


async def parse_completion_request(raw: bytes, counts: Counts) -> CompletionRequest:
    """Parse the body of a legacy completion.  Raise BadRequest."""
    return CompletionRequest(await parse_body(completions.parse_completion, raw, counts))


class RequestParser(Struct, frozen=True):
    """Parsers of the model endpoints: each takes a body and a tenant.  All raise BadRequest or NotFound.

    held: takes resources that live as long as the response; files: reads the stored files that a parsed request names.
    """

    store: Database
    keyring: EncryptionKeys
    config: Config
    tools: ToolRegistry
    counts: Counts
    pasts: PastCache
    files: StoredFileReader

    def chat_completion(self, raw: bytes, tenant: str, _: AsyncExitStack) -> Awaitable[ChatRequest]:
        """Parse POST /v1/chat/completions."""
        stored = partial(StoredContext, self.store, tenant)
        return parse_chat_request(raw, self.counts, stored, self._memory(tenant), self.tools)

    def completion(self, raw: bytes, _: str, __: AsyncExitStack) -> Awaitable[CompletionRequest]:
        """Parse POST /v1/completions."""
        return parse_completion_request(raw, self.counts)

    def response(self, raw: bytes, tenant: str, held: AsyncExitStack) -> Awaitable[ResponsesRequest]:
        """Parse POST /v1/responses."""
        return self.response_in_context(StoredContext(self.store, tenant, self.pasts), raw, held)

    def response_in_context(
        self, stored: StoredContext, raw: bytes, held: AsyncExitStack, identity: ResponseIdentity | None = None
    ) -> Awaitable[ResponsesRequest]:
        """Parse a response that continues what `stored` has.  identity: that of a response that is repeated."""
        return self._response(stored, raw, self._services(stored.tenant, self.tools, held), identity)

    def token_count_request(self, raw: bytes, tenant: str, held: AsyncExitStack) -> Awaitable[ResponsesRequest]:
        """Parse POST /v1/responses/input_tokens, which gets no response: it stores nothing and runs no tool."""
        return self._response(ReadOnlyContext(self.store, tenant), raw, self._services(tenant, None, held))

    async def compaction(self, raw: bytes, tenant: str, held: AsyncExitStack) -> CompactionRequest:
        """Parse POST /v1/responses/compact."""
        stored, encryptor = ReadOnlyContext(self.store, tenant), self.keyring.sealer(tenant)
        body = await parse_body(decode_body, raw, self.counts)
        return await parse_compaction_request(body, self.config.responses, stored, encryptor, held, self.tools.pdfs)

    def message(self, raw: bytes, tenant: str, held: AsyncExitStack) -> Awaitable[MessageRequest]:
        """Parse POST /v1/messages."""
        return self._message(raw, self._services(tenant, self.tools, held), messages.parse_message)

    def message_token_count(self, raw: bytes, tenant: str, held: AsyncExitStack) -> Awaitable[MessageRequest]:
        """Parse POST /v1/messages/count_tokens, which runs no tool."""
        return self._message(raw, self._services(tenant, None, held), messages.parse_token_count)

    def _message(self, raw: bytes, services: RequestServices, parse: ParseParams) -> Awaitable[MessageRequest]:
        runs = services.tools.builtin_tool_filter if services.tools else no_builtin_tools
        keeps = any(backend.kind == "anthropic" for backend in self.config.backends.values())
        settings = parse_settings(self.config.responses, services.encryptor, runs, keeps_body=keeps)
        return parse_message_request(raw, self.counts, settings, services, parse)

    async def _response(
        self, stored: StoredContext, raw: bytes, services: RequestServices, identity: ResponseIdentity | None = None
    ) -> ResponsesRequest:
        body = await parse_body(decode_body, raw, self.counts)
        return await parse_responses_request(body, self.config.responses, stored, services, identity)

    def _services(self, tenant: str, tools: ToolRegistry | None, held: AsyncExitStack) -> RequestServices:
        encryptor = self.keyring.sealer(tenant)
        return RequestServices(self._memory(tenant), encryptor, tools, held, self.tools.pdfs)

    def _memory(self, tenant: str) -> NoReasoningMemory:
        return ReasoningMemory(self.store, tenant) if self.config.responses.reasoning_memory else NoReasoningMemory()
