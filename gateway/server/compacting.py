"""A compaction on the way to an answer: the model is asked for a summary first, and then goes on from that."""

from contextlib import closing
from functools import partial

from msgspec import Raw, json

from gateway.compaction import Told, resumed, summarised
from gateway.config import Config
from gateway.endpoints.responses import Summary
from gateway.ledger import Ledger
from gateway.request import Request
from gateway.server.backend import Backend
from gateway.server.call import Call
from gateway.server.counting import input_tokens
from gateway.server.directory import Route
from gateway.server.exchange import Exchange
from gateway.server.preparing import prepare
from gateway.server.questions import Compaction, Question
from gateway.server.rounds import Round, Rounds
from gateway.turn import Turn


async def is_due(compaction: Compaction, round: Round, backend: Backend, ledger: Ledger) -> bool:
    """True if the prompt has more tokens than it may have; they are not counted where it may have none."""
    return compaction.above == 0 or await input_tokens(round, backend, ledger) > compaction.above


class Compacting:
    """Gives a Turn the call of its first round, which is another one after the compaction."""

    def __init__(self, request: Request, rounds: Rounds, question: Question, route: Route, settings: Config) -> None:
        self._request, self._rounds = request, rounds
        self._question, self._route, self._settings = question, route, settings

    async def call(self, turn: Turn, summary: Summary) -> Call:
        """The call for the answer, once there is a summary; raises what went wrong with that."""
        await self._summarise(summary)
        told, memory = Told(Raw(json.encode(summary.item()))), self._question.memory
        round = await self._prepared(resumed(self._request, summary.text))
        self._rounds.begin(round, lambda round: memory.listening(round).seen_by(told))
        turn.spend(summary.spent)
        turn.start()
        return Call(self._route.backend, self._rounds.now.body, turn.answered)

    async def _summarise(self, summary: Summary) -> None:
        round, backend = await self._prepared(summarised(self._request)), self._route.backend
        turn = Turn(round.request, round.open, summary)
        turn.start()
        call = partial(Call, backend, round.body, turn.answered)
        with closing(Exchange(turn, backend, call, self._settings.stream, self._question.kept)) as exchange:
            await exchange.whole()

    async def _prepared(self, request: Request) -> Round:
        return await prepare(request, self._route, self._question.ledger, self._settings.limits.frame_bytes)
