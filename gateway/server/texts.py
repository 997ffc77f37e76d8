"""How a text that is to be completed is put to the backend of a route; the answer is not parsed."""

from functools import partial

from msgspec.structs import replace

from gateway.backends.dialects import DIALECTS
from gateway.backends.openai import text
from gateway.backends.openai.body import BodyTarget
from gateway.backends.openai.messages import MessagePolicy
from gateway.calls import ParserSettings
from gateway.endpoints import texts
from gateway.endpoints.completions.fields import KNOWN
from gateway.formats.chosen import FormatChoice
from gateway.formats.format import ParseContext
from gateway.ledger import Warnings
from gateway.request import Request
from gateway.server.choosing import format_by_names
from gateway.server.directory import BackendRoute
from gateway.server.ids import new_id
from gateway.server.rounds import UpstreamRound
from gateway.translate import EventFilter
from gateway.translate.texts import LLAMA_ENDS, MIDDLE_ENDS, EchoFilter, Ending, StopFilter, stop_filters

_LLAMA = {"llama3_json", "llama4_pythonic", "pythonic", "functionary31"}  # formats of models that write its end tokens
_CHOSEN = FormatChoice("native", "a completed text is not parsed")


class CompletionRound(UpstreamRound, frozen=True):
    @property
    def size(self) -> int:
        return texts.text_characters(text.prompt_list(self.request))


async def build_completion_round(
    request: Request, route: BackendRoute, ledger: Warnings, frame_bytes: int
) -> UpstreamRound:
    """Raises BadRequest for what the backend's kind cannot do."""
    round = _build_completion_round(request, route, ledger, frame_bytes)
    return round.fanned(request, lambda one: _build_completion_round(one, route, ledger, frame_bytes))


def _build_completion_round(request: Request, route: BackendRoute, ledger: Warnings, frame_bytes: int) -> UpstreamRound:
    does = route.backend.services.completions
    dialect = replace(DIALECTS["openai"], path=text.PATH, body=partial(text.completion_body, does))
    body = dialect.body(request, BodyTarget(route.upstream_model, route.backend.kind, MessagePolicy()), KNOWN, ledger)
    new, discreet = partial(new_id, "call_"), route.backend.discreet
    setting = ParserSettings(None, ParseContext({}), new, ledger, limit=frame_bytes, discreet=discreet)
    return CompletionRound(route, request, [body], _CHOSEN, dialect, setting, _filters(request, route, ledger))


def _filters(request: Request, route: BackendRoute, ledger: Warnings) -> list[EventFilter]:
    does = route.backend.services.completions
    filters: list[EventFilter] = [*stop_filters(request)] if does.kind.keeps_stops else []
    if _LLAMA & {route.format, format_by_names(route, "auto").format}:
        filters.append(Ending(LLAMA_ENDS))
    if text.supports_suffix(request, does):
        filters.append(StopFilter(MIDDLE_ENDS))
    if prompts := text.prompts_to_echo(request, does, ledger):
        filters.append(EchoFilter(prompts, request.rest.get("n", 1)))
    return filters
