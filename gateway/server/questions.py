"""What a client asks, whichever API it speaks: a neutral request, and who will encode the answer."""

import time
from collections.abc import Callable

from msgspec import Struct

from gateway import config
from gateway.endpoints import chat
from gateway.ledger import Ledger
from gateway.request import Request
from gateway.server.ids import new_id, padding
from gateway.turn import Endpoint


class Question(Struct, frozen=True):
    """encoder: makes the endpoint of an answer, for the model that gives it."""

    request: Request
    ledger: Ledger
    encoder: Callable[[config.Model], Endpoint]


def chat_completion(raw: bytes) -> Question:
    asked, ledger, created = chat.parse(raw), Ledger(), int(time.time())

    def encoder(model: config.Model) -> Endpoint:
        head = chat.Head(new_id("chatcmpl-"), created, asked.request.model, _fields(model))
        return chat.encoder(head, asked, ledger, padding)

    return Question(asked.request, ledger, encoder)


def _fields(model: config.Model) -> tuple[str, ...]:
    """Where a chat completion has the model's reasoning."""
    field = model.reasoning.field
    return ("reasoning_content", "reasoning") if field == "both" else (field,)
