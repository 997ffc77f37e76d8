"""Test turns that bring no answer, by pure code: which turns are empty, and how the response continues after one."""

import json

import pytest

from gateway.api import chat
from gateway.errors import CANCELLED, Problem
from gateway.events import BuiltinItem, Raw, ReasoningDelta, RefusalDelta, TextDelta
from gateway.pipeline.empty_round import EmptyRoundPolicy, MaybeEmptySource
from gateway.pipeline.pipeline import Pipeline, SendBytes, StartCall, StoreResponse
from gateway.request import Request, Tool
from gateway.transforms.output_validation import FailedOutput
from gateway.warnings import Warnings
from support.pipeline import DONE, call, chunk, parser_settings, payloads, singly, sse, upstream
from support.responses import new_encoder
from support.responses_events import checked, checked_whole
from support.turns import chat_params

TOOL = Tool("f", {"name": "f", "parameters": {}})
REQUEST = Request(model="m", messages=({"role": "user", "content": "q"},), tools=(TOOL,), fresh=True)
USAGE = sse({"choices": [], "usage": {"prompt_tokens": 3, "completion_tokens": 4}})
LOST = Problem(502, "Lost.", "upstream_lost")


def streamed(*frames, finish="stop"):
    return b"".join([*frames, chunk(finish), USAGE, DONE])


THOUGHT = streamed(chunk(reasoning_content="I should call f."))
ANSWER = streamed(chunk(reasoning_content=" Now."), chunk(content="It is "), chunk(content="sunny."))
CALL = streamed(chunk(tool_calls=[call(0, "c0", "f", "{}")]), finish="tool_calls")


class Rounds:
    """Drive a turn over scripted rounds; a Problem as the last piece of a round breaks it off."""

    def __init__(self, encoder, ledger, *, policy="retry", prefills=False, format="auto", limit=8 << 20):
        self.ledger, self.requests = ledger, [REQUEST]
        self._policy, self._prefills, self._format, self._limit = policy, prefills, format, limit
        self._before = None
        self.turn = Pipeline(REQUEST, self._open, encoder, next_request=self._next_request)

    def _open(self, request):
        retries = self._policy == "retry" and not self._before
        self._empty = EmptyRoundPolicy(
            request, self.ledger, self._before, retries=retries, prefills=self._prefills, limit=self._limit
        )
        return MaybeEmptySource(
            upstream(parser_settings(self._format, tools={"f": {}}, ledger=self.ledger)), self._empty
        )

    def _next_request(self):
        self._before = self._empty.failed
        if self._before:
            self.requests.append(self._empty.retry_request())
        return self._before and self.requests[-1]

    def run(self, *rounds):
        """Return all that the client gets; each round is a list of pieces."""
        self.turn.start()
        actions, sent = [], b""
        for pieces in rounds:
            assert not actions or isinstance(actions[-1], StartCall)
            self.turn.set_content_type("text/event-stream")
            *first, last = pieces
            sent += b"".join(map(self.turn.feed, first))
            if isinstance(last, bytes):
                sent += self.turn.feed(last)
                actions = self.turn.close()
            else:
                actions = self.turn.fail(last)
            sent += b"".join(action.data for action in actions if isinstance(action, SendBytes))
        if isinstance(actions[-1], StoreResponse):
            sent += self.turn.end_after_storing(stored=True)[0].data
        assert not isinstance(actions[-1], StartCall)
        return sent


def chat_response(*rounds, stream=False, **options):
    """Return the site, and the chat completion as a client has it."""
    ledger = Warnings()
    encoder = chat.chat_encoder(
        chat.CompletionHead("c", 7, "m"),
        chat_params(stream=stream, stream_options={"include_usage": True} if stream else None),
        ledger,
        str,
    )
    site = Rounds(encoder, ledger, **options)
    return site, site.run(*rounds)


def brief(*rounds, stream=False, **options):
    """Return reasoning, text, names of calls, finish reason, tokens and warnings of a chat completion."""
    site, sent = chat_response(*rounds, stream=stream, **options)
    if stream:
        choices = [choice for frame in payloads(sent) for choice in frame.get("choices", ())]
        deltas, reason = [choice["delta"] for choice in choices], choices[-1]["finish_reason"]
        tokens = payloads(sent)[-1]["usage"]["total_tokens"]
    else:
        whole = json.loads(sent)
        (choice,) = whole["choices"]
        deltas, reason, tokens = [choice["message"]], choice["finish_reason"], whole["usage"]["total_tokens"]
    texts = ("".join(delta.get(field) or "" for delta in deltas) for field in ("reasoning_content", "content"))
    calls = [made["function"]["name"] for delta in deltas for made in delta.get("tool_calls") or () if made.get("id")]
    codes = [entry for entry in site.ledger.entries() if "empty" in entry]
    return (*texts, calls, reason, tokens, codes)


HELPED, USELESS = ["emulated:empty"], ["unenforced:empty"]
EMPTY = {
    "reasoning": ("auto", THOUGHT, "I should call f."),
    "nothing": ("auto", streamed(), ""),
    "white space": ("native", streamed(chunk(reasoning_content="So"), chunk(content="\n\n"), chunk(content=" ")), "So"),
    "reasoning in the text": ("hermes_json", streamed(chunk(content="<think>So</think>\n\n")), "So"),
    "reasoning without its end": ("qwen_xml", streamed(chunk(content="<think>So")), "So"),
    "an empty call": ("hermes_json", streamed(chunk(content="<tool_call>\n</tool_call>")), ""),
    "an empty call by auto": ("auto", streamed(chunk(content="<think>So</think>\n<tool_call></tool_call>")), "So"),
    "an empty object in a call": ("auto", streamed(chunk(content="<tool_call>\n{}\n</tool_call>\n")), ""),
    "an empty list in a call": ("native", streamed(chunk(content="<tool_calls>[ ]</tool_calls>")), ""),
    "an opening tag": ("glm47_xml", streamed(chunk(reasoning_content="So"), chunk(content="<tool_call>")), "So"),
    "an empty section": (
        "kimi_k2", streamed(chunk(content="<|tool_calls_section_begin|><|tool_calls_section_end|>")), "",
    ),
    "Mistral's tag": ("native", streamed(chunk(content="[TOOL_CALLS]")), ""),
    "an empty call that the server left": ("native", streamed(chunk(content="<function_calls>\n</function_calls>")), ""),
}  # fmt: skip


@pytest.mark.parametrize("stream", [True, False], ids=["stream", "whole"])
@pytest.mark.parametrize("case", EMPTY)
def test_empty_round_continues_in_a_further_round_under_any_cut(case, stream):
    format, data, thought = EMPTY[case]
    options = {"format": format, "stream": stream}
    wanted = (thought + " Now.", "It is sunny.", [], "stop", 14, HELPED)
    assert brief([data], [ANSWER], **options) == wanted
    assert brief(singly(data), singly(ANSWER), **options) == wanted
    for at in range(1, len(data), 7):
        assert brief([data[:at], data[at:]], [ANSWER], **options) == wanted


@pytest.mark.parametrize("stream", [True, False], ids=["stream", "whole"])
@pytest.mark.parametrize("case", EMPTY)
def test_empty_round_twice_ends_as_the_first(case, stream):
    format, data, thought = EMPTY[case]
    again, text, calls, reason, tokens, codes = brief([data], singly(data), format=format, stream=stream)
    _, alone, *_ = brief([data], format=format, stream=stream, policy="warn")
    assert (again, text.strip(), codes) == (thought * 2, alone.strip(), USELESS)
    assert (calls, reason, tokens) == ([], "stop", 14)


@pytest.mark.parametrize("case", EMPTY)
def test_empty_round_is_passed_on_with_a_warning_if_the_policy_is_to_warn(case):
    format, data, thought = EMPTY[case]
    assert brief([data], format=format, policy="warn")[-1] == USELESS
    assert brief(singly(data), format=format, policy="warn", stream=True)[0] == thought


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (streamed(chunk(content="<table><tr>")), "<table><tr>"),
        (streamed(chunk(content="[1, 2]")), "[1, 2]"),
        (streamed(chunk(content="{}")), "{}"),
        (streamed(chunk(content="\n<tool"), chunk(content="box>")), "\n<toolbox>"),
        (streamed(chunk(content="<tool_call>{}</tool_call> is empty.")), "<tool_call>{}</tool_call> is empty."),
        (streamed(chunk(content="<call " + "x" * 300)), "<call " + "x" * 300),
        (streamed(chunk(content="<tool_call>" * 50)), "<tool_call>" * 50),
        (streamed(chunk(content="<")), "<"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("stream", [True, False], ids=["stream", "whole"])
def test_text_is_passed_on_whole_even_if_it_begins_as_an_empty_call(data, text, stream):
    for pieces in ([data], singly(data)):
        assert brief(pieces, format="native", stream=stream)[1:] == (text, [], "stop", 7, [])


@pytest.mark.parametrize(
    "data",
    [CALL, streamed(chunk(reasoning_content="So"), chunk(content="\n"), chunk(tool_calls=[call(0, "c", "f", "{}")]))],
)
def test_turn_with_a_call_is_not_empty(data):
    for pieces in ([data], singly(data)):
        assert brief(pieces)[2:] == (["f"], "tool_calls", 7, [])


@pytest.mark.parametrize("finish", ["length", "content_filter"])
def test_turn_that_was_cut_is_not_empty(finish):
    data = streamed(chunk(content="\n"), chunk(reasoning_content="So"), finish=finish)
    assert brief([data], format="native") == ("So", "\n", [], finish, 7, [])


@pytest.mark.parametrize("delta", [{"refusal": "No."}, {"audio": {"id": "audio_1", "data": "UklGRg=="}}])
def test_refusal_or_audio_is_an_answer(delta):
    assert brief([streamed(chunk(**delta))])[-1] == []


@pytest.mark.parametrize("stream", [True, False], ids=["stream", "whole"])
def test_retry_may_bring_a_call(stream):
    assert brief([THOUGHT], [CALL], stream=stream) == ("I should call f.", "", ["f"], "tool_calls", 14, HELPED)


FAILURES = {
    "at once": ([LOST], "", 7),
    "in its reasoning": ([chunk(reasoning_content="Or"), LOST], "Or", 7),
    "with an error": ([sse({"error": {"message": "boom", "code": 503}})], "", 7),
    "at a limit": ([streamed(chunk(reasoning_content="Or"), finish="length")], "Or", 14),
}


@pytest.mark.parametrize("stream", [True, False], ids=["stream", "whole"])
@pytest.mark.parametrize("case", FAILURES)
def test_retry_that_fails_ends_as_the_first_turn(case, stream):
    pieces, more, tokens = FAILURES[case]
    wanted = ("I should call f." + more, "", [], "stop", tokens, USELESS)
    assert brief([THOUGHT], pieces, stream=stream) == wanted


def test_retry_that_fails_at_once_counts_nothing():
    for pieces, spent in (([LOST], 7), ([chunk(reasoning_content="Or"), LOST], 18)):
        site, _ = chat_response([THOUGHT], pieces)
        used = site.turn.usage
        assert used.prompt + used.completion == spent


def test_retry_that_fails_in_its_text_is_a_failure():
    _, sent = chat_response([THOUGHT], [chunk(content="It"), LOST], stream=True)
    assert payloads(sent)[-1]["error"]["code"] == "upstream_lost"


def test_first_turn_that_fails_is_a_failure():
    site, sent = chat_response([chunk(content="\n"), LOST], stream=True, format="native")
    assert payloads(sent)[-1]["error"]["code"] == "upstream_lost" and site.ledger.entries() == []


def test_cancellation_of_a_retry_is_a_failure():
    _, sent = chat_response([THOUGHT], [chunk(reasoning_content="Or"), CANCELLED], stream=True)
    assert payloads(sent)[-1]["error"]["code"] == "cancelled"


@pytest.mark.parametrize("stream", [True, False], ids=["stream", "whole"])
def test_response_of_two_rounds_has_the_items_of_one(stream):
    ledger = Warnings()
    site = Rounds(new_encoder(stream, ledger=ledger, stored=True), ledger)
    sent = site.run(singly(THOUGHT), singly(ANSWER))
    response = checked(sent) if stream else checked_whole(sent)
    thought, message = response["output"]
    assert thought["summary"] == [{"type": "summary_text", "text": "I should call f. Now."}]
    assert message["content"][0]["text"] == "It is sunny." and response["usage"]["total_tokens"] == 14


def test_promise_that_an_empty_round_broke_is_not_reported_if_the_retry_helped():
    for answer, entries in ((ANSWER, ["emulated:empty"]), (THOUGHT, ["unenforced:empty", "unenforced:tool_choice"])):
        ledger = Warnings()
        first = EmptyRoundPolicy(REQUEST, ledger, None, retries=True, prefills=False, limit=9)
        ledger.add("unenforced", "tool_choice")
        MaybeEmptySource(upstream(parser_settings(ledger=Warnings())), first).feed(THOUGHT)
        assert first.failed and ledger.entries() == []
        second = EmptyRoundPolicy(REQUEST, ledger, first.failed, retries=False, prefills=False, limit=9)
        MaybeEmptySource(upstream(parser_settings(ledger=Warnings())), second).feed(answer)
        assert ledger.entries() == entries


# The request for the retry


def retry_of(data, **options):
    site, _ = chat_response([data], [ANSWER], **options)
    return site.requests[-1]


def test_retry_is_the_same_request_if_the_backend_cannot_continue_reasoning():
    assert retry_of(THOUGHT) == REQUEST


def test_retry_goes_on_with_the_reasoning_if_the_backend_can():
    request = retry_of(THOUGHT, prefills=True)
    begun = {"role": "assistant", "content": "", "reasoning_content": "I should call f."}
    assert request.messages == (*REQUEST.messages, begun) and not request.fresh


@pytest.mark.parametrize(("data", "limit"), [(streamed(), 99), (THOUGHT, 5)], ids=["no reasoning", "too much"])
def test_retry_without_reasoning_to_continue_is_the_same_request(data, limit):
    assert retry_of(data, prefills=True, limit=limit) == REQUEST


def test_retry_of_a_continued_message_is_the_same_request():
    begun = Request(model="m", messages=({"role": "assistant", "content": "It"},), tools=(TOOL,))
    policy = EmptyRoundPolicy(begun, Warnings(), None, retries=True, prefills=True, limit=99)
    MaybeEmptySource(upstream(parser_settings()), policy).feed(THOUGHT)
    assert policy.failed and policy.retry_request() == begun


# Chunks that come alone


def test_empty_round_reads_a_chunk_alone_as_among_others():
    reads = [chunk(reasoning_content=word) for word in ("So", " it", " is", " so")]
    reads += [chunk(content=text) for text in ("\n", "\n", "a", "b", "c", "d")]
    alone = []
    for known in (reads, [b"".join(reads)]):
        policy = EmptyRoundPolicy(REQUEST, Warnings(), None, retries=True, prefills=True, limit=99)
        source, passed = MaybeEmptySource(upstream(parser_settings("native")), policy), []
        for data in known:
            read = source.single_chunk_decoder
            events = read(data) if read else None
            alone.append(events is not None)
            passed += source.feed(data) if events is None else events
        texts = ["".join(getattr(event, "text", "") for event in passed if type(event) is kind)
                 for kind in (ReasoningDelta, TextDelta)]  # fmt: skip
        assert texts == ["So it is so", "\n\nabcd"] and policy.settled
    assert sum(alone) > 2


def test_items_that_the_gateway_adds_are_no_answer():
    policy = EmptyRoundPolicy(REQUEST, Warnings(), FailedOutput(), retries=False, prefills=False, limit=9)
    item = BuiltinItem(0, Raw(b"{}"))
    source = upstream(parser_settings())
    assert [*policy.feed(item, source)] == [item] and not policy.settled
    assert [*policy.feed(RefusalDelta(0, "No."), source)] and policy.settled
