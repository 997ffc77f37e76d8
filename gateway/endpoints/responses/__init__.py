"""/v1/responses: a body in, response.* events or one Response out."""

from gateway.endpoints.responses.asked import BuiltinToolParams, EncoderInputs, ResponseHead, ResponseParams
from gateway.endpoints.responses.compaction import CompactionEncoder, SummaryEncoder, user_messages
from gateway.endpoints.responses.fold import LogReplay
from gateway.endpoints.responses.lifecycle import created_events, final_event
from gateway.endpoints.responses.messages import error_message, event_messages, steer_failed_message, warnings_message
from gateway.endpoints.responses.places import has_parts, place
from gateway.endpoints.responses.request import (
    InputContext,
    ParseSettings,
    ResponseDraft,
    draft_response,
    parse_response,
    storable_body,
)
from gateway.endpoints.responses.stream import ResponseStreamEncoder
from gateway.endpoints.responses.tools import BuiltinToolFilter, namespace_of, no_builtin_tools
from gateway.endpoints.responses.whole import ResponseBodyEncoder
from gateway.ledger import Warnings

__all__ = [
    "BuiltinToolFilter",
    "BuiltinToolParams",
    "CompactionEncoder",
    "EncoderInputs",
    "InputContext",
    "LogReplay",
    "ParseSettings",
    "ResponseDraft",
    "ResponseHead",
    "ResponseParams",
    "SummaryEncoder",
    "created_events",
    "draft_response",
    "error_message",
    "event_messages",
    "final_event",
    "has_parts",
    "namespace_of",
    "no_builtin_tools",
    "parse_response",
    "place",
    "response_encoder",
    "steer_failed_message",
    "storable_body",
    "user_messages",
    "warnings_message",
]  # fmt: skip


def response_encoder(
    head: ResponseHead, asked: ResponseParams, ledger: Warnings, edge: EncoderInputs
) -> ResponseStreamEncoder | ResponseBodyEncoder:
    """The encoder that fits what was asked."""
    return (ResponseStreamEncoder if asked.request.stream else ResponseBodyEncoder)(head, asked, ledger, edge)
