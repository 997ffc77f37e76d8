"""/v1/chat/completions: a body in, chunks or one body out."""

from collections.abc import Callable

from gateway.endpoints.chat.kept import StoredChatStream
from gateway.endpoints.chat.request import ChatParams, parse_chat
from gateway.endpoints.chat.shape import CompletionHead
from gateway.endpoints.chat.stream import ChatStreamEncoder, FunctionCallStreamEncoder
from gateway.endpoints.chat.whole import ChatBodyEncoder
from gateway.ledger import Warnings

__all__ = ["ChatParams", "CompletionHead", "chat_encoder", "parse_chat"]


def chat_encoder(
    head: CompletionHead, asked: ChatParams, ledger: Warnings, padding: Callable[[], str]
) -> ChatStreamEncoder | ChatBodyEncoder | StoredChatStream:
    """The encoder that fits what was asked."""
    whole = ChatBodyEncoder(head, asked, ledger)
    if not asked.request.stream:
        return whole
    kind = FunctionCallStreamEncoder if asked.functions else ChatStreamEncoder
    stream = kind(head, asked, ledger, padding if asked.obfuscation else None)
    return StoredChatStream(stream, whole) if asked.store else stream
