"""/v1/completions: a text in, what follows it out, as chunks or as one body."""

from gateway.endpoints.completions.request import CompletionParams, parse_completion
from gateway.endpoints.completions.shape import CompletionHead
from gateway.endpoints.completions.stream import CompletionStreamEncoder
from gateway.endpoints.completions.whole import CompletionBodyEncoder
from gateway.ledger import Warnings

__all__ = ["CompletionHead", "CompletionParams", "completion_encoder", "parse_completion"]


def completion_encoder(
    head: CompletionHead, asked: CompletionParams, ledger: Warnings
) -> CompletionStreamEncoder | CompletionBodyEncoder:
    """The encoder that fits what was asked."""
    return (
        CompletionStreamEncoder(head, asked, ledger)
        if asked.request.stream
        else CompletionBodyEncoder(head, asked, ledger)
    )
