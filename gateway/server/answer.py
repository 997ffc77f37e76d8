"""From a client's question to the exchange that answers it."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import closing
from functools import partial

from msgspec import Struct
from msgspec.structs import replace
from starlette.requests import Request as HttpRequest
from starlette.responses import Response
from starlette.types import Send

from gateway import config
from gateway.backends.verdicts import Emulated
from gateway.errors import CANCELLED, STOPPED, GatewayError
from gateway.request import Request
from gateway.server import documents, heads, images
from gateway.server.call import Call, Later
from gateway.server.compacting import Compacting, is_due
from gateway.server.directory import Route
from gateway.server.exchange import AnyCall, Exchange
from gateway.server.fanning import FanCall
from gateway.server.presence import LEFT, present
from gateway.server.questions import Question
from gateway.server.rounds import Round, Rounds
from gateway.server.stream import EventStream
from gateway.shortening import versions
from gateway.turn import Endpoint, Turn

_NO_CACHE = {"cache-control": "no-cache"}
_TOO_LONG = "context_length_exceeded"


class Answer(Struct, frozen=True):
    """The answer to one question.

    run: True if it came to a good end; raises a GatewayError for everything that has a status of its own.
    """

    http: HttpRequest
    question: Question
    route: Route
    settings: config.Config

    async def run(self, send: Send) -> bool:
        async with present(self.http.receive):
            return await self._first_that_fits(send)
        return False  # the client has left

    async def _first_that_fits(self, send: Send) -> bool:
        question = self.question
        read = await documents.read(question.request, question.ledger)
        seen = await images.read(read, self.route.backend.kind, self.settings.images, question.ledger)
        *longer, shortest = versions(seen)
        for request in longer:
            try:
                return await self._tried(request, send)
            except GatewayError as error:
                if error.problem.code != _TOO_LONG:
                    raise
            question.ledger.note("truncated", question.conversation)
        return await self._tried(shortest, send)

    async def _tried(self, request: Request, send: Send) -> bool:
        http, question, route = self.http, self.question, heads.strictly(self.http, self.route)
        ledger, memory = question.ledger, question.memory
        round = await question.prepare(request, route, ledger, self.settings.limits.frame_bytes)
        heads.check(route, ledger)
        head = partial(heads.told, http, route, round.chosen, ledger)
        accepted = question.accept and await question.accept(head)
        turn, call = await self._begun(request, Rounds(round, memory.listening))
        exchange = Exchange(turn, route.backend, call, self.settings.stream, question.kept)
        with closing(exchange):
            first = await (exchange.decide() if request.stream else exchange.whole())
            await memory.keep()
            headers = {} if accepted else head()
            response = (
                EventStream(memory.ahead_of(exchange.pump(first)), headers=_NO_CACHE | headers)
                if request.stream
                else Response(first, media_type="application/json", headers=headers)
            )
            try:
                await response(http.scope, http.receive, send)
            except asyncio.CancelledError as reason:
                if request.stream:  # somebody may be there all the same
                    last = exchange.give_up(CANCELLED if reason.args == (LEFT,) else STOPPED)
                    await _speak(memory.ahead_of(last), send)
                raise
        return not turn.problem

    async def _begun(self, request: Request, rounds: Rounds) -> tuple[Turn, Callable[[], AnyCall]]:
        """A turn that has started, and what puts the round of it to the backend that is to be put now."""
        question, backend = self.question, self.route.backend
        endpoint, round = question.encoder(self.route.settings), rounds.now
        if request.n > 1 and isinstance(backend.kind.fields["n"], Emulated):
            return await self._fanned(request, round, endpoint)
        turn = Turn(round.request, rounds.open, endpoint, again=rounds.again)
        turn.start()

        def call() -> Call:
            return Call(backend, rounds.now.body, turn.answered, rounds.now.path)

        if question.compaction and await is_due(question.compaction, round, backend, question.ledger):
            compacting = Compacting(request, rounds, question, self.route, self.settings)
            first = [Later(compacting.call(turn, question.compaction.encoder()))]
            return turn, lambda: first.pop() if first else call()
        return turn, call

    async def _fanned(self, request: Request, round: Round, endpoint: Endpoint) -> tuple[Turn, Callable[[], AnyCall]]:
        """A request for each choice; with a seed, which would make them one, each has its own."""
        question, route, bodies = self.question, self.route, [round.body] * request.n
        question.ledger.note("emulated", "n")
        if isinstance(seed := request.rest.get("seed"), int):
            seeded = [replace(request, rest={**request.rest, "seed": seed + i}) for i in range(request.n)]
            limit = self.settings.limits.frame_bytes
            bodies = [(await question.prepare(one, route, question.ledger, limit)).body for one in seeded]
        fan = round.fan()
        turn = Turn(round.request, lambda _: fan, endpoint)
        turn.start()
        return turn, partial(FanCall, route.backend, bodies, round.path, turn, fan)


async def _speak(pieces: AsyncIterator[bytes], send: Send) -> None:
    """Go on with a stream, to its end."""
    async for piece in pieces:
        await send({"type": "http.response.body", "body": piece, "more_body": True})
    await send({"type": "http.response.body", "body": b""})
