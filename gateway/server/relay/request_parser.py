"""Parse the body of each model endpoint into a model request."""

from collections.abc import Awaitable
from contextlib import AsyncExitStack
from functools import partial

from msgspec import Struct

from gateway.api import messages
from gateway.api.body import Counts, decode_body
from gateway.api.responses import no_builtin_tools
from gateway.config import Config
from gateway.server.conversations.encryption import EncryptionKeys
from gateway.server.conversations.past_cache import PastCache
from gateway.server.conversations.reasoning_memory import NoReasoningMemory, ReasoningMemory
from gateway.server.conversations.stored_context import ReadOnlyContext, StoredContext
from gateway.server.fetch.stored_files import StoredFileReader
from gateway.server.relay.compaction_request import CompactionRequest, parse_compaction_request
from gateway.server.relay.completion_requests import (
    ChatRequest,
    CompletionRequest,
    parse_chat_request,
    parse_completion_request,
)
from gateway.server.relay.message_request import MessageRequest, ParseParams, parse_message_request
from gateway.server.relay.responses_request import (
    RequestServices,
    ResponseIdentity,
    ResponsesRequest,
    parse_responses_request,
    parse_settings,
)
from gateway.server.tools import ToolRegistry
from gateway.server.worker_thread import parsed
from gateway.store.database import Database


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
        body = await parsed(decode_body, raw, self.counts)
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
        body = await parsed(decode_body, raw, self.counts)
        return await parse_responses_request(body, self.config.responses, stored, services, identity)

    def _services(self, tenant: str, tools: ToolRegistry | None, held: AsyncExitStack) -> RequestServices:
        encryptor = self.keyring.sealer(tenant)
        return RequestServices(self._memory(tenant), encryptor, tools, held, self.tools.pdfs)

    def _memory(self, tenant: str) -> NoReasoningMemory:
        return ReasoningMemory(self.store, tenant) if self.config.responses.reasoning_memory else NoReasoningMemory()
