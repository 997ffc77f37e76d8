"""From a client's question to the exchange that answers it."""

from contextlib import closing
from urllib.parse import quote

from msgspec import Struct
from starlette.requests import Request as HttpRequest
from starlette.responses import Response
from starlette.types import Send

from gateway import config
from gateway.errors import BadRequest
from gateway.formats.chosen import Chosen
from gateway.ledger import Ledger
from gateway.server import documents
from gateway.server.directory import Route
from gateway.server.exchange import Exchange
from gateway.server.presence import present
from gateway.server.questions import Question
from gateway.server.rounds import prepare
from gateway.server.stream import EventStream
from gateway.turn import Turn

_MOST_TOLD = 4096  # characters of warnings in a header, so that every client can take it
_NO_CACHE = {"cache-control": "no-cache"}


class Answer(Struct, frozen=True):
    """The answer to one question.  `run` raises a GatewayError for everything that has a status of its own."""

    http: HttpRequest
    question: Question
    route: Route
    settings: config.Config

    async def run(self, send: Send) -> None:
        async with present(self.http.receive):
            await self._answer(send)

    async def _answer(self, send: Send) -> None:
        http, ledger, route = self.http, self.question.ledger, self.route
        request = await documents.read(self.question.request, ledger)
        round = await prepare(request, route, ledger, self.settings.limits.frame_bytes)
        if route.settings.strict or http.headers.get("x-gateway-strict") == "1":
            _refuse_loss(ledger)
        turn = Turn(round.request, round.open, self.question.encoder(route.settings))
        turn.start()
        with closing(Exchange(turn, route.backend, round.body, self.settings.stream)) as exchange:
            first = await (exchange.decide() if round.request.stream else exchange.whole())
            headers = _debug(http, route, round.chosen) | _told(ledger)
            response = (
                EventStream(exchange.pump(first), headers=_NO_CACHE | headers)
                if round.request.stream
                else Response(first, media_type="application/json", headers=headers)
            )
            await response(http.scope, http.receive, send)


def _refuse_loss(ledger: Ledger) -> None:
    """In strict mode nothing is dropped, left unenforced or passed on in the hope that somebody knows it."""
    for entry in ledger.entries():
        code, _, subject = entry.partition(":")
        if code == "forwarded":
            raise BadRequest(f"Unknown parameter: '{subject}'.", code="unknown_parameter", param=subject)
        if code in ("dropped", "unenforced"):
            message = f"Unsupported parameter: '{subject}' cannot be honoured by this model's backend."
            raise BadRequest(message, code="unsupported_parameter", param=subject)


def _told(ledger: Ledger) -> dict[str, str]:
    told = ledger.known()
    if len(told) > _MOST_TOLD:
        told = told[:_MOST_TOLD].rpartition(", ")[0] + ", ..."
    return {"x-gateway-warnings": told} if told else {}


def _debug(http: HttpRequest, route: Route, chosen: Chosen) -> dict[str, str]:
    if http.headers.get("x-gateway-debug") != "1":
        return {}
    begins = "; answers begin inside a thought" if chosen.thought_open else ""
    return {
        "x-gateway-model": quote(route.model, safe="/@+,"),
        "x-gateway-backend": route.backend.name,
        "x-gateway-format": f"{chosen.format}; {chosen.reason}{begins}".encode("ascii", "replace").decode(),
    }
