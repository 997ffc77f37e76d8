"""Test that recorded responses of real servers lose no text and gain none on their way to the client."""

import json
import re
from collections import defaultdict

import pytest

from gateway.backends.openai.request_body import requested_extra_fields
from gateway.events import ExtraField, Finish, ReasoningDelta, TextDelta, ToolArgsDelta, ToolCallStart, Usage
from support.pipeline import grammatical, merge, payloads
from support.recorded_servers import CHAT, EXCHANGES, client_request, replay, responded
from support.responses_events import checked

CHATS = [name for name, exchange in EXCHANGES.items() if exchange.answers and exchange.path == CHAT]
STREAMS = [name for name in CHATS if EXCHANGES[name].streamed]
BODIES = [name for name in CHATS if not EXCHANGES[name].like]
TAGS = ("<think>", "</think>", "<tool_call>", "</tool_call>")
MARKS = (
    *TAGS, '{"name": "', '", "arguments": ', "}\n",
    "<function=", "<parameter=", "</parameter>", "</function>", ">\n",
)  # fmt: skip
THOUGHT = re.compile(r"<think>(.*?)(?:</think>|\Z)", re.DOTALL)
# The server cuts the reasoning off; the model continues it in the content and ends it with a tag.
THINKS_ON = "llamacpp/reasoning_budget_stream"
THOUGHTS, ANSWER = ("reasoning_content", "reasoning"), ("content",)
CALL = "</function>"  # the end of a tool call, which a server left in its reasoning


def chunks(name):
    """Return the chunks that the server sent, without a decoder of the gateway."""
    body = EXCHANGES[name].body
    return payloads(body) if EXCHANGES[name].streamed else [json.loads(body)]


def texts_of_server(name, *fields, calls=True):
    """Map each choice to the joined text of these fields and of tool calls, in the server's order."""
    choice_texts = defaultdict(str)
    for choice in (choice for chunk in chunks(name) for choice in chunk.get("choices", ())):
        message = choice.get("delta") or choice.get("message") or {}
        functions = [call["function"] for call in message.get("tool_calls") or () if calls]
        pieces = [message.get(field) for field in fields]
        pieces += [function.get(member) for function in functions for member in ("name", "arguments")]
        choice_texts[choice["index"]] += "".join(filter(None, pieces))
    return choice_texts


def events_of_choice(events, choice, *kinds):
    return [event for event in events if type(event) in kinds and event.choice == choice]


def texts(events, choice, kind):
    return "".join(event.text for event in events_of_choice(events, choice, kind))


def pieces(event, text):
    """Return the parts of an event that the server's text has to contain."""
    if type(event) is not ToolArgsDelta:
        return [event.name if type(event) is ToolCallStart else event.text]
    return [event.json] if event.json in text else [part for pair in json.loads(event.json).items() for part in pair]


def gaps(text, found):
    """Yield the texts between these pieces, each searched behind the piece before."""
    place = 0
    for piece in found:
        start = text.index(piece, place)
        yield text[place:start]
        place = start + len(piece)
    yield text[place:]


def without_marks(gap):
    for mark in MARKS:
        gap = gap.replace(mark, " ")
    return gap.strip()


def is_accounted_for(lost, outcome):
    """Return True for a surplus tool call, and for the beginning of a mark where the response was cut."""
    too_many = "dropped:tool_calls" in outcome.ledger and lost.startswith("get_weather{")
    cut = any(type(event) is Finish and event.reason == "length" for event in outcome.events)
    return too_many or (cut and any(mark.startswith(lost) for mark in MARKS))


@pytest.mark.parametrize("name", CHATS)
def test_recording_loses_no_text(name):
    outcome = replay(name)
    for choice, text in texts_of_server(name, *THOUGHTS, *ANSWER).items():
        came = events_of_choice(outcome.events, choice, ReasoningDelta, TextDelta, ToolCallStart, ToolArgsDelta)
        found = [piece for event in came for piece in pieces(event, text)]
        assert [
            lost for gap in gaps(text, found) if (lost := without_marks(gap)) and not is_accounted_for(lost, outcome)
        ] == []


@pytest.mark.parametrize("name", CHATS)
def test_recording_keeps_reasoning_and_text_apart(name):
    outcome = replay(name)
    opened = "<think>" if EXCHANGES[name].server.thought == "open" else ""
    content = {choice: opened + text for choice, text in texts_of_server(name, *ANSWER, calls=False).items()}
    for choice, apart in texts_of_server(name, *THOUGHTS, calls=False).items():
        thought = apart + "".join(THOUGHT.findall(content[choice]))
        shown = texts(outcome.events, choice, ReasoningDelta).strip()
        assert shown == thought.strip() or (CALL in thought and shown == thought.rpartition(CALL)[2].strip())
        tags = TAGS if EXCHANGES[name].request.get("tool_choice") != "none" else TAGS[:2]
        shown = [tag for tag in tags if tag in texts(outcome.events, choice, TextDelta)]
        assert shown == (["</think>"] if name == THINKS_ON else [])


@pytest.mark.parametrize("name", CHATS)
def test_recording_ends_each_choice_once_and_counts_usage(name):
    outcome = replay(name)
    choices = sorted(
        {event.choice for event in outcome.events if type(event) in (TextDelta, ReasoningDelta, ToolCallStart, Finish)}
    )
    assert choices == sorted(texts_of_server(name, *THOUGHTS, *ANSWER))
    ended = {grammatical([e for e in outcome.events if getattr(e, "choice", None) == choice]) for choice in choices}
    assert ended == {outcome.problem is None}
    counts = [event for event in outcome.events if type(event) is Usage]
    if outcome.problem is None:
        assert counts[-1].prompt and counts[-1].completion >= counts[-1].reasoning
        counted = any(chunk.get("usage") or chunk.get("timings") for chunk in chunks(name))
        assert ("estimated:usage" in outcome.ledger) is not counted


@pytest.mark.parametrize("name", [name for name in STREAMS if not EXCHANGES[name].like])
def test_recording_frames_of_each_choice_end_with_one_finish_reason(name):
    outcome = replay(name, stream=True)
    reasons = defaultdict(list)
    for choice in (choice for frame in payloads(outcome.data) for choice in frame.get("choices", ())):
        reasons[choice["index"]].append(choice["finish_reason"])
    for values in reasons.values():
        assert [reason is not None for reason in values] == [False] * (len(values) - 1) + [outcome.problem is None]


PARSED = [
    name
    for name in BODIES
    if EXCHANGES[name].server.thought == "closed"
    and "<" not in "".join(texts_of_server(name, *ANSWER, calls=False).values())
    and CALL not in "".join(texts_of_server(name, *THOUGHTS, calls=False).values())
]


@pytest.mark.parametrize("name", PARSED)
def test_recording_parsed_by_its_server_is_not_changed_by_a_format(name):
    read, unread = (
        merge(event for event in outcome.events if type(event) not in (Usage, ExtraField))
        for outcome in (replay(name), replay(name, format="native"))
    )
    assert read == unread


@pytest.mark.parametrize("name", BODIES)
def test_recording_means_the_same_in_responses(name):
    outcome = responded(name)
    response = checked(outcome.data, requested_extra_fields(client_request(name).request))
    item_texts = defaultdict(str)
    for item in response["output"]:
        parts = item.get("content") or item.get("summary") or []
        item_texts[item["type"]] += "".join(part["text"] for part in parts) + item.get("arguments", "")
    content = texts(outcome.events, 0, TextDelta)
    assert item_texts["message"] == (content if content.strip() else "")  # before a call, white space is no message
    assert item_texts["reasoning"] == texts(outcome.events, 0, ReasoningDelta)
    assert item_texts["function_call"] == "".join(
        event.json for event in events_of_choice(outcome.events, 0, ToolArgsDelta)
    )
    assert (response["error"] is None) is (outcome.problem is None)
