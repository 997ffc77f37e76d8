"""How a request is put to the backend of a route, and in what setting the answer is read."""

from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from gateway.backends.dialects import Dialect
from gateway.backends.openai.body import Target
from gateway.backends.openai.continued import continued
from gateway.backends.openai.messages import Policy
from gateway.calls import Setting
from gateway.endpoints.chat.fields import KNOWN
from gateway.fan import Fan
from gateway.formats import canonical
from gateway.formats.chosen import Chosen
from gateway.formats.format import Context
from gateway.ledger import Ledger
from gateway.request import Named, Request
from gateway.server import window
from gateway.server.choosing import choose, ids
from gateway.server.directory import Route
from gateway.server.ids import new_id, short_id
from gateway.translate import Filter, call_ids, past, prompted, translate
from gateway.translate.texts import stops
from gateway.upstream import Upstream

_OF_CONTINUED = ("add_generation_prompt", "continue_final_message")


class Round(Struct, frozen=True):
    """One round, ready to be begun: its body, and how the format of its answer was chosen."""

    request: Request  # as the backend gets it
    body: bytes
    chosen: Chosen
    _dialect: Dialect
    _setting: Setting
    _filters: Sequence[Filter]

    def open(self, _: Request) -> Upstream:
        request, setting = self.request, self._setting
        decoder = self._dialect.decoder(request, setting.ledger)
        return Upstream(decoder, setting, lambda: self.size, self._filters, setting.limit)

    def fan(self) -> Fan:
        """For a server that gives one choice at a time."""
        one, setting = replace(self.request, n=1), self._setting
        opened = (
            Upstream(self._dialect.decoder(one, setting.ledger), setting, lambda: self.size, (), setting.limit)
            for _ in range(self.request.n)
        )
        return Fan([*opened], self._filters)

    @property
    def path(self) -> str:
        return self._dialect.path

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
    request = call_ids.translate(request, ids(route, chosen), ledger)
    if route.settings.tools == "prompt":
        request = prompted.translate(request, ledger)
    request = await _answerable(request, route, ledger)
    dialect, target = route.backend.dialect, await _target(request, route, chosen)
    body = dialect.body(request, target, KNOWN, ledger)
    setting = _setting(request, route, chosen, ledger, frame_bytes)
    taken = setting.taken.union(call["id"] for call in past.calls(asked.messages))
    filters = [*stops(request, route.backend.kind), *filters]
    return Round(request, body, chosen, dialect, replace(setting, taken=taken), filters)


async def _answerable(request: Request, route: Route, ledger: Ledger) -> Request:
    """With an answer of its own, where the server cannot go on from a beginning; may ask it, once for a model."""
    if not continued(request, route.backend.kind) or await route.backend.learner.continues(route.upstream_model):
        return request
    if request.rest.get("continue_final_message"):
        ledger.note("unenforced", "continue_final_message")
    rest = {name: value for name, value in request.rest.items() if name not in _OF_CONTINUED}
    return replace(request, fresh=True, rest=rest)


async def _target(request: Request, route: Route, chosen: Chosen) -> Target:
    """May ask the backend, once for a model."""
    kind, roles, model = route.backend.kind, route.settings.roles, route.upstream_model
    policy = Policy(
        roles.developer,
        roles.late_system,
        kind.reasoning,
        roles.alternate,
        kind.continues,
        kind.calls_alone,
        kind.names,
    )
    parsed_here = canonical(route.settings.format) not in ("native", "auto")
    special, thinks = route.row(chosen.format).special, await _thinks(request, route)
    return Target(model, kind, policy, parsed_here, special, thinks, route.settings.tools == "prompt")


async def _thinks(request: Request, route: Route) -> bool:
    """False if the server says that the model does not; it is asked where a request wants to steer it, if it minds."""
    if not request.rest.keys() & route.backend.dialect.thinking:
        return True
    abilities = (await window.known(route)).abilities
    return abilities is None or "reasoning" in abilities


def _setting(request: Request, route: Route, chosen: Chosen, ledger: Ledger, limit: int) -> Setting:
    row = route.row(chosen.format)
    tools = {tool.name: tool.definition.get("parameters") or {} for tool in request.callable_tools}
    taken = (call.get("id") for message in request.messages for call in message.get("tool_calls") or ())
    return Setting(
        row.parse,
        _context(request, route, chosen, tools),
        short_id if ids(route, chosen) == "nine" else lambda: new_id("call_"),
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
