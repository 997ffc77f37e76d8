"""Build the model request of Anthropic's Messages API."""

import re
from collections.abc import Callable, Collection, Mapping
from typing import Any

from msgspec.structs import replace

from gateway.api import messages
from gateway.api.body import Counts, decode_body
from gateway.api.named_models import models_in_fields
from gateway.api.responses.parse import ParseSettings
from gateway.config import ModelSettings
from gateway.pipeline.pipeline import ResponseEncoder
from gateway.request import Request
from gateway.server.conversations.reasoning_memory import NoReasoningMemory
from gateway.server.ids import new_id
from gateway.server.limits.rate_limiter import estimate_tokens
from gateway.server.relay.model_request import ModelRequest
from gateway.server.relay.responses_request import RequestServices, encoder_inputs
from gateway.server.relay.rounds import UpstreamRound
from gateway.server.tools import Toolset
from gateway.server.upstream.model_registry import BackendRoute, remembered
from gateway.server.worker_thread import parsed
from gateway.warnings import Warnings

_PASSED = ("anthropic-version", "anthropic-beta")  # headers of the client
_FALLBACKS = "fallbacks"
_FIT = re.compile(r"[ -~]+")
ParseParams = Callable[[dict[str, Any], ParseSettings, Warnings], messages.MessageParams]


class MessageRequest(ModelRequest):
    """A request of POST /v1/messages; the gateway stores nothing of it.

    body: as the client sent it, so that an error can name the block that it is about.
    """

    def __init__(
        self, body: dict[str, Any], params: messages.MessageParams, ledger: Warnings, services: RequestServices
    ) -> None:
        super().__init__(params.request, ledger, NoReasoningMemory(), services.pdfs, params.sticky)
        self._params, self._inputs = params, encoder_inputs(services.encryptor)
        self._body = {} if params.request.is_text_only else body
        self._toolset = services.tools.toolset_for(params.hosted, self.request, ledger) if services.tools else None
        self._window: int | None = None  # of the model that responds, once a round is built

    def encoder(self, model: ModelSettings) -> ResponseEncoder:
        head = messages.MessageHead(
            new_id("msg_"),
            self.request.model,
            self.request_id,
            estimate_tokens(replace(self.request, max_tokens=None)),
            self._window,
            hidden=model.reasoning.carrier == "hidden",
        )
        return messages.message_encoder(head, self._params, self.ledger, self._inputs)

    async def build_round(
        self, request: Request, route: BackendRoute, ledger: Warnings, max_frame_bytes: int
    ) -> UpstreamRound:
        self._window = remembered(route)
        return await super().build_round(request, route, ledger, max_frame_bytes)

    keeps_headers = True

    def keep_headers(self, headers: Mapping[str, str]) -> None:
        if sent := self.request.sent:
            kept = {name: headers[name] for name in _PASSED if _FIT.fullmatch(headers.get(name, ""))}
            self.request = replace(self.request, sent=replace(sent, headers=kept))

    def keep_to_models(self, allowed: Collection[str]) -> None:
        sent = self.request.sent
        fields = (sent and sent.fields) or {}
        if sent and any(model not in allowed for field, model in models_in_fields(fields) if field == _FALLBACKS):
            kept = {name: value for name, value in fields.items() if name != _FALLBACKS}
            sent = replace(sent, fields=kept, notes=(*sent.notes, f"dropped:{_FALLBACKS}"))
            self.request = replace(self.request, sent=sent)

    def toolset(self, _: ModelSettings | None = None) -> Toolset | None:
        return self._toolset  # the client names the tools

    def _place_finder(self) -> Callable[[str], str]:
        body, chat = self._body, self.request.messages
        return lambda param: messages.block_path(body, chat, param) or param


async def parse_message_request(
    raw: bytes, counts: Counts, settings: ParseSettings, services: RequestServices, parse: ParseParams
) -> MessageRequest:
    """Parse a body.  Raise BadRequest.  parse: of a message, or of a count of its tokens."""
    ledger = Warnings()

    def read(raw: bytes) -> tuple[dict[str, Any], messages.MessageParams]:
        body = decode_body(raw, counts)
        return body, parse(body, settings, ledger)

    body, params = await parsed(read, raw)
    result = MessageRequest(body, params, ledger, services)
    if toolset := result.toolset():
        await services.held.enter_async_context(toolset)
    return result
