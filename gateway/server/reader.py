"""Bodies in, questions out: what each way of asking needs besides the body."""

from collections.abc import Awaitable

from msgspec import Struct

from gateway.config import Config
from gateway.endpoints.body import decode_body
from gateway.endpoints.counts import Counts
from gateway.server import questions
from gateway.server.apart import parsed
from gateway.server.held import Held
from gateway.server.memory import NoReasoningMemory, ReasoningMemory
from gateway.server.questions import ModelRequest, RequestServices, ResponseIdentity
from gateway.server.sealing import EncryptionKeys
from gateway.server.state import ReadOnlyContext, StoredContext
from gateway.server.tools import ToolRegistry
from gateway.store.database import Database

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
        return questions.parse_chat_request(
            raw, self.counts, StoredContext(self.store, tenant), self._memory(tenant), self.workshop
        )

    def completion(self, raw: bytes, _: str, __: Held) -> Asked:
        return questions.parse_completion_request(raw, self.counts)

    def response(self, raw: bytes, tenant: str, held: Held) -> Asked:
        return self.response_in(StoredContext(self.store, tenant), raw, held)

    def response_in(self, state: StoredContext, raw: bytes, held: Held, named: ResponseIdentity | None = None) -> Asked:
        """A response that finds what it goes on from in this state; `named`: if it is asked again."""
        return self._response(state, raw, self._beside(state.tenant, self.workshop, held), named)

    def prompt(self, raw: bytes, tenant: str, held: Held) -> Asked:
        """A response that is not going to be answered."""
        return self._response(ReadOnlyContext(self.store, tenant), raw, self._beside(tenant, None, held))

    async def compaction(self, raw: bytes, tenant: str, held: Held) -> ModelRequest:
        state, sealer = ReadOnlyContext(self.store, tenant), self.keyring.sealer(tenant)
        body = await parsed(decode_body, raw, self.counts)
        return await questions.parse_compaction_request(
            body, self.config.responses, state, sealer, held, self.workshop.pdfs
        )

    async def _response(
        self, state: StoredContext, raw: bytes, beside: RequestServices, named: ResponseIdentity | None = None
    ) -> ModelRequest:
        sealer = self.keyring.sealer(state.tenant)
        body = await parsed(decode_body, raw, self.counts)
        return await questions.parse_responses_request(body, self.config.responses, state, sealer, beside, named)

    def _beside(self, tenant: str, workshop: ToolRegistry | None, held: Held) -> RequestServices:
        return RequestServices(self._memory(tenant), workshop, held, self.workshop.pdfs)

    def _memory(self, tenant: str) -> NoReasoningMemory:
        return ReasoningMemory(self.store, tenant) if self.config.responses.reasoning_memory else NoReasoningMemory()
