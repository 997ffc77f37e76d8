"""What a client asks, whichever API it speaks: a neutral request, and who will encode the answer."""

import time
from collections.abc import Callable

from msgspec import Struct
from msgspec.structs import replace

from gateway import config
from gateway.endpoints import chat, responses
from gateway.errors import Problem
from gateway.ledger import Ledger
from gateway.request import Request
from gateway.server.ids import new_id, padding
from gateway.server.sealing import Sealer
from gateway.turn import Endpoint


class Question(Struct, frozen=True):
    """encoder: makes the endpoint of an answer, for the model that gives it.

    conversation: what the API calls the parameter that the request's messages were read from.
    """

    request: Request
    ledger: Ledger
    encoder: Callable[[config.Model], Endpoint]
    conversation: str = "messages"

    def in_its_terms(self, problem: Problem) -> Problem:
        """The problem, with its place as the client knows it."""
        astray = (problem.param or "").startswith("messages") and self.conversation != "messages"
        return replace(problem, param=self.conversation) if astray else problem


def chat_completion(raw: bytes) -> Question:
    asked, ledger, created = chat.parse(raw), Ledger(), int(time.time())

    def encoder(model: config.Model) -> Endpoint:
        head = chat.Head(new_id("chatcmpl-"), created, asked.request.model, _fields(model))
        return chat.encoder(head, asked, ledger, padding)

    return Question(asked.request, ledger, encoder)


def response(raw: bytes, settings: config.Responses, sealer: Sealer) -> Question:
    ledger, created = Ledger(), int(time.time())
    rules = responses.Settings(sealer.open, settings.min_output_tokens, settings.repair_dangling_calls)
    asked = responses.parse(raw, rules, ledger)

    def encoder(model: config.Model) -> Endpoint:
        head = responses.Head(new_id("resp_"), created, asked.request.model, model.reasoning.carrier)
        edge = responses.Edge(new_id, lambda: int(time.time()), sealer.seal, padding)
        return responses.encoder(head, asked, ledger, edge)

    return Question(asked.request, ledger, encoder, "input")


def _fields(model: config.Model) -> tuple[str, ...]:
    """Where a chat completion has the model's reasoning."""
    field = model.reasoning.field
    return ("reasoning_content", "reasoning") if field == "both" else (field,)
