"""Serve /v1/chat/completions: parse a body, and encode chunks or one body."""

from collections.abc import Callable

from gateway.api.chat.parse import ChatParams, parse_chat
from gateway.api.chat.stream import ChatStreamEncoder, FunctionCallStreamEncoder, StoredChatStream
from gateway.api.chat.whole import ChatBodyEncoder
from gateway.api.completion_encoder import CompletionHead
from gateway.warnings import Warnings

__all__ = ["ChatParams", "CompletionHead", "chat_encoder", "parse_chat"]


def chat_encoder(
    head: CompletionHead, params: ChatParams, ledger: Warnings, padding: Callable[[], str]
) -> ChatStreamEncoder | ChatBodyEncoder | StoredChatStream:
    """Return the encoder for a stream or one body, as the client requested.

    padding: returns the padding of a chunk.
    """
    if not params.request.stream:
        return ChatBodyEncoder(head, params, ledger)
    kind, options = FunctionCallStreamEncoder if params.functions else ChatStreamEncoder, params.stream_options
    stream = kind(head, params, ledger, padding if options.get("include_obfuscation") is True else None)
    return StoredChatStream(stream, ChatBodyEncoder(head, params, ledger)) if params.store else stream
