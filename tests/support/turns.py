"""Pipelines for tests."""

import json

from gateway.api import chat
from gateway.pipeline.pipeline import Pipeline
from gateway.server.observability.request_recorder import RecordedPipeline, record_rounds
from gateway.transforms import lower_request
from gateway.warnings import Warnings
from support.pipeline import parser_settings, upstream

FUNCTION = {"type": "function", "function": {"name": "f", "parameters": {"properties": {"a": {"type": "string"}}}}}


def chat_params(**fields):
    """Return the parameters of a streamed chat completion."""
    body = {"model": "m", "messages": [{"role": "user", "content": "q"}], "stream": True, **fields}
    return chat.parse_chat(json.dumps(body).encode())


def make_turn(
    question=None,
    *,
    format="hermes_json",
    ledger=None,
    reasoning=("reasoning_content",),
    wanted=frozenset(),
    next_request=lambda: None,
    limit=8 << 20,
    recorder=None,
    encoder=None,
):
    """Return a pipeline of a chat completion, or of what another encoder makes of its request."""
    question, ledger = question or chat_params(tools=[FUNCTION]), ledger or Warnings()
    request, filters = lower_request(question.request, ledger)
    schemas = {tool.name: tool.definition.get("parameters") or {} for tool in request.callable_tools}
    settings = parser_settings(format, tools=schemas, ledger=ledger)
    head = chat.CompletionHead("chatcmpl-1", 7, "m", reasoning)
    encoder = encoder or chat.chat_encoder(head, question, ledger, lambda: "xx")

    def opened(_):
        return upstream(settings, filters=filters, n=request.n, wanted=wanted, limit=limit)

    if recorder:
        return RecordedPipeline(request, record_rounds(opened, recorder), encoder, next_request=next_request)
    return Pipeline(request, opened, encoder, next_request=next_request)
