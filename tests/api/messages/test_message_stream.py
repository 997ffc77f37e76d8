"""Test the encoders of /v1/messages: the events of a stream, and the whole message, which is what these fold into.

https://platform.claude.com/docs/en/build-with-claude/streaming
"""

import json
from functools import partial

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import Raw
from msgspec.structs import replace

from gateway import events as ev
from gateway.api.messages.encoder import MessageBuilder
from gateway.api.messages.output_blocks import readable_object
from gateway.api.messages.thinking import sealable
from gateway.errors import Problem
from gateway.events import (
    Finish,
    ReasoningDelta,
    RefusalDelta,
    TextDelta,
    ToolArgsDelta,
    ToolCallEnd,
    ToolCallStart,
    Usage,
)
from gateway.request import StoredReasoning
from gateway.warnings import Warnings
from support.messages import encoded, encoder_of, open_seal, seal, whole_message
from support.messages_events import UNREAD, check_same, checked, checked_whole, events_of, read_input
from support.pipeline import chunk, cut, merge, sse, upstream
from support.response_strategies import answers, hosted
from support.responses import BROKE, FILTER, KEEP_ALIVE, LENGTH, NESTED, STOP, call, counted, done_here
from support.sampling import examples

CALLED = Finish(0, "tool_calls")
COUNTS = {"input_tokens": 10, "cache_creation_input_tokens": 0, "cache_read_input_tokens": 0, "output_tokens": 5}
USAGE = {**COUNTS, "service_tier": "standard"}


def text_block(text):
    return {"type": "text", "text": text}


def thought(text, *blocks, shown=True):
    signature = seal(sealable(text, blocks, "m", shown=shown))
    return {"type": "thinking", "thinking": text if shown else "", "signature": signature}


def used(id="call_1", name="f", **input):
    return {"type": "tool_use", "id": id, "name": name, "input": input}


def content_of(*events, **options):
    return whole_message(*events, **options)["content"]


def ending_of(*events, **options):
    message = whole_message(*events, **options)
    return message["stop_reason"], message["stop_sequence"]


def warnings_of(*events, stream=True, **options):
    ledger = Warnings()
    encoded(events, stream, ledger=ledger, **options)
    return ledger.entries()


def test_whole_message_has_all_fields():
    assert whole_message(counted(10, 0), TextDelta(0, "Hel"), TextDelta(0, "lo"), STOP, counted(10, 5)) == {
        "id": "msg_1", "type": "message", "role": "assistant", "model": "m", "content": [text_block("Hello")],
        "stop_reason": "end_turn", "stop_sequence": None, "usage": USAGE,
    }  # fmt: skip


def test_stream_of_a_text():
    events = events_of(
        encoded([TextDelta(0, "Hel"), TextDelta(0, "lo"), STOP, counted(10, 5)], head={"input_tokens": 9})
    )
    start, *middle, delta, stop = events
    assert start["message"]["usage"] == {**USAGE, "input_tokens": 9, "output_tokens": 0}
    assert middle == [
        {"type": "content_block_start", "index": 0, "content_block": text_block("")},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "Hel"}},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "lo"}},
        {"type": "content_block_stop", "index": 0},
    ]
    assert delta == {
        "type": "message_delta",
        "delta": {"stop_reason": "end_turn", "stop_sequence": None},
        "usage": COUNTS,
    }
    assert stop == {"type": "message_stop"}


def test_stream_of_a_thought_a_text_and_two_calls():
    events = [
        ReasoningDelta(0, "two"), TextDelta(0, "Checking."), *call('{"city": "Os', 'lo"}', id="a"),
        *call(n=1, id="b", name="g"), CALLED,
    ]  # fmt: skip
    assert content_of(*events) == [thought("two"), text_block("Checking."), used("a", city="Oslo"), used("b", "g")]
    assert ending_of(*events) == ("tool_use", None)
    deltas = [event["delta"] for event in events_of(encoded(events)) if event["type"] == "content_block_delta"]
    assert [delta["type"] for delta in deltas] == [
        "thinking_delta", "signature_delta", "text_delta", "input_json_delta", "input_json_delta", "input_json_delta",
    ]  # fmt: skip
    assert deltas[-1]["partial_json"] == "{}"


# Blocks


BLOCKS = {
    "thought between texts": (
        [TextDelta(0, "a"), ReasoningDelta(0, "b"), TextDelta(0, "c")], [text_block("a"), thought("b"), text_block("c")],
    ),
    "text between calls": (
        [*call("{}"), TextDelta(0, "\na"), *call("{}", n=1, id="call_2")], [used(), text_block("\na"), used("call_2")],
    ),
    "nothing": ([], []),
    "empty texts": ([TextDelta(0, ""), ReasoningDelta(0, "")], []),
    "white space alone": ([TextDelta(0, "\n")], []),
    "white space before a text": ([TextDelta(0, "\n"), TextDelta(0, " a")], [text_block("\n a")]),
    "white space before a thought": ([TextDelta(0, "\n"), ReasoningDelta(0, "a")], [thought("a")]),
    "white space before a call": ([TextDelta(0, "a"), ReasoningDelta(0, "b"), TextDelta(0, "\n"), *call("{}")], [text_block("a"), thought("b"), used()]),
    "white space behind a call": ([TextDelta(0, "a"), *call("{}"), TextDelta(0, "\n")], [text_block("a"), used()]),
    "white space within a thought": ([ReasoningDelta(0, "a"), TextDelta(0, "\n"), ReasoningDelta(0, "b")], [thought("ab")]),
    "white space beside other text": (
        [TextDelta(0, "a"), ReasoningDelta(0, "b"), TextDelta(0, "\n"), ReasoningDelta(0, "c")],
        [text_block("a"), thought("b"), text_block("\n"), thought("c")],
    ),
    "refusal": ([TextDelta(0, "a "), RefusalDelta(0, "no")], [text_block("a no")]),
    "white space before a refusal": ([TextDelta(0, "\n"), RefusalDelta(0, "no")], [text_block("\nno")]),
    "signed thought": (
        [ReasoningDelta(0, "a"), ReasoningDelta(0, "b", '{"type":"thinking","signature":"s"}'), TextDelta(0, "c")],
        [thought("ab", {"type": "thinking", "thinking": "ab", "signature": "s"}), text_block("c")],
    ),
    "signature without a text": (
        [ReasoningDelta(0, "", '{"type":"thinking","signature":"s"}')],
        [thought("", {"type": "thinking", "thinking": "", "signature": "s"})],
    ),
    "name in a namespace": ([*call("{}", name="f", namespace="s")], [used(name="s__f")]),
    "custom tool": ([*call("x", kind="custom")], [used()]),
}  # fmt: skip


@pytest.mark.parametrize("events, content", BLOCKS.values(), ids=BLOCKS)
def test_events_become_blocks(events, content):
    assert content_of(*events, STOP) == content


def test_redacted_thought_is_a_block_of_its_own():
    signed = {"type": "redacted_thinking", "data": "d"}
    events = [ReasoningDelta(0, "a"), ReasoningDelta(0, "b", json.dumps(signed)), ReasoningDelta(0, "c")]
    first, redacted, last = content_of(*events, STOP)
    assert (first, last, redacted["type"]) == (thought("ab"), thought("c"), "redacted_thinking")
    assert open_seal(redacted["data"]) == StoredReasoning("", (signed,), "m")


@pytest.mark.parametrize("options", [{"shown": False}, {"head": {"hidden": True}}], ids=["omitted", "hidden"])
def test_thought_may_be_only_its_signature(options):
    events = [ReasoningDelta(0, "secret"), TextDelta(0, "a"), STOP]
    assert content_of(*events, **options) == [thought("secret", shown=False), text_block("a")]
    assert b"thinking_delta" not in encoded(events, **options)


def test_citation_is_a_delta_of_its_text():
    citation = {
        "type": "web_search_result_location", "url": "http://a", "title": "t", "cited_text": "", "encrypted_index": "",
    }  # fmt: skip
    assert content_of(TextDelta(0, "a"), NESTED, STOP) == [{**text_block("a"), "citations": [citation]}]


REMARKS = {
    "without a text": ([NESTED], "dropped:annotations"),
    "unknown": ([TextDelta(0, "a"), ev.Annotation(0, Raw(b"{}"))], "dropped:annotations"),
    "of a file": ([TextDelta(0, "a"), ev.Annotation(0, Raw(b'{"type":"file_citation"}'))], "dropped:annotations"),
    "image": ([ev.Media(0, Raw(b"{}"), "images")], "dropped:images"),
    "approval": ([hosted("a")], "dropped:mcp_approval_request"),
    "file search": ([*done_here("file_search_call", "fs_1", "{}")], "dropped:file_search_call"),
    "extra": ([ev.ExtraField(None, "timings", Raw(b"{}"))], "dropped:timings"),
}


@pytest.mark.parametrize("events, warning", REMARKS.values(), ids=REMARKS)
def test_what_has_no_place_is_reported(events, warning):
    assert warnings_of(*events, STOP) == [warning]


def test_service_tier_of_the_backend_is_not_the_clients():
    assert warnings_of(ev.ExtraField(None, "service_tier", Raw(b'"flex"')), STOP) == []


# Tools at the gateway


def test_search_at_the_gateway_is_shown_with_its_results():
    results = [{"url": "http://a", "title": "t", "text": "page"}]
    ended = {"action": {"type": "search", "query": "q"}, "results": results}
    start, args, _, _ = done_here("web_search_call", "ws_1", '{"query":"q"}')
    message = whole_message(start, args, ev.BuiltinItemEnd(0, Raw(json.dumps(ended).encode())), TextDelta(0, "a"), STOP)
    found = {
        "type": "web_search_result",
        "url": "http://a",
        "title": "t",
        "encrypted_content": seal(StoredReasoning("page")),
        "page_age": None,
    }
    assert message["content"] == [
        {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {"query": "q"}},
        {"type": "web_search_tool_result", "tool_use_id": "srvtoolu_1", "content": [found]},
        text_block("a"),
    ]
    assert message["usage"]["server_tool_use"] == {"web_search_requests": 1, "web_fetch_requests": 0}
    assert message["stop_reason"] == "end_turn"


def test_page_at_the_gateway_is_shown_with_its_text():
    action = {"type": "open_page", "url": "http://a"}
    start = {
        "id": "ws_1",
        "type": "web_search_call",
        "status": "in_progress",
        "action": {"type": "open_page"},
        "results": None,
    }
    end = {"action": action, "results": [{"url": "http://a", "title": "t", "text": "page"}]}
    use, result = content_of(*shown(start, end), STOP)
    assert (use["name"], use["input"]) == ("web_fetch", {})
    document = {
        "type": "document",
        "source": {"type": "text", "media_type": "text/plain", "data": "page"},
        "title": "t",
    }
    assert result["content"] == {
        "type": "web_fetch_result",
        "url": "http://a",
        "content": document,
        "retrieved_at": None,
    }
    assert content_of(*shown(start, {}), STOP)[1]["content"]["content"]["title"] is None


def shown(start, end):
    return [
        ev.BuiltinItemStart(0, Raw(json.dumps(start).encode())),
        ev.BuiltinItemEnd(0, Raw(json.dumps(end).encode())),
    ]


def test_search_that_failed():
    _, result = content_of(*done_here("web_search_call", "ws_1", status="failed"), STOP)
    assert result["content"] == {"type": "web_search_tool_result_error", "error_code": "unavailable"}


MCP_ENDS = {
    "output": ({"output": "yes"}, "yes", False),
    "error of the tool": ({"status": "failed", "error": {"content": [{"type": "text", "text": "no"}]}}, "no", True),
    "error of the protocol": ({"status": "failed", "error": {"message": "down"}}, "down", True),
    "nothing": ({"output": None}, "", False),
}


@pytest.mark.parametrize("end, text, failed", MCP_ENDS.values(), ids=MCP_ENDS)
def test_mcp_call_at_the_gateway(end, text, failed):
    start, args, *_ = done_here("mcp_call", "mcp_1", '{"a":1}')
    use, result = content_of(start, args, ev.BuiltinItemEnd(0, Raw(json.dumps(end).encode())), STOP)
    assert use == {"type": "mcp_tool_use", "id": "mcptoolu_1", "name": "f", "server_name": "s", "input": {"a": 1}}
    content = [{"type": "text", "text": text}]
    assert result == {"type": "mcp_tool_result", "tool_use_id": "mcptoolu_1", "is_error": failed, "content": content}


def test_list_of_a_servers_tools_is_not_shown():
    events = [*done_here("mcp_list_tools", "mcpl_1"), STOP]
    assert content_of(*events) == [] and warnings_of(*events) == []


# The end


def matched(value, name="stop_reason"):
    return ev.ExtraField(0, name, Raw(json.dumps(value).encode()))


HELLO = TextDelta(0, "Hello")
ENDINGS = {
    "stop": ([HELLO, STOP], "end_turn", None),
    "empty": ([STOP], "end_turn", None),
    "length": ([HELLO, LENGTH], "max_tokens", None),
    "length with calls": ([*call("{}"), LENGTH], "max_tokens", None),
    "the window is full": ([HELLO, LENGTH, counted(90, 10)], "model_context_window_exceeded", None),
    "calls": ([*call("{}"), CALLED], "tool_use", None),
    "calls beside another word": ([*call("{}"), STOP], "tool_use", None),
    "calls and a match": ([*call("{}"), matched("END"), STOP], "tool_use", None),
    "a word without calls": ([HELLO, CALLED], "end_turn", None),
    "a broken call": ([*call("{bad", complete=False), CALLED], "end_turn", None),
    "a broken call beside a good one": ([*call("{}"), *call("{b", n=1, id="b", complete=False), CALLED], "tool_use", None),
    "filter": ([HELLO, FILTER], "refusal", None),
    "refusal": ([RefusalDelta(0, "no"), STOP], "refusal", None),
    "a match": ([HELLO, matched("END"), STOP], "stop_sequence", "END"),
    "a match as SGLang says it": ([HELLO, matched("END", "matched_stop"), STOP], "stop_sequence", "END"),
    "a match of nothing that was asked for": ([HELLO, matched("x"), STOP], "end_turn", None),
    "a token": ([HELLO, matched(7), STOP], "end_turn", None),
    "a limit of the tools here": ([*done_here("web_search_call", "ws_1"), Finish(0, "pause_turn")], "pause_turn", None),
    "another word": ([HELLO, Finish(0, "other")], "end_turn", None),
}  # fmt: skip


@pytest.mark.parametrize("events, reason, sequence", ENDINGS.values(), ids=ENDINGS)
def test_reason_of_the_end(events, reason, sequence):
    assert ending_of(*events, stops=["END"], head={"window": 100}) == (reason, sequence)


def test_unknown_reason_is_reported():
    assert warnings_of(HELLO, Finish(0, "other")) == ["synthesised:stop_reason"]


def test_refusal_is_explained():
    assert whole_message(RefusalDelta(0, "n"), RefusalDelta(0, "o"), STOP)["stop_details"] == {
        "type": "refusal", "category": None, "explanation": "no",
    }  # fmt: skip
    assert whole_message(HELLO, FILTER)["stop_details"]["explanation"] is None


def test_message_that_only_filled_the_cache():
    message = whole_message(counted(10, 0), STOP, generates=False)
    assert (message["content"], message["stop_reason"]) == ([], "max_tokens")


def test_usage_has_cached_tokens_apart():
    usage = whole_message(STOP, Usage(100, 20, cached=60, reasoning=7, cache_written=30))["usage"]
    assert usage == {
        "input_tokens": 10, "cache_creation_input_tokens": 30, "cache_read_input_tokens": 60, "output_tokens": 20,
        "output_tokens_details": {"thinking_tokens": 7}, "service_tier": "standard",
    }  # fmt: skip
    assert whole_message(STOP, head={"input_tokens": 9})["usage"]["input_tokens"] == 9


def test_start_has_what_the_backend_counted():
    out = encoder_of()
    out.encode([Usage(100, 3, cached=60)])
    (start,) = events_of(out.start())
    usage = start["message"]["usage"]
    assert (usage["input_tokens"], usage["cache_read_input_tokens"], usage["output_tokens"]) == (40, 60, 0)


# Calls that were cut


def test_cut_call_is_a_prefix_in_both_forms():
    events = [*call('{"path": "/etc", "text": "ab', complete=False), LENGTH]
    assert content_of(*events) == [used(path="/etc")]
    assert encoded(events).count(b"input_json_delta") == 1
    assert warnings_of(*events) == []
    assert warnings_of(*events, stream=False) == ["repaired:tool_calls.function.arguments"]


READABLE = {
    "": {}, "{": {}, "[1": {}, "no": {}, '{"a": 1, "b': {"a": 1}, '{"a": 1} and': {"a": 1}, '{"a": 1, b: 2}': {"a": 1},
    '{"a": "x\ny"}': {"a": "x\ny"}, ' {"a": [1, {"b": "c"}, "d': {"a": [1, {"b": "c"}]}, "[" * 5000: {}, '{"a":' * 5000: {},
}  # fmt: skip


@pytest.mark.parametrize("text", READABLE)
def test_input_is_what_can_be_read(text):
    assert readable_object(text) == READABLE[text]


def test_input_is_read_as_clients_read_it():
    whole = json.dumps({"a": 'x"y\\z', "n": [-1.5e3, None, True], "o": {"é": "😀"}})
    for end in range(1, len(whole) + 1):
        assert readable_object(whole[:end]) == read_input(whole[:end])


def test_input_keeps_its_numbers():
    assert b'"input":{"a":1.0,"b":123456789012345678901}' in encoded(
        [*call('{"a":1.0,"b":123456789012345678901}'), CALLED], stream=False
    )


def test_unreadable_input_is_streamed_as_it_came():
    events = [*call("{bad", complete=False), CALLED]
    assert checked(encoded(events))["content"][0]["input"] == {UNREAD: "{bad"}
    assert content_of(*events) == [used()]


# Around the content


def test_ping_fills_silence():
    events = events_of(encoded([KEEP_ALIVE, HELLO, KEEP_ALIVE, STOP]))
    assert [event["type"] for event in events[:4]] == [
        "message_start",
        "ping",
        "content_block_start",
        "content_block_delta",
    ]
    assert encoder_of(stream=False).keep_alive() == encoder_of(stream=False).start() == b""


def test_failure_ends_the_stream():
    end = checked(encoded([HELLO, BROKE]))
    assert end == {
        "error": {"type": "api_error", "message": "Upstream connection lost."},
        "content": [text_block("Hello")],
    }
    assert encoded([HELLO, BROKE], stream=False) == b""
    busy = ev.Failure(Problem(503, "M", "server_is_overloaded"))
    assert checked(encoded([busy]))["error"]["type"] == "overloaded_error"


def test_warnings_stand_before_the_last_event():
    ledger = Warnings()
    ledger.add("dropped", "a")
    *_, comment, last, _ = encoded([HELLO, STOP], ledger=ledger).decode().split("\n\n")
    assert (comment, last.split("\n")[0]) == (": gateway-warnings dropped:a", "event: message_stop")


def test_encoder_handles_every_event():
    assert set(ev.Event.__args__) == set(MessageBuilder._arms)


def test_nothing_is_stored():
    assert encoder_of().stored_object() is encoder_of(stream=False).stored_object() is None


# Any events, in any pieces


def legal(events):
    """Return the events with calls that say of themselves what the pipeline says of them."""
    arguments, legal = "", []
    for event in events:
        if type(event) is ToolCallStart:
            arguments = ""
        elif type(event) is ToolArgsDelta:
            arguments += event.json
        elif type(event) is ToolCallEnd:
            whole = event.complete and is_object(arguments or "{}")
            legal.append(replace(event, complete=whole))
            continue
        legal.append(event)
    return legal


def is_object(text):
    try:
        return isinstance(json.loads(text), dict)
    except ValueError:
        return False


@settings(max_examples=examples(400), deadline=None)
@given(events=answers().map(legal), shown=st.booleans())
def test_stream_of_any_events_folds_into_the_whole(events, shown):
    message = checked(encoded(events, shown=shown))
    whole = encoded(events, stream=False, shown=shown)
    if BROKE in events:
        assert whole == b""
    else:
        check_same(message, checked_whole(whole))


@settings(max_examples=examples(100), deadline=None)
@given(events=answers().map(legal))
def test_message_is_the_same_in_any_pieces(events):
    whole = partial(encoded, stream=False)
    assert (
        whole([one for event in events for one in parts(event)])
        == whole(merge_without_keep_alives(events))
        == whole(events)
    )


def parts(event):
    """Return the event in two pieces."""
    name = {TextDelta: "text", RefusalDelta: "text", ToolArgsDelta: "json"}.get(type(event))
    if not name:
        return [event]
    value = getattr(event, name)
    middle = len(value) // 2
    return [replace(event, **{name: value[:middle]}), replace(event, **{name: value[middle:]})]


def merge_without_keep_alives(events):
    return merge([event for event in events if event is not KEEP_ALIVE])


RUNS = [
    [TextDelta(0, "a"), TextDelta(0, ""), TextDelta(0, "b")],
    [TextDelta(0, "\n"), TextDelta(0, " "), TextDelta(0, "b")],
    [ReasoningDelta(0, "a"), ReasoningDelta(0, "b")],
]


@pytest.mark.parametrize("run", RUNS)
def test_events_may_be_taken_together(run):
    together, apart = encoder_of(), encoder_of()
    assert together.encode(run) == b"".join([apart.encode([event]) for event in run])
    assert together.close(stored=False) == apart.close(stored=False)


BYTES = b"".join([
    chunk(role="assistant", content=""), chunk(reasoning_content="Let me "), chunk(reasoning_content="see."),
    chunk(content="\n\nI look "), chunk(content='it up.\n<tool_call>\n{"name": "f", "argu'),
    chunk(content='ments": {"a": "Os'), chunk(content='lo"}}\n</tool_call>'), chunk(finish="stop"),
    sse({"choices": [], "usage": {"prompt_tokens": 10, "completion_tokens": 5}}), b"data: [DONE]\n\n",
])  # fmt: skip


def message_of(pieces):
    """Return the message for the bytes of a backend, by way of the decoder and the parser of a format."""
    up, out = upstream(), encoder_of()
    data = out.start()
    for piece in pieces:
        data += b"".join([out.encode([event]) for event in up.feed(piece)])
    data += b"".join([out.encode([event]) for event in up.close()])
    return checked(data + out.close(stored=False))


@settings(max_examples=examples(100), deadline=None)
@given(data=st.data())
def test_message_is_the_same_for_any_cut_of_the_bytes(data):
    message = message_of(cut(data, BYTES))
    assert message == message_of([BYTES])
    assert [block["type"] for block in message["content"]] == ["thinking", "text", "tool_use"]
    assert message["content"][2]["input"] == {"a": "Oslo"}
    assert message["stop_reason"] == "tool_use"


@pytest.mark.parametrize("size", [1, 7, 1000])
def test_message_is_the_same_for_pieces_of_any_size(size):
    pieces = [BYTES[at : at + size] for at in range(0, len(BYTES), size)]
    assert message_of(pieces) == message_of([BYTES])
