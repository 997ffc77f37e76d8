"""Build model requests for the summary of a conversation: for the compact endpoint, and before a long response."""

import time
from contextlib import AsyncExitStack
from typing import Any

from gateway.api import responses
from gateway.config import ModelSettings, ResponsesSettings
from gateway.pipeline.pipeline import ResponseEncoder
from gateway.request import Request
from gateway.server.conversations.encryption import ReasoningEncryptor
from gateway.server.conversations.reasoning_memory import NoReasoningMemory
from gateway.server.conversations.stored_context import StoredContext
from gateway.server.fetch.pdf_reader import Pdfs
from gateway.server.ids import new_id
from gateway.server.relay.model_request import InputRequest, ModelRequest
from gateway.server.relay.responses_request import encoder_inputs, parse_input, parse_settings
from gateway.transforms.context_window import summary_request
from gateway.warnings import Warnings


class CompactionRequest(InputRequest):
    """A request of POST /v1/responses/compact; nothing of it is stored."""

    def __init__(
        self,
        request: Request,
        encoder: responses.CompactionEncoder,
        ledger: Warnings,
        pdfs: Pdfs,
        sticky: str | None,
    ) -> None:
        super().__init__(request, ledger, NoReasoningMemory(), pdfs, sticky)
        self._encoder = encoder

    def encoder(self, model: ModelSettings) -> ResponseEncoder:
        return self._encoder


async def parse_compaction_request(
    body: dict[str, Any],
    settings: ResponsesSettings,
    stored: StoredContext,
    encryptor: ReasoningEncryptor,
    held: AsyncExitStack,
    pdfs: Pdfs,
) -> CompactionRequest:
    """Parse a body, with the history that it continues.  Raise BadRequest or NotFound.

    held: takes the lock of a conversation.
    """
    ledger, id = Warnings(), new_id("resp_")
    rules = parse_settings(settings, encryptor, responses.no_builtin_tools)
    draft = responses.draft_response(body, rules)
    origin = await stored.load_predecessor(draft, id, held)
    request = summary_request((await parse_input(draft, origin.context, rules, ledger)).request)
    users = responses.user_messages([*origin.context.before, *draft.input(origin.context.items)], new_id)
    head = responses.ResponseHead(id, int(time.time()), request.model)
    encoder = responses.CompactionEncoder(head, encoder_inputs(encryptor), ledger, users)
    result = CompactionRequest(request, encoder, ledger, pdfs, draft.conversation)
    result.keep_body_with_parts(body)
    return result


class SummaryRequest(ModelRequest):
    """The request for the summary of another request's messages, before its response."""

    def __init__(self, original: ModelRequest, request: Request, encoder: responses.SummaryEncoder) -> None:
        super().__init__(request, original.ledger, NoReasoningMemory(), original.pdfs, original.sticky)
        self.conversation, self.room, self._encoder = original.conversation, original.room, encoder

    def encoder(self, model: ModelSettings) -> ResponseEncoder:
        return self._encoder
