"""POST /v1/chat/completions: from a client's request to the exchange that answers it."""

import time
from collections.abc import Mapping, Sequence
from contextlib import closing
from typing import Any
from urllib.parse import quote

from starlette.requests import Request as HttpRequest
from starlette.responses import Response
from starlette.types import Send

from gateway import config
from gateway.backends.openai import body as upstream
from gateway.backends.openai.continued import continued
from gateway.backends.openai.decode import Decoder
from gateway.backends.openai.messages import Policy
from gateway.calls import Setting
from gateway.endpoints import chat
from gateway.endpoints.chat.fields import KNOWN
from gateway.errors import BadRequest
from gateway.formats import canonical
from gateway.formats.chosen import Chosen
from gateway.formats.format import Context
from gateway.ledger import Ledger
from gateway.request import Named, Request
from gateway.server.choosing import choose
from gateway.server.directory import Route
from gateway.server.exchange import Exchange
from gateway.server.ids import new_id, padding, short_id
from gateway.server.presence import present
from gateway.server.stream import EventStream
from gateway.translate import Filter, translate
from gateway.turn import Turn
from gateway.upstream import Upstream

_MOST_TOLD = 4096  # characters of warnings in a header, so that every client can take it
_NO_CACHE = {"cache-control": "no-cache"}


async def answer(http: HttpRequest, asked: chat.Asked, route: Route, settings: config.Config, send: Send) -> None:
    """Answer the client; raises a GatewayError for everything that has a status of its own."""
    ledger = Ledger()
    request, filters = translate(asked.request, ledger)
    async with present(http.receive):
        chosen = await choose(route, request)
        body = _body(request, route, chosen, ledger)
        if route.settings.strict or http.headers.get("x-gateway-strict") == "1":
            _refuse_loss(ledger)
        setting = _setting(request, route, chosen, ledger, settings.limits.frame_bytes)
        turn = _turn(asked, request, filters, setting, route.settings)
        with closing(Exchange(turn, route.backend, body, settings.stream)) as exchange:
            first = await (exchange.decide() if request.stream else exchange.whole())
            headers = _debug(http, route, chosen) | _told(ledger)
            response = (
                EventStream(exchange.pump(first), headers=_NO_CACHE | headers)
                if request.stream
                else Response(first, media_type="application/json", headers=headers)
            )
            await response(http.scope, http.receive, send)


def _turn(
    asked: chat.Asked, request: Request, filters: Sequence[Filter], setting: Setting, model: config.Model
) -> Turn:
    """The turn, begun."""
    ledger = setting.ledger

    def open_round(_: Request) -> Upstream:
        decoder = Decoder(ledger, request.n, upstream.wanted(request))
        return Upstream(decoder, setting, lambda: _size(request), filters, setting.limit)

    head = chat.Head(new_id("chatcmpl-"), int(time.time()), asked.request.model, _reasoning(model))
    turn = Turn(request, open_round, chat.encoder(head, asked, ledger, padding))
    turn.start()
    return turn


def _body(request: Request, route: Route, chosen: Chosen, ledger: Ledger) -> bytes:
    kind, roles = route.backend.kind, route.settings.roles
    policy = Policy(roles.developer, roles.late_system, kind.reasoning)
    parsed_here = canonical(route.settings.format) not in ("native", "auto")
    target = upstream.Target(route.upstream_model, kind, policy, parsed_here, route.row(chosen.format).special)
    return upstream.body(request, target, KNOWN, ledger)


def _setting(request: Request, route: Route, chosen: Chosen, ledger: Ledger, limit: int) -> Setting:
    row = route.row(chosen.format)
    tools = {tool.name: tool.definition.get("parameters") or {} for tool in request.callable_tools}
    taken = (call.get("id") for message in request.messages for call in message.get("tool_calls") or ())
    return Setting(
        row.parse,
        _context(request, route, chosen, tools),
        short_id if row.ids == "nine" else lambda: new_id("call_"),
        ledger,
        frozenset(id for id in taken if isinstance(id, str)),
        limit,
    )


def _context(request: Request, route: Route, chosen: Chosen, tools: Mapping[str, Mapping[str, Any]]) -> Context:
    choice, begun = request.tool_choice, continued(request, route.backend.kind)
    return Context(
        tools,
        thought_open=begun.in_thought if begun else chosen.thought_open,
        in_thought=chosen.in_thought,
        forced=choice.name if isinstance(choice, Named) else "" if choice == "required" else None,
        prefill=begun.text if begun else "",
        echoed=begun.echoed if begun else False,
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


def _debug(http: HttpRequest, route: Route, chosen: Chosen) -> dict[str, str]:
    if http.headers.get("x-gateway-debug") != "1":
        return {}
    begins = "; answers begin inside a thought" if chosen.thought_open else ""
    return {
        "x-gateway-model": quote(route.model, safe="/@+,"),
        "x-gateway-backend": route.backend.name,
        "x-gateway-format": f"{chosen.format}; {chosen.reason}{begins}".encode("ascii", "replace").decode(),
    }
