"""Build the model requests of chat completions and of legacy completions."""

import time
from collections.abc import Callable

from msgspec.structs import replace

from gateway.api import chat, completions
from gateway.api.body import Counts
from gateway.api.completion_encoder import CompletionHead
from gateway.config import ModelSettings
from gateway.pipeline.pipeline import ResponseEncoder
from gateway.request import Request
from gateway.server.conversations.reasoning_memory import NoReasoningMemory
from gateway.server.conversations.stored_context import StoredContext, StoredObject
from gateway.server.ids import new_id, padding
from gateway.server.relay.model_request import ModelRequest
from gateway.server.relay.round_builder import build_completion_round
from gateway.server.relay.rounds import UpstreamRound
from gateway.server.tools import ToolRegistry, Toolset
from gateway.server.upstream.model_registry import BackendRoute
from gateway.server.worker_thread import parsed
from gateway.warnings import Warnings


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
    params, ledger = await parsed(chat.parse_chat, raw, counts), Warnings()
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
    return CompletionRequest(await parsed(completions.parse_completion, raw, counts))
