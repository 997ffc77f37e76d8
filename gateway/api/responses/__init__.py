"""Serve /v1/responses: parse a body, and encode response.* events or one Response."""

from gateway.api.responses.compaction import CompactionEncoder, SummaryEncoder, user_messages
from gateway.api.responses.encoder import ResponseBodyEncoder, ResponseStreamEncoder
from gateway.api.responses.error_params import has_parts, place
from gateway.api.responses.event_stream import created_events, final_event
from gateway.api.responses.log_replay import LogReplay
from gateway.api.responses.params import BuiltinToolParams, EncoderInputs, ResponseHead, ResponseParams
from gateway.api.responses.parse import (
    InputContext,
    ParseSettings,
    ResponseDraft,
    draft_response,
    parse_response,
    storable_body,
)
from gateway.api.responses.tools import BuiltinToolFilter, namespace_of, no_builtin_tools
from gateway.warnings import Warnings

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
    "final_event",
    "has_parts",
    "namespace_of",
    "no_builtin_tools",
    "parse_response",
    "place",
    "response_encoder",
    "storable_body",
    "user_messages",
]  # fmt: skip


def response_encoder(
    head: ResponseHead, params: ResponseParams, ledger: Warnings, inputs: EncoderInputs
) -> ResponseStreamEncoder | ResponseBodyEncoder:
    """Return the encoder for a stream or one Response, as the client requested."""
    return (ResponseStreamEncoder if params.request.stream else ResponseBodyEncoder)(head, params, ledger, inputs)
