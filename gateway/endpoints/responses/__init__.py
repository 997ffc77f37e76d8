"""/v1/responses: a body in, response.* events or one Response out."""

from gateway.endpoints.responses.asked import Asked, Edge, Head, Hosted
from gateway.endpoints.responses.compaction import Compaction, Summary, by_users
from gateway.endpoints.responses.fold import Fold
from gateway.endpoints.responses.lifecycle import ending, opening
from gateway.endpoints.responses.messages import error_message, messages, steer_failed, warnings_message
from gateway.endpoints.responses.places import has_parts, place
from gateway.endpoints.responses.request import Context, Draft, Settings, draft, lasting, parse
from gateway.endpoints.responses.stream import Stream
from gateway.endpoints.responses.tools import Runs, namespace, nothing_runs
from gateway.endpoints.responses.whole import Whole
from gateway.ledger import Ledger

__all__ = [
    "Asked", "Compaction", "Context", "Draft", "Edge", "Fold", "Head", "Hosted", "Runs", "Settings", "Summary",
    "by_users", "draft", "encoder", "ending", "error_message", "has_parts", "lasting", "messages", "namespace",
    "nothing_runs", "opening", "parse", "place", "steer_failed", "warnings_message",
]  # fmt: skip


def encoder(head: Head, asked: Asked, ledger: Ledger, edge: Edge) -> Stream | Whole:
    """The encoder that fits what was asked."""
    return (Stream if asked.request.stream else Whole)(head, asked, ledger, edge)
