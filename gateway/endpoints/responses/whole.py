"""A response in one body: what the same answer came to (`spec.md` C1)."""

from gateway.endpoints.responses.answer import Answer
from gateway.endpoints.responses.asked import Asked, Edge, Head
from gateway.endpoints.responses.frames import Unsent
from gateway.endpoints.responses.shape import Wire, encode
from gateway.events import Event
from gateway.ledger import Ledger


class Whole:
    def __init__(self, head: Head, asked: Asked, ledger: Ledger, edge: Edge) -> None:
        self._answer = Answer(head, asked, ledger, edge, Unsent())

    def start(self) -> bytes:
        return b""

    def encode(self, *events: Event) -> bytes:
        self._answer.take(*events)
        return b""

    def keep_alive(self) -> bytes:
        return b""

    def record(self) -> Wire | None:
        """A failure is an error of its own, and nothing that anybody could ask for."""
        return None if self._answer.failed else self._answer.record()

    def close(self, *, kept: bool) -> bytes:
        return b"" if self._answer.failed else encode(self._answer.response(kept=kept))
