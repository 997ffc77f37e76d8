"""Serve /v1/messages: parse a body; encode events as a stream or as one message."""

from gateway.api.messages.encoder import MessageBodyEncoder, MessageStreamEncoder
from gateway.api.messages.error_paths import block_path
from gateway.api.messages.errors import error_body, error_message, error_status
from gateway.api.messages.model_list import ModelSummary, model_page
from gateway.api.messages.params import MessageHead, MessageParams
from gateway.api.messages.parse import parse_message, parse_token_count
from gateway.api.responses.params import EncoderInputs
from gateway.warnings import Warnings

__all__ = [
    "MessageHead",
    "MessageParams",
    "ModelSummary",
    "block_path",
    "error_body",
    "error_message",
    "error_status",
    "message_encoder",
    "model_page",
    "parse_message",
    "parse_token_count",
]


def message_encoder(
    head: MessageHead, params: MessageParams, ledger: Warnings, inputs: EncoderInputs
) -> MessageStreamEncoder | MessageBodyEncoder:
    """Return the encoder of a stream or of a whole message."""
    return (MessageStreamEncoder if params.request.stream else MessageBodyEncoder)(head, params, ledger, inputs)
