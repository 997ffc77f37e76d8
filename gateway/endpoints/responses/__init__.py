"""/v1/responses: a body in, response.* events or one Response out."""

from gateway.endpoints.responses.asked import BuiltinToolParams, EncoderInputs, ResponseHead, ResponseParams
from gateway.endpoints.responses.compaction import CompactionEncoder, SummaryEncoder, by_users
from gateway.endpoints.responses.fold import LogReplay
from gateway.endpoints.responses.lifecycle import ending, opening
from gateway.endpoints.responses.messages import error_message, messages, steer_failed, warnings_message
from gateway.endpoints.responses.places import has_parts, place
from gateway.endpoints.responses.request import InputContext, ParseSettings, ResponseDraft, draft, lasting, parse
from gateway.endpoints.responses.stream import ResponseStreamEncoder
from gateway.endpoints.responses.tools import BuiltinToolFilter, namespace, nothing_runs
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
    "by_users",
    "draft",
    "encoder",
    "ending",
    "error_message",
    "has_parts",
    "lasting",
    "messages",
    "namespace",
    "nothing_runs",
    "opening",
    "parse",
    "place",
    "steer_failed",
    "warnings_message",
]  # fmt: skip


def encoder(
    head: ResponseHead, asked: ResponseParams, ledger: Warnings, edge: EncoderInputs
) -> ResponseStreamEncoder | ResponseBodyEncoder:
    """The encoder that fits what was asked."""
    return (ResponseStreamEncoder if asked.request.stream else ResponseBodyEncoder)(head, asked, ledger, edge)
