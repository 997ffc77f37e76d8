"""POST /v1/chat/completions: from a client's request to the exchange that answers it."""

import time
from contextlib import closing
from urllib.parse import quote

from starlette.requests import Request as HttpRequest
from starlette.responses import Response
from starlette.types import Send

from gateway import config
from gateway.backends.openai import body as upstream
from gateway.backends.openai.decode import Decoder
from gateway.backends.openai.messages import Policy
from gateway.calls import Setting
from gateway.endpoints import chat
from gateway.endpoints.chat.fields import KNOWN
from gateway.errors import BadRequest
from gateway.formats import FORMATS, canonical
from gateway.formats.format import Context
from gateway.ledger import Ledger
from gateway.request import Request
from gateway.server.directory import Route
from gateway.server.exchange import Exchange
from gateway.server.ids import new_id, padding
from gateway.server.presence import present
from gateway.server.stream import EventStream
from gateway.translate import translate
from gateway.turn import Turn
from gateway.upstream import Upstream

_MOST_TOLD = 4096  # characters of warnings in a header, so that every client can take it
_NO_CACHE = {"cache-control": "no-cache"}


async def answer(http: HttpRequest, asked: chat.Asked, route: Route, settings: config.Config, send: Send) -> None:
    """Answer the client; raises a GatewayError for everything that has a status of its own."""
    ledger = Ledger()
    request, filters = translate(asked.request, ledger)
    body = _body(request, route, ledger)
    if route.settings.strict or http.headers.get("x-gateway-strict") == "1":
        _refuse_loss(ledger)
    setting = _setting(request, route.settings, ledger, settings.limits.frame_bytes)

    def open_round(_: Request) -> Upstream:
        decoder = Decoder(ledger, request.n, upstream.wanted(request))
        return Upstream(decoder, setting, lambda: _size(request), filters, settings.limits.frame_bytes)

    head = chat.Head(new_id("chatcmpl-"), int(time.time()), asked.request.model, _reasoning(route.settings))
    turn = Turn(request, open_round, chat.encoder(head, asked, ledger, padding))
    turn.start()
    async with present(http.receive):
        with closing(Exchange(turn, route.backend, body, settings.stream)) as exchange:
            first = await (exchange.decide() if request.stream else exchange.whole())
            headers = _debug(http, route) | _told(ledger)
            response = (
                EventStream(exchange.pump(first), headers=_NO_CACHE | headers)
                if request.stream
                else Response(first, media_type="application/json", headers=headers)
            )
            await response(http.scope, http.receive, send)


def _body(request: Request, route: Route, ledger: Ledger) -> bytes:
    kind, roles = route.backend.kind, route.settings.roles
    policy = Policy(roles.developer, roles.late_system, kind.reasoning)
    parsed_here = canonical(route.settings.format) not in ("native", "auto")
    return upstream.body(request, upstream.Target(route.upstream_model, kind, policy, parsed_here), KNOWN, ledger)


def _setting(request: Request, model: config.Model, ledger: Ledger, limit: int) -> Setting:
    tools = {tool.name: tool.definition.get("parameters") or {} for tool in request.callable_tools}
    taken = (call.get("id") for message in request.messages for call in message.get("tool_calls") or ())
    return Setting(
        FORMATS[canonical(model.format)].parse,
        Context(tools, model.thought == "open"),
        lambda: new_id("call_"),
        ledger,
        frozenset(id for id in taken if isinstance(id, str)),
        limit,
    )


def _reasoning(model: config.Model) -> tuple[str, ...]:
    field = model.reasoning.field
    return ("reasoning_content", "reasoning") if field == "both" else (field,)


def _size(request: Request) -> int:
    """Characters of the prompt, near enough for an estimate."""
    return len(str(request.messages)) + len(str([tool.definition for tool in request.callable_tools]))


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
    told = ledger.untold()
    if len(told) > _MOST_TOLD:
        told = told[:_MOST_TOLD].rpartition(", ")[0] + ", ..."
    return {"x-gateway-warnings": told} if told else {}


def _debug(http: HttpRequest, route: Route) -> dict[str, str]:
    if http.headers.get("x-gateway-debug") != "1":
        return {}
    name = canonical(route.settings.format)
    reason = "native, and tagged markup in the text" if name == "auto" else "configured"
    return {
        "x-gateway-model": quote(route.model, safe="/@+,"),
        "x-gateway-backend": route.backend.name,
        "x-gateway-format": f"{name}; {reason}",
    }
