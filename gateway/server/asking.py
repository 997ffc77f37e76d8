"""A question is put to the model that it names: where all ways of asking one come together."""

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager

from msgspec import Struct
from starlette.requests import Request as HttpRequest
from starlette.types import Send

from gateway.config import Config, Key
from gateway.errors import GatewayError
from gateway.server.answer import Answer
from gateway.server.auth import allow_model
from gateway.server.counting import Count
from gateway.server.directory import Directory, Route
from gateway.server.jobs.jobs import Jobs
from gateway.server.jobs.reply import Accepted
from gateway.server.questions import Named, Question
from gateway.server.reader import Reader
from gateway.server.state import State
from gateway.store import jobs

Read = Callable[[Reader, bytes, str], AbstractAsyncContextManager[Question]]


class Ask(Struct, frozen=True):
    """One request: its head, its body, and who sent it."""

    http: HttpRequest
    raw: bytes
    key: Key | None

    @property
    def tenant(self) -> str:
        return self.key.name if self.key else ""


class Asking:
    def __init__(self, reader: Reader, directory: Directory, config: Config) -> None:
        self._reader, self._directory, self._config = reader, directory, config
        self.jobs = Jobs(reader.store, config, self._again)

    async def answer(self, ask: Ask, read: Read, reply: type[Answer | Count], send: Send) -> bool:
        """True if it came to a good end; raises a GatewayError for everything that has a status of its own."""
        async with AsyncExitStack() as held:
            question = await held.enter_async_context(read(self._reader, ask.raw, ask.tenant))
            try:
                route = await self._directory.find(question.request.model)
                allow_model(ask.key, question.request.model, route.model)
                if question.lasting:
                    job = await self.jobs.start(ask.http.scope, ask.raw, ask.tenant, (question, route), held)
                    if job:
                        seconds = self._config.stream.keepalive_seconds
                        accepted = Accepted(job, self._reader.store, seconds)
                        return await accepted.run(ask.http.scope, ask.http.receive, send)
                return await reply(ask.http, question, route, self._config).run(send)
            except GatewayError as error:
                error.problem = question.in_its_terms(error.problem)
                raise

    @asynccontextmanager
    async def _again(self, job: jobs.Job, named: Named) -> AsyncIterator[tuple[Question, Route]]:
        """The question of a job that has to be answered once more; raises as `answer` does."""
        state = State(self._reader.store, job.tenant)
        async with self._reader.response_in(state, job.request, job.tenant, named) as question:
            yield question, await self._directory.find(question.request.model)
