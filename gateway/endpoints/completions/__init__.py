"""/v1/completions: a text in, what follows it out, as chunks or as one body."""

from gateway.endpoints.completions.request import Asked, parse
from gateway.endpoints.completions.shape import Head
from gateway.endpoints.completions.stream import Stream
from gateway.endpoints.completions.whole import Whole
from gateway.ledger import Ledger

__all__ = ["Asked", "Head", "encoder", "parse"]


def encoder(head: Head, asked: Asked, ledger: Ledger) -> Stream | Whole:
    """The encoder that fits what was asked."""
    return Stream(head, asked, ledger) if asked.request.stream else Whole(head, asked, ledger)
