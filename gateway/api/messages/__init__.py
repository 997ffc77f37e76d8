"""Serve /v1/messages: a body in, events or one message out."""

from gateway.api.messages.errors import error_body, error_message, error_status
from gateway.api.messages.params import MessageHead, MessageParams
from gateway.api.messages.parse import parse_message, parse_token_count

__all__ = [
    "MessageHead",
    "MessageParams",
    "error_body",
    "error_message",
    "error_status",
    "parse_message",
    "parse_token_count",
]
