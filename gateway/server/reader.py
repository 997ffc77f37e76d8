"""Bodies in, questions out: what each way of asking needs besides the body."""

from collections.abc import Coroutine
from contextlib import AbstractAsyncContextManager
from typing import Any

from msgspec import Struct

from gateway.config import Config
from gateway.endpoints.body import decoded
from gateway.server import questions
from gateway.server.memory import Forgetful, Memory
from gateway.server.questions import Beside, Named, Question
from gateway.server.sealing import Keyring
from gateway.server.state import Reading, State
from gateway.server.tools import Workshop
from gateway.store.database import Database

Asked = AbstractAsyncContextManager[Question]


class _Ready(Asked):
    """A question that nothing has to be held for."""

    def __init__(self, question: Coroutine[Any, Any, Question]) -> None:
        self._question = question

    async def __aenter__(self) -> Question:
        return await self._question

    async def __aexit__(self, *_: object) -> None:
        """There is nothing to let go of."""


class Reader(Struct, frozen=True):
    """Each makes a question of a body, for a tenant; raises BadRequest or NotFound."""

    store: Database
    keyring: Keyring
    config: Config
    workshop: Workshop

    def chat_completion(self, raw: bytes, tenant: str) -> Asked:
        return _Ready(questions.chat_completion(raw, State(self.store, tenant), self._memory(tenant), self.workshop))

    def completion(self, raw: bytes, _: str) -> Asked:
        return _Ready(questions.completion(raw))

    def response(self, raw: bytes, tenant: str) -> Asked:
        return self.response_in(State(self.store, tenant), raw, tenant)

    def response_in(self, state: State, raw: bytes, tenant: str, named: Named | None = None) -> Asked:
        """A response that finds what it goes on from in this state; `named`: if it is asked again."""
        return self._response(state, raw, tenant, self.workshop, named)

    def prompt(self, raw: bytes, tenant: str) -> Asked:
        """A response that is not going to be answered."""
        return self._response(Reading(self.store, tenant), raw, tenant, None)

    def compaction(self, raw: bytes, tenant: str) -> Asked:
        state, sealer = Reading(self.store, tenant), self.keyring.sealer(tenant)
        return questions.compaction(decoded(raw), self.config.responses, state, sealer)

    def _response(
        self, state: State, raw: bytes, tenant: str, workshop: Workshop | None, named: Named | None = None
    ) -> Asked:
        beside = Beside(self._memory(tenant), workshop)
        sealer = self.keyring.sealer(tenant)
        return questions.response(decoded(raw), self.config.responses, state, sealer, beside, named)

    def _memory(self, tenant: str) -> Forgetful:
        return Memory(self.store, tenant) if self.config.responses.reasoning_memory else Forgetful()
