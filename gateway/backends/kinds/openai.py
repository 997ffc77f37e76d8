"""Describe the API of OpenAI, for any server without a kind of its own."""

from gateway.backends.field_rules import OPENAI, PASSED
from gateway.backends.kind import Kind
from gateway.backends.kind_row import KindRow, endpoints_at
from gateway.backends.services import RERANK, BackendServices, CompletionsSupport, for_completions

KIND = Kind(fields=OPENAI, forwards="all", parses=True, fetches=True, takes_openings=True)
ROW = KindRow(
    position=0,
    kind=KIND,
    services=BackendServices(
        completions=CompletionsSupport(for_completions(KIND, metadata=PASSED)),  # the gateway stores it only for chat
        embeds_messages=True,
        embedding_objects=None,
        rerank=RERANK,
        unheard=frozenset(),
    ),
    default_start="models/",  # Gemini lists its models so, and takes both names
    endpoints=endpoints_at(
        "/v1/audio/transcriptions", "/v1/audio/translations", "/v1/audio/speech", "/v1/images/generations",
        "/v1/images/edits", "/v1/images/variations", "/v1/moderations", "/v1/score", "/v1/classify", "/v1/realtime",
    ),
)  # fmt: skip
