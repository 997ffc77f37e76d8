"""Test hosted tools without a network: the client's events in their order, and the requests to the model."""

import json
from itertools import count

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from gateway.api import chat
from gateway.builtin_tools import (
    BuiltinToolResult,
    HiddenToolLoop,
    ToolLoop,
    ToolLoopLimits,
    ToolRoundSource,
    with_builtin_tools,
)
from gateway.builtin_tools import mcp as protocol
from gateway.errors import Problem
from gateway.events import BuiltinItemEnd, Usage
from gateway.pipeline.pipeline import Pipeline, RoundFailed, SendBytes, StartCall, StoreResponse
from gateway.request import ApprovedToolCall, Request, Tool, ToolName
from gateway.transforms import lower_request
from gateway.warnings import Warnings
from support.pipeline import DONE, call, chunk, cut, parser_settings, payloads, sse, upstream
from support.responses import new_encoder
from support.responses_events import checked, checked_whole
from support.sampling import examples

SCHEMA = {"type": "object", "properties": {"q": {"type": "string"}}}
LISTED = [{"name": name, "input_schema": SCHEMA, "annotations": None, "description": None} for name in ("find", "drop")]
NEVER = {"type": "mcp", "server_label": "crm", "require_approval": "never"}
CLIENTS = Tool("theirs", {"name": "theirs", "parameters": SCHEMA})
REQUEST = Request(model="m", messages=({"role": "user", "content": "q"},), tools=(CLIENTS,), stream=True)
USAGE = sse({"choices": [], "usage": {"prompt_tokens": 3, "completion_tokens": 4}})


def hosted_tools(definition=NEVER):
    server = protocol.McpServerDefinition(definition)
    return [server.ours(tool) for tool in server.tools(LISTED)]


FIND, DROP, THEIRS = (("crm__find", '{"q":"a"}'), ("crm__drop", "{}"), ("theirs", '{"q":"t"}'))


def chunks_with_calls(*made, finish="tool_calls", text=None, thought=None):
    """Return a model's stream with these tool calls, each a name and its arguments."""
    frames = [chunk(reasoning_content=thought)] if thought else []
    frames += [chunk(content=text)] if text else []
    for place, (name, arguments) in enumerate(made):
        half = len(arguments) // 2
        frames += [chunk(tool_calls=[call(place, f"c{place}", name, arguments[:half])])]
        frames += [chunk(tool_calls=[call(place, None, None, arguments[half:])])]
    return b"".join([*frames, chunk(finish), USAGE, DONE])


HELLO = chunk(content="Hello.") + chunk("stop") + USAGE + DONE


class PureSite:
    """Connect a client and a scripted model by pure code alone; `rounds` are the model's streams.

    tools: the output of each tool; order: the order in which tools end; pieces: how to cut the model's bytes.
    """

    def __init__(
        self,
        *rounds,
        request=REQUEST,
        tools=None,
        approved=(),
        limits=(64, 16),
        loop=ToolLoop,
        first_events=(),
        **options,
    ):
        self.ledger, self.ran, self.requests, ids = Warnings(), [], [], count(1)
        self._rounds, self._tools, self._pieces = (
            iter(rounds),
            tools or {},
            options.get("pieces", lambda whole: [whole]),
        )
        offer = hosted_tools(options.get("definition", NEVER))
        self.loop = loop(offer, ToolLoopLimits(*limits), lambda prefix: f"{prefix}{next(ids)}", first_events, approved)
        self._request = with_builtin_tools(request, [one.tool for one in offer], self.ledger)
        if "encoder" in options:
            encoder = options["encoder"](self._request, self.ledger)
        else:
            encoder = new_encoder(request.stream, ledger=self.ledger, stored=True)
        self._order = options.get("order", lambda due: due)
        self.turn = Pipeline(self._request, self._open, encoder, next_request=self._next_request)
        self.sent = b""

    def _open(self, _):
        if self.loop.running:
            return ToolRoundSource(self.loop)
        self.loop.begin()
        self.requests.append(self._request)
        lowered, filters = lower_request(self._request, self.ledger)
        schemas = {tool.name: tool.definition.get("parameters") or {} for tool in lowered.callable_tools}
        return upstream(parser_settings("native", tools=schemas, ledger=self.ledger), filters=[*filters, self.loop])

    def _next_request(self):
        return self._request if self.loop.running or self.loop.needs_another_round else None

    def run(self):
        """Return all bytes that the client gets."""
        self.turn.start()
        goes_on = True
        while goes_on:
            actions = self._between() if self.loop.running else self._model()
            goes_on = any(isinstance(action, StartCall) for action in actions)
        if any(isinstance(action, StoreResponse) for action in actions):
            self._take(self.turn.end_after_storing(stored=True))
        return self.sent

    def _model(self):
        self.turn.set_content_type("text/event-stream")
        for piece in self._pieces(next(self._rounds)):
            self.sent += self.turn.feed(piece)
        return self._take(self.turn.close())

    def _between(self):
        self.sent += self.turn.feed(b"[]")
        for run in self._order(self.loop.pending_runs):
            self.ran.append((run.ours.tool.name, run.arguments))
            output = self._tools.get(run.ours.tool.name, f"{run.ours.tool.name} of {run.arguments}")
            result = {"id": run.id, "content": output, "item": {"output": output}}
            self.sent += self.turn.feed(json.dumps([result]).encode())
        if self.loop.needs_another_round:
            self._request = self.loop.next_request(self._request)
        return self._take(self.turn.close())

    def _take(self, actions):
        self.sent += b"".join(action.data for action in actions if isinstance(action, SendBytes))
        return actions


def run_to_response(*rounds, **options):
    site = PureSite(*rounds, **options)
    return site, checked(site.run())


def items_in_brief(response):
    """Return type and main content of each output item."""
    texts = {"message": lambda item: item["content"][0]["text"], "mcp_call": lambda item: item["output"]}
    return [(item["type"], texts.get(item["type"], lambda item: item.get("name"))(item)) for item in response["output"]]


def roles(request):
    return [message["role"] for message in request.messages]


def test_hosted_call_is_run_and_the_model_answers():
    site, response = run_to_response(chunks_with_calls(FIND, text="Let me see.", thought="hm"), HELLO)
    assert items_in_brief(response) == [
        ("reasoning", None), ("message", "Let me see."), ("mcp_call", 'find of {"q":"a"}'), ("message", "Hello."),
    ]  # fmt: skip
    made = response["output"][2]
    assert (made["arguments"], made["status"], made["server_label"]) == ('{"q":"a"}', "completed", "crm")
    assert response["status"] == "completed" and response["usage"]["total_tokens"] == 14
    message, output = site.requests[1].messages[1:]
    assert message == {
        "role": "assistant", "content": "Let me see.", "reasoning_content": "hm",
        "tool_calls": [
            {"id": "c0", "type": "function", "function": {"name": "find", "namespace": "crm", "arguments": '{"q":"a"}'}},
        ],
    }  # fmt: skip
    assert output == {"role": "tool", "tool_call_id": "c0", "content": 'find of {"q":"a"}'}


def test_hosted_call_round_sends_back_signed_reasoning():
    block = {"type": "thinking", "thinking": "hm", "signature": "s"}
    thought = chunk(reasoning_content="hm", thinking_blocks=[block])
    site, _ = run_to_response(thought + chunks_with_calls(FIND), HELLO)
    assert site.requests[1].messages[1]["thinking_blocks"] == [block]


@pytest.mark.parametrize("order", [lambda due: due, lambda due: due[::-1]], ids=["in order", "backwards"])
def test_hosted_calls_are_sent_in_order_whichever_ends_first(order):
    site, response = run_to_response(chunks_with_calls(FIND, DROP), HELLO, order=order)
    assert items_in_brief(response)[:2] == [("mcp_call", 'find of {"q":"a"}'), ("mcp_call", "drop of {}")]
    assert [message["tool_call_id"] for message in site.requests[1].messages[2:]] == ["c0", "c1"]


def test_hosted_call_item_ends_as_soon_as_it_can():
    site = PureSite(chunks_with_calls(FIND, DROP), HELLO)
    site.turn.start()
    site.turn.set_content_type("text/event-stream")
    site.turn.feed(chunks_with_calls(FIND, DROP))
    site.turn.close()
    assert [run.id for run in site.loop.pending_runs] == ["c0", "c1"]
    (ended, begun) = (site.loop.add_results([]), site.loop.feed(Usage(0, 0)))
    assert ended == [] and len(begun) == 1
    events = site.loop.add_results([BuiltinToolResult("c0", "x", {"output": "x"})])
    assert isinstance(events[0], BuiltinItemEnd) and len(events) == 4  # and all of the next item except its end
    assert isinstance(site.loop.add_results([BuiltinToolResult("c1", "y", {"output": "y"})])[-1], BuiltinItemEnd)


def test_client_tool_calls_are_passed_beside_hosted_calls():
    site, response = run_to_response(chunks_with_calls(THEIRS, FIND, THEIRS))
    assert [item["type"] for item in response["output"]] == ["function_call", "mcp_call", "function_call"]
    assert site.ran == [("find", '{"q":"a"}')] and response["status"] == "completed"


def test_hosted_calls_may_take_several_rounds():
    site, response = run_to_response(chunks_with_calls(FIND), chunks_with_calls(DROP), HELLO)
    assert [kind for kind, _ in items_in_brief(response)] == ["mcp_call", "mcp_call", "message"]
    assert roles(site.requests[2]) == ["user", "assistant", "tool", "assistant", "tool"]
    assert response["usage"]["total_tokens"] == 21


def test_tool_choice_is_forced_in_the_first_round_only():
    forced = Request(
        **{name: getattr(REQUEST, name) for name in ("model", "messages", "tools", "stream")}, tool_choice="required"
    )
    site, _ = run_to_response(chunks_with_calls(FIND), HELLO, request=forced)
    assert [request.tool_choice for request in site.requests] == ["required", None]


@pytest.mark.parametrize(("most", "limits"), [(100, [100, 96, 92]), (3, [3, 1, 1]), (None, [None] * 3)])
def test_max_tokens_is_shared_by_all_rounds(most, limits):
    site, _ = run_to_response(
        chunks_with_calls(FIND), chunks_with_calls(DROP), HELLO, request=replace(REQUEST, max_tokens=most)
    )
    assert [request.max_tokens for request in site.requests] == limits


@pytest.mark.parametrize("limits", [(1, 16), (64, 1)], ids=["calls", "rounds"])
def test_hosted_tools_are_not_offered_at_a_limit(limits):
    site, response = run_to_response(chunks_with_calls(FIND), HELLO, limits=limits)
    assert [len(request.callable_tools) for request in site.requests] == [3, 1]
    assert site.requests[1].callable_tools == (CLIENTS,) and len(items_in_brief(response)) == 2


def test_hosted_calls_beyond_the_limit_are_not_run():
    site, response = run_to_response(chunks_with_calls(FIND, DROP, text="Wait."), HELLO, limits=(1, 16))
    assert items_in_brief(response) == [("message", "Wait."), ("mcp_call", 'find of {"q":"a"}'), ("message", "Hello.")]
    assert site.ran == [("find", '{"q":"a"}')]
    assert "no more calls" in site.requests[1].messages[-1]["content"]


def test_texts_of_two_rounds_are_separated():
    _, response = run_to_response(chunks_with_calls(FIND, text="Wait."), HELLO, limits=(0, 16))
    assert items_in_brief(response) == [("message", "Wait.\n\nHello.")]
    _, response = run_to_response(chunks_with_calls(FIND), HELLO, limits=(0, 16))
    assert items_in_brief(response) == [("message", "Hello.")]


def test_hosted_calls_of_a_model_that_ignores_the_limit_are_dropped():
    site, response = run_to_response(chunks_with_calls(FIND), chunks_with_calls(DROP, text="Wait."), limits=(1, 16))
    assert items_in_brief(response) == [("mcp_call", 'find of {"q":"a"}'), ("message", "Wait.")] and len(site.ran) == 1


# Failed calls


def test_hosted_call_with_invalid_json_fails_for_client_and_model():
    site, response = run_to_response(chunks_with_calls(("crm__find", "[oops")), HELLO)
    made = response["output"][0]
    assert (made["status"], made["arguments"], made["output"]) == ("failed", "[oops", None) and not site.ran
    assert "not a JSON" in made["error"]["message"] and "not a JSON" in site.requests[1].messages[-1]["content"]


def test_hosted_calls_of_a_round_that_was_cut_are_not_run():
    site, response = run_to_response(chunks_with_calls(FIND, ("crm__drop", '{"q":'), finish="length"))
    assert [item["status"] for item in response["output"]] == ["failed", "incomplete"] and not site.ran
    assert response["status"] == "incomplete"


def test_hosted_calls_of_a_round_that_broke_are_sent_as_far_as_they_came():
    site = PureSite()
    site.turn.start()
    site.turn.set_content_type("text/event-stream")
    frames = chunks_with_calls(FIND, THEIRS)
    site.sent += site.turn.feed(frames[: frames.index(b'data: {"choices": [{"index": 0, "delta": {}')])
    site._take(site.turn.fail(Problem(502, "broke", "upstream_lost")))
    site._take(site.turn.end_after_storing(stored=True))
    response = checked(site.sent)
    assert [(item["type"], item["status"]) for item in response["output"]] == [
        ("mcp_call", "failed"), ("function_call", "completed"),
    ]  # fmt: skip


def test_hosted_call_that_broke_off_is_incomplete():
    site = PureSite()
    site.turn.start()
    site.turn.set_content_type("text/event-stream")
    site.sent += site.turn.feed(chunk(tool_calls=[call(0, "c0", "crm__find", '{"q":')]))
    site._take(site.turn.fail(Problem(502, "broke", "upstream_lost")))
    site._take(site.turn.end_after_storing(stored=True))
    (item,) = checked(site.sent)["output"]
    assert (item["status"], item["arguments"]) == ("incomplete", '{"q":')


def test_hosted_calls_fail_if_the_response_is_ended():
    site = PureSite(chunks_with_calls(FIND, DROP))
    site.turn.start()
    site._model()
    site._take(site.turn.end(Problem(503, "The gateway was stopped.", "server_is_overloaded")))
    site._take(site.turn.end_after_storing(stored=True))
    response = checked(site.sent)
    assert [item["status"] for item in response["output"]] == ["failed", "failed"] and response["status"] == "failed"


def test_hosted_round_can_be_retried_if_the_backend_fails_early():
    site = PureSite(chunks_with_calls(FIND))
    site.turn.start()
    site._model()
    site._between()
    assert isinstance(site.turn.fail(Problem(502, "broke"))[-1], RoundFailed)
    site.turn.start()
    site._rounds = iter([HELLO])
    site._model()
    site._take(site.turn.end_after_storing(stored=True))
    assert items_in_brief(checked(site.sent)) == [("mcp_call", 'find of {"q":"a"}'), ("message", "Hello.")]


# Approval

ALWAYS = {**NEVER, "require_approval": "always"}
YES = ApprovedToolCall("mcpr_1", ToolName("find", "crm"), '{"q":"a"}')
WAITING = (
    {"role": "user", "content": "q"},
    {"role": "assistant", "content": None, "tool_calls": []},
    {"role": "tool", "tool_call_id": "mcpr_1", "content": ""},
)


def test_approval_is_requested_for_a_hosted_call():
    site, response = run_to_response(
        chunks_with_calls(FIND, DROP, text="May I?"),
        definition={**NEVER, "require_approval": {"always": {"tool_names": ["drop"]}}},
    )
    assert [item["type"] for item in response["output"]] == ["message", "mcp_call", "mcp_approval_request"]
    request = response["output"][2]
    assert (request["name"], request["server_label"], request["arguments"]) == ("drop", "crm", "{}")
    assert site.ran == [("find", '{"q":"a"}')] and response["status"] == "completed"


def test_approval_runs_the_hosted_call_first():
    request = Request(model="m", messages=WAITING, stream=True)
    site, response = run_to_response(HELLO, request=request, approved=[YES], definition=ALWAYS)
    made = response["output"][0]
    assert (made["approval_request_id"], made["output"], made["arguments"]) == (
        "mcpr_1",
        'find of {"q":"a"}',
        '{"q":"a"}',
    )
    assert items_in_brief(response)[1] == ("message", "Hello.")
    assert site.requests[0].messages[2] == {"role": "tool", "tool_call_id": "mcpr_1", "content": 'find of {"q":"a"}'}


def test_approval_of_a_tool_that_is_gone_runs_nothing():
    gone = ApprovedToolCall("mcpr_1", ToolName("gone", "crm"), "{}")
    site, response = run_to_response(HELLO, request=Request(model="m", messages=WAITING, stream=True), approved=[gone])
    assert (
        items_in_brief(response) == [("message", "Hello.")]
        and "not available" in site.requests[0].messages[2]["content"]
    )


# Every cut, and both APIs


@settings(max_examples=examples(60), deadline=None)
@given(st.data())
def test_hosted_calls_are_the_same_under_any_cut(data):
    rounds = [
        chunks_with_calls(FIND, DROP, text="Wait. ", thought="hm"),
        chunks_with_calls(
            data.draw(st.sampled_from([THEIRS, FIND, DROP])), finish=data.draw(st.sampled_from(["stop", "length"]))
        ),
        HELLO,
    ]
    wanted = run_to_response(*rounds)[1]
    _, response = run_to_response(*rounds, pieces=lambda whole: cut(data, whole))
    assert response["output"] == wanted["output"]
    whole = PureSite(
        *rounds, request=Request(model="m", messages=REQUEST.messages, tools=REQUEST.tools), pieces=lambda w: [w]
    )
    assert checked_whole(whole.run())["output"] == wanted["output"]


def chat_encoder(request, ledger):
    body = {"model": "m", "messages": [{"role": "user", "content": "q"}], "stream": request.stream}
    return chat.chat_encoder(
        chat.CompletionHead("chatcmpl-1", 7, "m"), chat.parse_chat(json.dumps(body).encode()), ledger, lambda: "xx"
    )


def test_chat_does_not_show_hosted_calls():
    site = PureSite(
        chunks_with_calls(FIND, text="Wait."), chunks_with_calls(THEIRS), loop=HiddenToolLoop, encoder=chat_encoder
    )
    frames = payloads(site.run())
    deltas = [choice["delta"] for frame in frames for choice in frame["choices"]]
    assert "".join(delta.get("content") or "" for delta in deltas) == "Wait."
    (start, *_) = [delta["tool_calls"][0] for delta in deltas if "tool_calls" in delta]
    assert (start["index"], start["function"]["name"]) == (0, "theirs")
    whole = PureSite(
        chunks_with_calls(FIND, text="Wait."),
        HELLO,
        loop=HiddenToolLoop,
        encoder=chat_encoder,
        request=Request(model="m", messages=REQUEST.messages),
    )
    assert json.loads(whole.run())["choices"][0]["message"]["content"] == "Wait.\n\nHello."


def test_mcp_list_is_sent_with_the_first_output():
    first_events = protocol.list_events("mcpl_1", "crm", LISTED)
    _, response = run_to_response(HELLO, first_events=first_events)
    assert response["output"][0]["tools"] == LISTED and items_in_brief(response)[1] == ("message", "Hello.")
    _, response = run_to_response(HELLO, first_events=protocol.list_events("mcpl_1", "crm", [], "It is down."))
    assert (response["output"][0]["error"], response["output"][0]["tools"]) == ("It is down.", [])
    request = Request(model="m", messages=WAITING, stream=True)
    _, response = run_to_response(HELLO, request=request, first_events=first_events, approved=[YES])
    assert [item["type"] for item in response["output"]] == ["mcp_list_tools", "mcp_call", "message"]
    site = PureSite(request=request, first_events=first_events, approved=[YES])
    site.turn.start()
    site._take(site.turn.end(Problem(503, "Stopped.", "server_is_overloaded")))
    assert b"mcp_list_tools.completed" in site.sent


# Offered tools


@pytest.mark.parametrize(
    ("choice", "allowed", "wanted", "callable", "listed"),
    [
        (None, None, None, ["theirs", "find", "drop"], []),
        (ToolName("", "crm"), None, "required", ["find", "drop"], []),
        (ToolName("find", "crm"), None, ToolName("find", "crm"), ["theirs", "find", "drop"], []),
        (ToolName("gone", "crm"), None, None, ["theirs", "find", "drop"], ["unenforced:tool_choice"]),
        (ToolName("", "down"), None, None, [], ["unenforced:tool_choice"]),
        ("auto", frozenset([ToolName("", "crm"), ToolName("theirs")]), "auto", ["theirs", "find", "drop"], []),
        ("auto", frozenset([ToolName("find", "crm")]), "auto", ["find"], []),
    ],
)  # fmt: skip
def test_tool_choice_may_name_a_tool_that_is_found_later(choice, allowed, wanted, callable, listed):
    ledger = Warnings()
    request = Request(model="m", messages=(), tools=(CLIENTS,), tool_choice=choice, allowed=allowed)
    whole = with_builtin_tools(request, [one.tool for one in hosted_tools()], ledger)
    assert whole.tool_choice == wanted and [tool.name for tool in whole.callable_tools] == callable
    assert ledger.entries() == listed


def test_allowed_tools_of_the_client_stay_allowed_at_a_limit():
    request = Request(
        model="m",
        messages=REQUEST.messages,
        tools=(CLIENTS,),
        stream=True,
        allowed=frozenset([ToolName("theirs"), ToolName("", "crm")]),
    )
    site, _ = run_to_response(chunks_with_calls(FIND), HELLO, request=request, limits=(1, 1))
    assert site.requests[1].allowed == frozenset([ToolName("theirs")])
