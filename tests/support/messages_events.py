"""What a stream of /v1/messages has to be: `checked` folds it into the message, as strictly as any client does.

The rules are those of the accumulators of Anthropic's SDKs for Python and TypeScript, and of the types of the API: an
event line that repeats the type, one open block with the next index, members of the known names only, and a delta that
fits its block.  The input of a call is read as the SDK for Python reads it.
"""

import json

from pydantic_core import from_json

COUNTS = {"input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens", "output_tokens"}
MORE_USAGE = {"output_tokens_details", "server_tool_use"}
SERVER_USES = {"web_search_requests", "web_fetch_requests"}
MESSAGE = {"id", "type", "role", "model", "content", "stop_reason", "stop_sequence", "usage"}
REASONS = {
    "end_turn", "max_tokens", "stop_sequence", "tool_use", "pause_turn", "refusal", "model_context_window_exceeded",
}  # fmt: skip
# By type of block: the members of its start.
STARTS = {
    "text": {"type", "text"},
    "thinking": {"type", "thinking", "signature"},
    "redacted_thinking": {"type", "data"},
    "tool_use": {"type", "id", "name", "input"},
    "server_tool_use": {"type", "id", "name", "input"},
    "mcp_tool_use": {"type", "id", "name", "input", "server_name"},
    "web_search_tool_result": {"type", "tool_use_id", "content"},
    "web_fetch_tool_result": {"type", "tool_use_id", "content"},
    "mcp_tool_result": {"type", "tool_use_id", "content", "is_error"},
}
# By type of delta: the member that it has, and the blocks that take it.
DELTAS = {
    "text_delta": ("text", ("text",)),
    "citations_delta": ("citation", ("text",)),
    "thinking_delta": ("thinking", ("thinking",)),
    "signature_delta": ("signature", ("thinking",)),
    "input_json_delta": ("partial_json", ("tool_use", "server_tool_use", "mcp_tool_use")),
}
CITATION = {"type", "cited_text", "encrypted_index", "title", "url"}


def events_of(data):
    """Return the events of frames, each named by its line as by its type; comments are none."""
    *frames, nothing = data.decode().split("\n\n")
    assert nothing == ""
    events = []
    for frame in frames:
        if frame.startswith(": "):
            continue
        name, payload = frame.split("\n")
        event = json.loads(payload.removeprefix("data: "))
        assert name == f"event: {event['type']}"
        events.append(event)
    return events


def checked(data):
    """Return the message that a stream comes to; or its error, if it ends with one."""
    fold = MessageFold()
    for event in events_of(data):
        fold.take(event)
    assert fold.over
    return fold.error or fold.message


def checked_whole(data):
    """Return the message of a body, checked by the rules of the stream."""
    message = json.loads(data)
    check_message(message)
    return message


def check_message(message):
    assert message.keys() - {"stop_details"} == MESSAGE
    assert (message["type"], message["role"]) == ("message", "assistant")
    assert message["stop_reason"] in REASONS
    assert (message["stop_sequence"] is not None) is (message["stop_reason"] == "stop_sequence")
    assert ("stop_details" in message) is (message["stop_reason"] == "refusal")
    check_usage(message["usage"])
    for block in message["content"]:
        assert block.keys() - {"citations"} == STARTS[block["type"]]
        assert block.get("signature", "s") and isinstance(block.get("input", {}), dict)
        assert block.get("citations", ["c"])
    uses = [block["id"] for block in message["content"] if block["type"].endswith("tool_use")]
    assert len(set(uses)) == len(uses)
    if message["stop_reason"] == "tool_use":
        assert any(block["type"] == "tool_use" for block in message["content"])


def check_usage(usage):
    assert usage["service_tier"] == "standard"
    check_counts({name: value for name, value in usage.items() if name != "service_tier"})


def check_counts(usage):
    assert usage.keys() - MORE_USAGE == COUNTS
    assert all(type(usage[name]) is int and usage[name] >= 0 for name in COUNTS)
    assert {*usage.get("server_tool_use", SERVER_USES)} == SERVER_USES


class MessageFold:
    """Fold the events of a stream; `over` once nothing may follow."""

    def __init__(self):
        self.message = self.error = None
        self.over = False
        self._open = self._json = None
        self._ended = False

    def take(self, event):
        assert not self.over
        getattr(self, "_" + event["type"])(**{name: value for name, value in event.items() if name != "type"})

    def _message_start(self, message):
        assert self.message is None
        assert message.keys() == MESSAGE and message["content"] == []
        assert message["stop_reason"] is None and message["usage"]["output_tokens"] == 0
        check_usage(message["usage"])
        self.message = message

    def _ping(self):
        assert self.message

    def _content_block_start(self, index, content_block):
        assert self._open is None and not self._ended and index == len(self.message["content"])
        assert content_block.keys() == STARTS[content_block["type"]]
        assert (
            content_block.get("text", "")
            == content_block.get("thinking", "")
            == content_block.get("signature", "")
            == ""
        )
        assert content_block.get("input", {}) == {}
        self._open, self._json, self._signed = content_block, "", False
        self.message["content"].append(content_block)

    def _content_block_delta(self, index, delta):
        block = self._open
        member, types = DELTAS[delta["type"]]
        assert index == len(self.message["content"]) - 1 and block["type"] in types and not self._signed
        assert delta.keys() == {"type", member}
        value = delta[member]
        if member == "partial_json":
            self._json += value
        elif member == "citation":
            assert value.keys() == CITATION
            block.setdefault("citations", []).append(value)
        elif member == "signature":
            block["signature"], self._signed = value, True
        else:
            block[member] += value

    def _content_block_stop(self, index):
        block, self._open = self._open, None
        assert index == len(self.message["content"]) - 1
        assert self._signed is (block["type"] == "thinking")
        if "input" in block:
            assert self._json
            block["input"] = read_input(self._json)

    def _message_delta(self, delta, usage):
        assert self._open is None and not self._ended
        assert delta.keys() - {"stop_details"} == {"stop_reason", "stop_sequence"}
        check_counts(usage)
        self.message |= delta
        self.message["usage"] |= usage
        check_message(self.message)
        self._ended = True

    def _message_stop(self):
        assert self._ended
        self.over = True

    def _error(self, error, request_id):
        assert error.keys() == {"type", "message"} and request_id
        self.error, self.over = {"error": error, "content": (self.message or {}).get("content")}, True


UNREAD = "__unparsedToolInput"


def read_input(text):
    """Return the input of a call as the SDK for Python reads it, or the text where it gives up."""
    try:
        value = from_json(text, allow_partial=True)
    except ValueError:
        return {UNREAD: text}
    return value if isinstance(value, dict) else {}


def check_same(streamed, whole):
    """Check that both are one message, but for the input of calls that no client can read from a stream."""
    assert len(streamed["content"]) == len(whole["content"])
    for block, other in zip(streamed["content"], whole["content"], strict=True):
        if UNREAD in block.get("input", {}):
            block["input"] = other["input"]
    assert streamed == whole
