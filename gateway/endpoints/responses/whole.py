"""A response in one body: what the same answer came to (`spec.md` C1)."""

from gateway.endpoints.responses.answer import ResponseBuilder
from gateway.endpoints.responses.asked import EncoderInputs, ResponseHead, ResponseParams
from gateway.endpoints.responses.frames import NullEventWriter
from gateway.endpoints.responses.shape import JsonObject, encode
from gateway.events import Event
from gateway.ledger import Warnings


class ResponseBodyEncoder:
    def __init__(self, head: ResponseHead, asked: ResponseParams, ledger: Warnings, edge: EncoderInputs) -> None:
        self._answer = ResponseBuilder(head, asked, ledger, edge, NullEventWriter())

    def start(self) -> bytes:
        return b""

    def encode(self, *events: Event) -> bytes:
        self._answer.take(*events)
        return b""

    def keep_alive(self) -> bytes:
        return b""

    def record(self) -> JsonObject | None:
        """A failure is an error of its own, and nothing that anybody could ask for."""
        return None if self._answer.failed else self._answer.record()

    def close(self, *, kept: bool) -> bytes:
        return b"" if self._answer.failed else encode(self._answer.response(kept=kept))
