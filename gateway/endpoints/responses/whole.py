"""A response in one body: what the same answer came to (`spec.md` C1)."""

from gateway.endpoints.responses.answer import Answer
from gateway.endpoints.responses.asked import Asked, Edge, Head
from gateway.endpoints.responses.frames import Unsent
from gateway.endpoints.responses.shape import encode
from gateway.events import Event
from gateway.ledger import Ledger


class Whole:
    def __init__(self, head: Head, asked: Asked, ledger: Ledger, edge: Edge) -> None:
        self._answer = Answer(head, asked, ledger, edge, Unsent())

    def start(self) -> bytes:
        return b""

    def encode(self, event: Event) -> bytes:
        self._answer.take(event)
        return b""

    def keep_alive(self) -> bytes:
        return b""

    def close(self) -> bytes:
        """The body; a failure has none."""
        response = self._answer.response()
        return b"" if response["status"] == "failed" else encode(response)
