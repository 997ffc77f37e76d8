"""/v1/chat/completions: a body in, chunks or one body out."""

from collections.abc import Callable

from gateway.endpoints.chat.kept import Kept
from gateway.endpoints.chat.request import Asked, parse
from gateway.endpoints.chat.shape import Head
from gateway.endpoints.chat.stream import FunctionStream, Stream
from gateway.endpoints.chat.whole import Whole
from gateway.ledger import Ledger

__all__ = ["Asked", "Head", "encoder", "parse"]


def encoder(head: Head, asked: Asked, ledger: Ledger, padding: Callable[[], str]) -> Stream | Whole | Kept:
    """The encoder that fits what was asked."""
    whole = Whole(head, asked, ledger)
    if not asked.request.stream:
        return whole
    kind = FunctionStream if asked.functions else Stream
    stream = kind(head, asked, ledger, padding if asked.obfuscation else None)
    return Kept(stream, whole) if asked.store else stream
