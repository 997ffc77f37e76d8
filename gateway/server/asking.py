"""A question is put to the model that it names: where all ways of asking one come together."""

from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager, AsyncExitStack
from functools import partial

from msgspec import Struct
from starlette.requests import Request as HttpRequest
from starlette.types import Send

from gateway.config import ApiKey
from gateway.errors import GatewayError
from gateway.server.answer import Responder
from gateway.server.auth import require_model
from gateway.server.counting import TokenCounting
from gateway.server.directory import ModelRegistry
from gateway.server.held import Held
from gateway.server.jobs.jobs import JobManager
from gateway.server.jobs.reply import JobResponder
from gateway.server.limiting import RateLimiter, estimate_tokens
from gateway.server.questions import ModelRequest, ResponseIdentity
from gateway.server.reader import RequestParser
from gateway.server.state import StoredContext
from gateway.server.telemetry.observation import record_of
from gateway.server.telemetry.telemetry import Telemetry
from gateway.server.ways import RetryPolicy, affinity_key
from gateway.store.records import StoredJob

Read = Callable[[RequestParser, bytes, str, Held], Awaitable[ModelRequest]]


class IncomingRequest(Struct, frozen=True):
    """An incoming request: headers, body and API key."""

    http: HttpRequest
    raw: bytes
    key: ApiKey | None

    @property
    def tenant(self) -> str:
        return self.key.name if self.key else ""


class ModelRequestHandler:
    """counts: what one body may hold.

    joined: counts what has no request for as long as it is answered; raises Unavailable where that is too much.
    """

    def __init__(
        self,
        reader: RequestParser,
        directory: ModelRegistry,
        limits: RateLimiter,
        joined: Callable[..., AbstractContextManager[None]],
        telemetry: Telemetry,
    ) -> None:
        self._reader, self._directory, self._config, self._limits = reader, directory, reader.config, limits
        self.joined, self.telemetry, self.store, self.counts = joined, telemetry, reader.store, reader.counts
        self.jobs = JobManager(reader.store, reader.config, self._again, telemetry)

    async def answer(
        self, ask: IncomingRequest, read: Read, reply: type[Responder | TokenCounting], send: Send
    ) -> bool:
        """True if it came to a good end; raises a GatewayError for everything that has a status of its own."""
        seen = record_of(ask.http.scope)
        if seen.tape:
            seen.tape.asked(ask.http.scope, ask.raw)
        async with Held() as held:
            question = await read(self._reader, ask.raw, ask.tenant, held)
            seen.ledger, seen.spent = question.ledger, question.spent
            try:
                ways = await self._ways(question, ask.key, faithful=reply is TokenCounting)
                seen.model = ways.served.model
                tokens = partial(estimate_tokens, question.request) if reply is Responder else int
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
                        accepted = JobResponder(job, self.store, seconds)
                        return await accepted.run(ask.http.scope, ask.http.receive, send)
                return await reply(ask.http, question, ways, self._config).run(send)
            except GatewayError as error:
                error.problem = question.in_its_terms(error.problem)
                raise

    async def _ways(self, question: ModelRequest, key: ApiKey | None, *, faithful: bool = False) -> RetryPolicy:
        name = question.request.model
        served = await self._directory.find(name)
        require_model(key, name, served.model)
        named = affinity_key(question.request, question.sticky, served)
        return RetryPolicy(served, key, named, faithful)

    async def _again(
        self, job: StoredJob, named: ResponseIdentity, held: AsyncExitStack
    ) -> tuple[ModelRequest, RetryPolicy]:
        """The question of a job that has to be answered once more; raises as `answer` does."""
        state = StoredContext(self.store, job.tenant)
        key = next((key for key in self._config.auth.keys if key.name == job.tenant), None)
        question = await self._reader.response_in(state, job.request, Held(held), named)
        return question, await self._ways(question, key)
