"""A response as it comes: events out as response.* frames (`spec.md` C4, C5)."""

from gateway.endpoints.responses import lifecycle
from gateway.endpoints.responses.answer import ResponseBuilder
from gateway.endpoints.responses.asked import EncoderInputs, ResponseHead, ResponseParams
from gateway.endpoints.responses.frames import EventWriter
from gateway.endpoints.responses.log import DONE
from gateway.endpoints.responses.shape import JsonObject
from gateway.events import Event
from gateway.ledger import Warnings


class ResponseStreamEncoder:
    def __init__(self, head: ResponseHead, asked: ResponseParams, ledger: Warnings, edge: EncoderInputs) -> None:
        self._frames = EventWriter(edge.pad if asked.obfuscation else None, head.told)
        self._answer = ResponseBuilder(head, asked, ledger, edge, self._frames)
        self._ledger, self._told, self._started = ledger, head.told, False

    def start(self) -> bytes:
        """The beginning, unless it has been told."""
        self._started = True
        if not self._told:
            lifecycle.write_in_progress(self._frames, self._answer.begun)
        return self._frames.taken()

    def encode(self, *events: Event) -> bytes:
        self._answer.take(*events)
        return self._frames.taken()

    def keep_alive(self) -> bytes:
        self._frames.put("response.in_progress", response=self._answer.begun)
        return self._frames.taken()

    def record(self) -> JsonObject | None:
        """Nothing before the client has heard of it."""
        return self._answer.record() if self._started else None

    def close(self, *, kept: bool) -> bytes:
        told = self._ledger.untold() if self._started else ""  # what never began is heard by nobody
        comment = b": gateway-warnings %b\n\n" % told.encode() if told else b""
        lifecycle.write_final(self._frames, self._answer.response(kept=kept))
        return comment + self._frames.taken() + DONE
