"""From a client's question to the exchange that answers it."""

from contextlib import closing
from urllib.parse import quote

from msgspec import Struct
from starlette.requests import Request as HttpRequest
from starlette.responses import Response
from starlette.types import Send

from gateway import config
from gateway.errors import BadRequest, GatewayError
from gateway.formats.chosen import Chosen
from gateway.ledger import Ledger
from gateway.request import Request
from gateway.server import documents
from gateway.server.directory import Route
from gateway.server.exchange import Exchange
from gateway.server.presence import present
from gateway.server.questions import Question
from gateway.server.rounds import prepare
from gateway.server.stream import EventStream
from gateway.shortening import versions
from gateway.turn import Turn

_MOST_TOLD = 4096  # characters of warnings in a header, so that every client can take it
_NO_CACHE = {"cache-control": "no-cache"}
_TOO_LONG = "context_length_exceeded"


class Answer(Struct, frozen=True):
    """The answer to one question.  `run` raises a GatewayError for everything that has a status of its own."""

    http: HttpRequest
    question: Question
    route: Route
    settings: config.Config

    async def run(self, send: Send) -> None:
        try:
            async with present(self.http.receive):
                await self._first_that_fits(send)
        except GatewayError as error:
            error.problem = self.question.in_its_terms(error.problem)
            raise

    async def _first_that_fits(self, send: Send) -> None:
        question = self.question
        *longer, shortest = versions(await documents.read(question.request, question.ledger))
        for request in longer:
            try:
                return await self._tried(request, send)
            except GatewayError as error:
                if error.problem.code != _TOO_LONG:
                    raise
            question.ledger.note("truncated", question.conversation)
        return await self._tried(shortest, send)

    async def _tried(self, request: Request, send: Send) -> None:
        http, ledger, route = self.http, self.question.ledger, self.route
        round = await prepare(request, route, ledger, self.settings.limits.frame_bytes)
        if route.settings.strict or http.headers.get("x-gateway-strict") == "1":
            _refuse_loss(ledger)
        turn = Turn(round.request, round.open, self.question.encoder(route.settings))
        turn.start()
        with closing(Exchange(turn, route.backend, round.body, self.settings.stream)) as exchange:
            first = await (exchange.decide() if request.stream else exchange.whole())
            headers = _debug(http, route, round.chosen) | _told(ledger)
            response = (
                EventStream(exchange.pump(first), headers=_NO_CACHE | headers)
                if request.stream
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
