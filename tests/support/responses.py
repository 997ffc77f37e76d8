"""Helpers for tests of /v1/responses: an encoder, events for it, and the resulting responses."""

import json
from collections import Counter

from msgspec import Raw

from gateway import events as ev
from gateway.api.responses import EncoderInputs, ResponseHead, ResponseParams, response_encoder
from gateway.errors import Problem
from gateway.events import Finish, Logprob, ToolArgsDelta, ToolCallEnd, ToolCallStart, ToolInputDelta, TopLogprob
from gateway.request import Request
from gateway.warnings import Warnings
from support.responses_events import checked, checked_whole

OFFERED = {"type": "function", "name": "f", "description": None, "parameters": None, "strict": None}
ECHO = {
    "background": False, "conversation": None, "frequency_penalty": 0.0, "instructions": None,
    "max_output_tokens": None, "max_tool_calls": None, "metadata": {}, "parallel_tool_calls": True,
    "presence_penalty": 0.0, "previous_response_id": None, "prompt_cache_key": None,
    "reasoning": {"effort": None, "summary": None}, "safety_identifier": None, "service_tier": "default", "store": True,
    "temperature": 1.0, "text": {"format": {"type": "text"}, "verbosity": "medium"}, "tool_choice": "auto",
    "tools": [OFFERED], "top_logprobs": 0, "top_p": 1.0, "truncation": "disabled", "user": None,
}  # fmt: skip
BEGUN = {
    "id": "resp_1", "object": "response", "created_at": 1790000000, "completed_at": None, "status": "in_progress",
    "error": None, "incomplete_details": None, "model": "m", "output": [], "usage": None, **ECHO,
}  # fmt: skip
KEEP_ALIVE = object()
BROKE = ev.Failure(Problem(502, "Upstream connection lost.", "upstream_lost"))
STOP, LENGTH, FILTER = (Finish(0, reason) for reason in ("stop", "length", "content_filter"))


def sealed(thought):
    """Return reasoning in a readable form instead of an encrypted one."""
    return json.dumps([thought.text, *thought.blocks, thought.model])


def counted(prompt, completion, reasoning=0):
    """Return the usage of a response."""
    return ev.Usage(prompt, completion, 0, reasoning)


def new_encoder(
    stream=True,
    *,
    operator="summary",
    ledger=None,
    seal=sealed,
    events_sent=0,
    generates=True,
    background=False,
    **fields,
):
    """Return an encoder with counted ids, each prefix by itself."""
    counted = Counter()

    def new_id(prefix):
        counted[prefix] += 1
        return f"{prefix}{counted[prefix]}"

    request = Request(model="m", messages=(), stream=stream, generates=generates)
    question = ResponseParams(request=request, echo={**ECHO, "background": background}, background=background, **fields)
    inputs = EncoderInputs(new_id, lambda: 1790000002, seal, lambda: "xx")
    return response_encoder(
        ResponseHead("resp_1", 1790000000, "m", operator, events_sent), question, ledger or Warnings(), inputs
    )


def encoded(events, stream=True, **options):
    """Return the bytes for these events."""
    out = new_encoder(stream, **options)
    data = out.start()
    data += b"".join(out.keep_alive() if event is KEEP_ALIVE else out.encode([event]) for event in events)
    return data + out.close(stored=True)


def whole_response(*events, **options):
    """Return the response for these events: a stream that passes all checks, and the same as a whole."""
    response = checked(encoded(events, **options))
    whole = encoded(events, stream=False, **options)
    if response["status"] == "failed":
        assert whole == b""
    else:
        assert checked_whole(whole) == response
    return response


def call(*pieces, n=0, id="call_1", complete=True, **start):
    """Return the events of a tool call."""
    kind = ToolInputDelta if start.get("kind") == "custom" else ToolArgsDelta
    begin = ToolCallStart(0, n, id, start.pop("name", "f"), **start)
    return [begin, *(kind(0, n, piece) for piece in pieces), ToolCallEnd(0, n, complete)]


# By kind of call: the id and the fields of an item.
FIELDS = {
    "local_shell": ("lsh_1", {"action": {"type": "exec", "command": ["ls"], "env": {}}}),
    "shell": ("sh_1", {"action": {"commands": ["ls"], "timeout_ms": None, "max_output_length": None}, "environment": None}),
    "apply_patch": ("apc_1", {"operation": {"type": "delete_file", "path": "a"}}),
    "tool_search": ("tsc_1", {"arguments": {"query": "a"}, "execution": "client"}),
}  # fmt: skip


def entry(token, logprob, *others):
    """Return a log probability."""
    return Logprob(token, logprob, None, tuple(TopLogprob(other, -9.0, tuple(other.encode())) for other in others))


CITED = {"start_index": 0, "end_index": 1, "title": "t", "url": "http://a"}
FLAT = {"type": "url_citation", **CITED}
NESTED = ev.Annotation(0, Raw(json.dumps({"type": "url_citation", "url_citation": CITED}).encode()))


# By type of built-in item: the item when it begins, and the members of its end.
HERE = {
    "mcp_call": (
        {"status": "in_progress", "approval_request_id": None, "server_label": "s", "name": "f", "arguments": "", "output": None, "error": None},
        {"output": "yes"},
    ),
    "mcp_list_tools": (
        {"server_label": "s", "tools": [], "error": None},
        {"tools": [{"name": "f", "input_schema": {}, "description": None, "annotations": None}]},
    ),
    "web_search_call": (
        {"status": "in_progress", "action": {"type": "search", "query": ""}},
        {"action": {"type": "search", "query": "q"}},
    ),
    "file_search_call": ({"status": "in_progress", "queries": [], "results": None}, {}),
}  # fmt: skip


def done_here(type, id, *pieces, run=True, status="completed"):
    """Return the events of a built-in item; without a status it does not end."""
    item, end = HERE[type]
    events = [ev.BuiltinItemStart(0, Raw(json.dumps({"id": id, "type": type, **item}).encode()))]
    events += [ev.BuiltinArgsDelta(0, piece) for piece in pieces]
    events += [ev.BuiltinRunStart(0)] * run
    return [*events, ev.BuiltinItemEnd(0, Raw(json.dumps({**end, "status": status}).encode()))] if status else events


def message_texts(response):
    """Return the texts of all messages of a response."""
    return [part["text"] for item in response["output"] if item["type"] == "message" for part in item["content"]]
