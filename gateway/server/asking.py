"""A question is put to the model that it names: where all ways of asking one come together."""

from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager, AsyncExitStack
from functools import partial

from msgspec import Struct
from starlette.requests import Request as HttpRequest
from starlette.types import Send

from gateway.config import Key
from gateway.errors import GatewayError
from gateway.server.answer import Answer
from gateway.server.auth import allow_model
from gateway.server.counting import Count
from gateway.server.directory import Directory
from gateway.server.held import Held
from gateway.server.jobs.jobs import Jobs
from gateway.server.jobs.reply import Accepted
from gateway.server.limiting import Limits, estimate
from gateway.server.questions import Named, Question
from gateway.server.reader import Reader
from gateway.server.state import State
from gateway.server.telemetry.observation import observed
from gateway.server.telemetry.telemetry import Telemetry
from gateway.server.ways import Ways, sticky
from gateway.store.records import Job

Read = Callable[[Reader, bytes, str, Held], Awaitable[Question]]


class Ask(Struct, frozen=True):
    """One request: its head, its body, and who sent it."""

    http: HttpRequest
    raw: bytes
    key: Key | None

    @property
    def tenant(self) -> str:
        return self.key.name if self.key else ""


class Asking:
    """counts: what one body may hold.

    joined: counts what has no request for as long as it is answered; raises Unavailable where that is too much.
    """

    def __init__(
        self,
        reader: Reader,
        directory: Directory,
        limits: Limits,
        joined: Callable[..., AbstractContextManager[None]],
        telemetry: Telemetry,
    ) -> None:
        self._reader, self._directory, self._config, self._limits = reader, directory, reader.config, limits
        self.joined, self.telemetry, self.store, self.counts = joined, telemetry, reader.store, reader.counts
        self.jobs = Jobs(reader.store, reader.config, self._again, telemetry)

    async def answer(self, ask: Ask, read: Read, reply: type[Answer | Count], send: Send) -> bool:
        """True if it came to a good end; raises a GatewayError for everything that has a status of its own."""
        seen = observed(ask.http.scope)
        if seen.tape:
            seen.tape.asked(ask.http.scope, ask.raw)
        async with Held() as held:
            question = await read(self._reader, ask.raw, ask.tenant, held)
            seen.ledger, seen.spent = question.ledger, question.spent
            try:
                ways = await self._ways(question, ask.key, faithful=reply is Count)
                seen.model = ways.served.model
                tokens = partial(estimate, question.request) if reply is Answer else int
                if grant := await self._limits.admit(ask.key, ways.served.model, ways.served.settings, tokens):
                    grant.used, send = question.used, grant.telling(send)
                    await held.stack.enter_async_context(grant)
                if question.lasting:
                    held.stack.callback(seen.hold())
                    if question.lasting.background:
                        held.stack.enter_context(self.joined(beside=1))
                    job = await self.jobs.start(ask.http.scope, ask.raw, ask.tenant, (question, ways), held.stack)
                    if job:
                        seconds = self._config.stream.keepalive_seconds
                        accepted = Accepted(job, self.store, seconds)
                        return await accepted.run(ask.http.scope, ask.http.receive, send)
                return await reply(ask.http, question, ways, self._config).run(send)
            except GatewayError as error:
                error.problem = question.in_its_terms(error.problem)
                raise

    async def _ways(self, question: Question, key: Key | None, *, faithful: bool = False) -> Ways:
        name = question.request.model
        served = await self._directory.find(name)
        allow_model(key, name, served.model)
        named = sticky(question.request, question.sticky, served)
        return Ways(served, key, named, faithful)

    async def _again(self, job: Job, named: Named, held: AsyncExitStack) -> tuple[Question, Ways]:
        """The question of a job that has to be answered once more; raises as `answer` does."""
        state = State(self.store, job.tenant)
        key = next((key for key in self._config.auth.keys if key.name == job.tenant), None)
        question = await self._reader.response_in(state, job.request, Held(held), named)
        return question, await self._ways(question, key)
