"""What a client asks, whichever API it speaks: a neutral request, who will encode the answer, and who keeps it."""

import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from gateway import config
from gateway.compaction import summarised
from gateway.endpoints import chat, responses
from gateway.errors import Problem
from gateway.ledger import Ledger
from gateway.request import Request
from gateway.server.ids import new_id, padding
from gateway.server.memory import Forgetful
from gateway.server.sealing import Sealer
from gateway.server.state import Record, State
from gateway.store.database import StoreFailed
from gateway.turn import Endpoint

_log = logging.getLogger("gateway")


class Compaction(Struct, frozen=True):
    """above: how many tokens a prompt may have without one; encoder: makes the endpoint of the summary."""

    above: int
    encoder: Callable[[], responses.Summary]


class Question(Struct, frozen=True):
    """encoder: makes the endpoint of an answer, for the model that gives it; keep: stores the answer.

    memory: of the reasoning that the client does not send back.
    conversation: what the API calls the parameter that the request's messages were read from.
    compaction: what may have to come before the answer.
    """

    request: Request
    ledger: Ledger
    encoder: Callable[[config.Model], Endpoint]
    keep: Callable[[Record], Awaitable[None]]
    memory: Forgetful
    conversation: str = "messages"
    compaction: Compaction | None = None

    async def kept(self, record: Record) -> bool:
        """Store the answer; False, and the ledger knows, if that cannot be done: the client gets it all the same."""
        try:
            await self.keep(record)
        except StoreFailed as error:
            _log.warning("an answer could not be stored: %s", error.__cause__)
            self.ledger.note("dropped", "store")
            return False
        return True

    def in_its_terms(self, problem: Problem) -> Problem:
        """The problem, with its place as the client knows it."""
        astray = (problem.param or "").startswith("messages") and self.conversation != "messages"
        return replace(problem, param=self.conversation) if astray else problem


@asynccontextmanager
async def chat_completion(raw: bytes, state: State, memory: Forgetful) -> AsyncIterator[Question]:
    asked, ledger, created = chat.parse(raw), Ledger(), int(time.time())

    def encoder(model: config.Model) -> Endpoint:
        head = chat.Head(new_id("chatcmpl-"), created, asked.request.model, _fields(model))
        return chat.encoder(head, asked, ledger, padding)

    async def keep(record: Record) -> None:
        await state.keep_completion({**record, "metadata": asked.metadata}, [*asked.request.messages])

    request = await memory.recalled(asked.request, ledger)
    yield Question(request, ledger, encoder, keep, memory)


@asynccontextmanager
async def response(
    body: dict[str, Any], settings: config.Responses, state: State, sealer: Sealer, memory: Forgetful
) -> AsyncIterator[Question]:
    ledger, created, edge = Ledger(), int(time.time()), _edge(sealer)
    rules = _rules(settings, sealer)
    draft = responses.draft(body, rules)

    def encoder(model: config.Model) -> Endpoint:
        head = responses.Head(new_id("resp_"), created, asked.request.model, model.reasoning.carrier)
        return responses.encoder(head, asked, ledger, edge)

    async with state.origin(draft) as origin:
        asked = responses.parse(draft, origin.context, rules, ledger)
        all_turns = asked.echo["reasoning"].get("context") != "current_turn"
        request = await memory.recalled(asked.request, ledger, all_turns=all_turns)
        above, keep = asked.compact_above, partial(state.keep_response, draft, origin)
        compaction = None if above is None else Compaction(above, partial(responses.Summary, edge, ledger))
        yield Question(request, ledger, encoder, keep, memory, "input", compaction)


@asynccontextmanager
async def compaction(
    body: dict[str, Any], settings: config.Responses, state: State, sealer: Sealer
) -> AsyncIterator[Question]:
    """The question for a summary alone, of which nothing is stored."""
    ledger, created, edge = Ledger(), int(time.time()), _edge(sealer)
    rules = _rules(settings, sealer)
    draft = responses.draft(body, rules)

    def encoder(_: config.Model) -> Endpoint:
        head = responses.Head(new_id("resp_"), created, request.model)
        return responses.Compaction(head, edge, ledger, users)

    async with state.origin(draft) as origin:
        request = summarised(responses.parse(draft, origin.context, rules, ledger).request)
        users = responses.by_users([*origin.context.before, *draft.input(origin.context.items)], new_id)
        keep = partial(state.keep_response, draft, origin)
        yield Question(request, ledger, encoder, keep, Forgetful(), "input")


def _rules(settings: config.Responses, sealer: Sealer) -> responses.Settings:
    return responses.Settings(sealer.open, settings.min_output_tokens, settings.repair_dangling_calls)


def _edge(sealer: Sealer) -> responses.Edge:
    return responses.Edge(new_id, lambda: int(time.time()), sealer.seal, padding)


def _fields(model: config.Model) -> tuple[str, ...]:
    """Where a chat completion has the model's reasoning."""
    field = model.reasoning.field
    return ("reasoning_content", "reasoning") if field == "both" else (field,)
