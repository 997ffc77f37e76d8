"""How a request is put to the backend of a route, and in what setting the answer is read."""

from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from gateway.backends.openai import body as upstream
from gateway.backends.openai.continued import continued
from gateway.backends.openai.decode import Decoder
from gateway.backends.openai.messages import Policy
from gateway.calls import Setting
from gateway.endpoints.chat.fields import KNOWN
from gateway.formats import canonical
from gateway.formats.chosen import Chosen
from gateway.formats.format import Context
from gateway.ledger import Ledger
from gateway.request import Named, Request
from gateway.server.choosing import choose
from gateway.server.directory import Route
from gateway.server.ids import new_id, short_id
from gateway.translate import Filter, translate
from gateway.upstream import Upstream


class Round(Struct, frozen=True):
    """One round, ready to be begun: its body, and how the format of its answer was chosen."""

    request: Request  # as the backend gets it
    body: bytes
    chosen: Chosen
    _setting: Setting
    _filters: Sequence[Filter]

    def open(self, _: Request) -> Upstream:
        request, setting = self.request, self._setting
        decoder = Decoder(setting.ledger, request.n, upstream.wanted(request))
        return Upstream(decoder, setting, lambda: self.size, self._filters, setting.limit)

    def seen_by(self, filter: Filter) -> "Round":
        """The same, with another filter that sees last what is answered."""
        return replace(self, _filters=[*self._filters, filter])

    @property
    def size(self) -> int:
        """Characters of the prompt, near enough for an estimate."""
        tools = [tool.definition for tool in self.request.callable_tools]
        return len(str(self.request.messages)) + len(str(tools))


async def prepare(asked: Request, route: Route, ledger: Ledger, frame_bytes: int) -> Round:
    request, filters = translate(asked, ledger)
    chosen = await choose(route, request)
    body = _body(request, route, chosen, ledger)
    return Round(request, body, chosen, _setting(request, route, chosen, ledger, frame_bytes), filters)


def _body(request: Request, route: Route, chosen: Chosen, ledger: Ledger) -> bytes:
    kind, roles = route.backend.kind, route.settings.roles
    policy = Policy(roles.developer, roles.late_system, kind.reasoning, roles.alternate)
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
