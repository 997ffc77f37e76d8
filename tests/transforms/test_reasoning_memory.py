"""Test reasoning memory: the backend gets back the reasoning that clients leave out, within one tenant."""

import asyncio
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sqlalchemy import select

from gateway.errors import Problem
from gateway.events import Failure, Finish, ReasoningDelta, TextDelta, ToolArgsDelta, ToolCallEnd, ToolCallStart, Usage
from gateway.request import Request
from gateway.store import reasoning_memory as kept
from gateway.store import tables
from gateway.transforms.reasoning_memory import ReasoningCapture, find_missing_reasoning, restore_reasoning
from gateway.warnings import Warnings
from support.app import bearer, gateway, listening, overheard
from support.conversations import assistant, user
from support.sse import events, payloads, text_of
from support.upstream import DONE, END, HANG, RESET, call, chunk, completion_body, head, stream, whole
from support.wait import now, until

HI = whole(completion_body("Hi"))
ON = {"responses": {"reasoning_memory": True}}
LOST = Problem(502, "Lost.", "upstream_lost")


def answer_events(thought="", text="", *ids, choice=0):
    """Return the events of a response."""
    event_list = [ReasoningDelta(choice, thought)] if thought else []
    event_list += [TextDelta(choice, letter) for letter in text]
    for number, id in enumerate(ids):
        event_list += [
            ToolCallStart(choice, number, id, "f"),
            ToolArgsDelta(choice, number, "{}"),
            ToolCallEnd(choice, number),
        ]
    return [*event_list, Finish(choice, "stop"), Usage(1, 1)]


def reasoning_kept(request, events):
    listener = ReasoningCapture(request)
    assert [one for event in events for one in listener.feed(event)] == events and list(listener.close()) == []
    return dict(listener.captured)


def reasoning_recalled(messages, found, **scope):
    """Return the reasoning that each message of the assistant gets back."""
    ledger, request = Warnings(), Request(model="m", messages=tuple(messages))
    after = restore_reasoning(request, find_missing_reasoning(messages, **scope), found, ledger)
    changed = after.messages != request.messages
    assert ledger.entries() == (["repaired:messages.reasoning_content"] if changed else [])
    return [message.get("reasoning_content") for message in after.messages if message["role"] == "assistant"]


# Keys of reasoning


@pytest.mark.parametrize(
    "sent_back",
    [
        assistant("Done,  as you asked.\n"),
        assistant("Done, as\n\nyou asked."),
        assistant([{"type": "text", "text": "Done, as "}, {"type": "text", "text": "you asked. "}]),
        assistant("Done, as you asked.", reasoning_content="", reasoning=None, reasoning_details=[]),
    ],
)
def test_reasoning_is_found_by_its_text_despite_other_white_space(sent_back):
    found = reasoning_kept([user("Do it.")], answer_events("Hm.", " Done, as you asked."))
    assert reasoning_recalled([user("Do it. "), sent_back, user("Thanks.")], found) == ["Hm."]


@pytest.mark.parametrize(
    "messages",
    [
        [user("Do it."), assistant("Not done.")],
        [user("Do that."), assistant("Done.")],
        [user("Do"), user("it."), user("Now."), assistant("Done.")],
        [assistant("Done."), user("Do it.")],
        [user("Do it."), assistant("Done.", "call_a8Xk2mPq")],
        [user("Do it."), {"role": "system", "content": "Done."}],
        [user("Do it."), assistant(None)],
    ],
)
def test_reasoning_is_not_found_for_another_message(messages):
    found = reasoning_kept([user("Do it.")], answer_events("Hm.", "Done."))
    assert not any(reasoning_recalled(messages, found))


def test_reasoning_is_found_by_a_random_tool_call_id_anywhere():
    found = reasoning_kept([user("Do it.")], answer_events("Hm.", "Let me see.", "call_a8Xk2mPq", "call_Zz81qLw0"))
    assert reasoning_recalled([user("A summary."), assistant(None, "call_a8Xk2mPq")], found) == ["Hm."]
    assert reasoning_recalled([assistant("Let me see.", "call_new00001", "call_Zz81qLw0")], found) == ["Hm."]


@pytest.mark.parametrize(
    "id", ["functions.f:0", "call_1", "7", "f-12", "call_get_weather", "functions.base64decode:0", "x1"]
)
def test_reasoning_is_found_by_a_plain_tool_call_id_in_its_conversation(id):
    found = reasoning_kept([user("Do it.")], answer_events("Hm.", "", id))
    assert reasoning_recalled([user("Do it."), assistant(None, id)], found) == ["Hm."]
    assert reasoning_recalled([user("Do that."), assistant(None, id)], found) == [None]


@pytest.mark.parametrize(
    "own",
    [
        {"reasoning_content": "Mine."},
        {"reasoning": "Mine."},
        {"reasoning_details": [{"type": "reasoning.text", "text": "Mine."}]},
        {"thinking_blocks": [{"type": "redacted_thinking", "data": "x"}]},
    ],
)
def test_reasoning_that_the_client_sends_is_not_replaced(own):
    message = assistant("Done.", **own)
    assert find_missing_reasoning([user("Do it."), message]) == []


def test_reasoning_of_each_choice_is_kept():
    events = [*answer_events("One.", "1", choice=1), *answer_events("None.", "0"), *answer_events("", "2", choice=2)]
    found = reasoning_kept([user("n?")], events)
    assert [reasoning_recalled([user("n?"), assistant(text)], found) for text in "012"] == [["None."], ["One."], [None]]


def test_reasoning_of_a_failed_response_is_kept():
    events = [ReasoningDelta(0, "H"), ReasoningDelta(0, "m."), TextDelta(0, "Do"), Failure(LOST)]
    found = reasoning_kept([user("q")], events)
    assert reasoning_recalled([user("q"), assistant("Do")], found) == ["Hm."]


def test_reasoning_of_a_failed_attempt_is_not_joined_to_the_retry():
    events = [ReasoningDelta(0, "One."), TextDelta(0, "x"), Failure(LOST), *answer_events("Two.", "y")]
    found = reasoning_kept([user("q")], events)
    assert [reasoning_recalled([user("q"), assistant(text)], found) for text in ("x", "y", "xy")] == [
        ["One."],
        ["Two."],
        [None],
    ]


@pytest.mark.parametrize(
    "events", [answer_events("Hm."), answer_events("Hm.", " \n"), answer_events("", "Hi"), [Finish(0, "stop")]]
)
def test_reasoning_memory_keeps_nothing_without_reasoning_and_a_message(events):
    assert reasoning_kept([user("q")], events) == {}


def test_reasoning_of_earlier_turns_is_left_out_with_current_turn():
    first, second = [user("a")], [user("a"), assistant("x"), user("b")]
    found = reasoning_kept(first, answer_events("One.", "x")) | reasoning_kept(
        second, answer_events("Two.", "", "call_a8Xk2mPq")
    )
    messages = [*second, assistant(None, "call_a8Xk2mPq"), {"role": "tool", "tool_call_id": "c", "content": ""}]
    assert reasoning_recalled(messages, found) == ["One.", "Two."]
    assert reasoning_recalled(messages, found, all_turns=False) == [None, "Two."]


_WORDS = st.text("ab \n", min_size=1).filter(str.strip)


@given(st.lists(st.tuples(_WORDS, _WORDS, st.booleans()), max_size=6))
def test_reasoning_is_found_for_every_turn_of_a_conversation(turns):
    messages, found = [], {}
    for place, (question, text, calls) in enumerate(turns):
        messages.append(user(question))
        ids = [f"functions.f:{place}"] if calls else []
        found |= reasoning_kept(messages, answer_events(f"thought {place}", text, *ids))
        messages.append(assistant(text, *ids))
    assert reasoning_recalled(messages, found) == [f"thought {place}" for place in range(len(turns))]


# Agents that leave out reasoning

FORMATS = {"native": "native", "parsed here": "hermes_json"}
THOUGHT = "I have to look first."
FIND = {"type": "function", "name": "find", "parameters": {"type": "object", "properties": {}}}
OFFERED = {  # the name for the model → the tool, and the type of its call
    "find": (FIND, "function_call"),
    "edit": ({"type": "custom", "name": "edit"}, "custom_tool_call"),
    "shell": ({"type": "shell"}, "shell_call"),
    "crm__find": ({"type": "namespace", "name": "crm", "description": "", "tools": [FIND]}, "function_call"),
}
ARGUMENTS = {"edit": '{"input": "x"}', "shell": '{"commands": ["ls"]}'}


def answer_with_call(name, format, streamed):
    """Return a model's response with reasoning and a tool call, as text or as parsed by its server."""
    arguments = ARGUMENTS.get(name, "{}")
    if format == "native":
        calls = call(name, arguments, id="chatcmpl-tool-8f0c")
        message = {"content": None, "reasoning_content": THOUGHT, "tool_calls": calls}
    else:
        call_text = f'{{"name": "{name}", "arguments": {arguments}}}'
        message = {"content": f"<think>{THOUGHT}</think><tool_call>{call_text}</tool_call>"}
    return stream(chunk(**message), chunk(finish="stop")) if streamed else whole(completion_body(**message))


def answer_with_reasoning(text, streamed=False):
    message = {"content": text, "reasoning_content": THOUGHT}
    return stream(chunk(**message), chunk(finish="stop")) if streamed else whole(completion_body(**message))


def reasoning_sent(site):
    """Return the reasoning of each assistant message in the last upstream request."""
    return [
        message.get("reasoning_content") for message in site.upstream_body["messages"] if message["role"] == "assistant"
    ]


everywhere = pytest.mark.parametrize(("format", "streamed"), [(f, s) for f in FORMATS for s in (False, True)])


@everywhere
@pytest.mark.parametrize("kind", ["function", "custom"])
async def test_reasoning_memory_works_in_chat(format, streamed, kind):
    name, payload = ("find", {"arguments": "{}"}) if kind == "function" else ("edit", {"input": "x"})
    tools = [{"type": kind, kind: {"name": name}}]
    model = {"format": FORMATS[format]}
    async with gateway(answer_with_call(name, format, streamed), HI, model=model, **ON) as site:
        answered = await site.chat(messages=[user("q")], tools=tools, stream=streamed)
        if streamed:
            deltas = [one["choices"][0]["delta"] for one in payloads(answered.text)[:-1]]
            id = next(delta["tool_calls"][0]["id"] for delta in deltas if "tool_calls" in delta)
        else:
            id = answered.json()["choices"][0]["message"]["tool_calls"][0]["id"]
        past = {"role": "assistant", "tool_calls": [{"id": id, "type": kind, kind: {"name": name, **payload}}]}
        result = {"role": "tool", "tool_call_id": id, "content": "ok"}
        answered = await site.chat(messages=[user("q"), past, result], tools=tools)
        assert reasoning_sent(site) == [THOUGHT]
        assert "repaired:messages.reasoning_content" in answered.headers["x-gateway-warnings"]
        await site.chat(messages=[user("q"), past, result, {"role": "assistant", "content": "Hi"}, user("r")])
        assert reasoning_sent(site) == [THOUGHT, None]


@everywhere
@pytest.mark.parametrize("name", OFFERED)
async def test_reasoning_memory_works_in_responses(format, streamed, name):
    tool, type = OFFERED[name]
    model = {"format": FORMATS[format]}
    async with gateway(answer_with_call(name, format, streamed), HI, model=model, **ON) as site:
        answered = await site.respond(tools=[tool], stream=streamed, store=False)
        response = events(answered.text)[-1]["response"] if streamed else answered.json()
        thought, called = response["output"]
        assert (thought["type"], called["type"]) == ("reasoning", type)
        output = {"type": f"{type}_output", "call_id": called["call_id"], "output": []}
        past = [user("Hello"), called, output if name == "shell" else {**output, "output": "ok"}]
        answered = await site.respond(input=past, tools=[tool])
        assert reasoning_sent(site) == [THOUGHT]
        assert "repaired:messages.reasoning_content" in answered.headers["x-gateway-warnings"]


@pytest.mark.parametrize("streamed", [False, True])
async def test_reasoning_memory_is_shared_between_the_apis(streamed):
    async with gateway(answer_with_reasoning("Let me see.", streamed), **ON) as site:
        await site.respond(input="q", stream=streamed, store=False)
        await site.chat(messages=[user("q"), assistant("Let me see. "), user("r")])
        assert reasoning_sent(site) == [THOUGHT]


async def test_reasoning_context_limits_what_is_recalled():
    past = [user("q"), {"role": "assistant", "content": "Let me see."}, user("r")]
    async with gateway(answer_with_reasoning("Let me see."), **ON) as site:
        await site.respond(input="q", store=False)
        for context, expected in (("auto", THOUGHT), ("all_turns", THOUGHT), ("current_turn", None)):
            await site.respond(input=past, store=False, reasoning={"context": context})
            assert reasoning_sent(site) == [expected]


async def test_reasoning_memory_is_off_by_default():
    async with gateway(answer_with_reasoning("Let me see.")) as site:
        await site.chat(messages=[user("q")])
        answered = await site.chat(messages=[user("q"), assistant("Let me see."), user("r")])
        assert reasoning_sent(site) == [None]
        assert "messages" not in answered.headers["x-gateway-warnings"]


async def test_reasoning_memory_is_not_shared_between_tenants():
    ann, bob = (bearer(f"{name}-{'k' * 20}") for name in ("ann", "bob"))
    keys = {"keys": [{"name": name, "key": f"{name}-{'k' * 20}"} for name in ("ann", "bob")]}
    past = [user("q"), assistant("Let me see."), user("r")]
    async with gateway(answer_with_reasoning("Let me see."), auth=keys, **ON) as site:
        await site.chat(messages=[user("q")], headers=ann)
        await site.chat(messages=past, headers=bob)
        assert reasoning_sent(site) == [None]
        await site.chat(messages=past, headers=ann)
        assert reasoning_sent(site) == [THOUGHT]


@pytest.mark.parametrize("streamed", [False, True])
async def test_reasoning_is_stored_before_its_client_can_continue(streamed):
    """An agent continues while the finish reason is still on its way."""
    go_on = asyncio.Event()
    slow = [head(), chunk("Let me see.", reasoning_content=THOUGHT), go_on, chunk(finish="stop"), DONE, END]
    past = [user("q"), assistant("Let me see."), user("r")]
    async with gateway(slow if streamed else answer_with_reasoning("Let me see."), HI, **ON) as site:

        async def take(message):
            if b"Let me see." in message.get("body", b""):
                go_on.set()
            if b'"finish_reason":"stop"' in message.get("body", b""):
                await site.chat(messages=past)

        await overheard(site, take, json.dumps({"model": "m", "messages": [user("q")], "stream": streamed}))
        assert reasoning_sent(site) == [THOUGHT]


async def test_reasoning_is_stored_after_the_client_disconnects():
    async with listening([head(), chunk("Let me", reasoning_content=THOUGHT), HANG], HI, **ON) as site:
        request = {"model": "m", "messages": [user("q")], "stream": True}
        async with site.client.stream("POST", "/v1/chat/completions", json=request) as answered:
            seen, texts = "", answered.aiter_text()
            while "Let me" not in seen:
                seen += await anext(texts)
        await site.upstream.gone.wait()
        await until(lambda: is_recalled(site))


async def is_recalled(site):
    """Return True if the backend gets the reasoning for the text that the client received."""
    await site.chat(messages=[user("q"), assistant("Let me"), user("r")])
    return reasoning_sent(site) == [THOUGHT]


async def test_reasoning_is_stored_after_the_backend_is_lost():
    async with gateway([head(), chunk("Let me", reasoning_content=THOUGHT), RESET], HI, **ON) as site:
        assert text_of((await site.chat(messages=[user("q")], stream=True)).text) == "Let me"
        assert await is_recalled(site)


async def test_reasoning_memory_failure_does_not_fail_the_response(caplog):
    nowhere = {"url": "postgresql://postgres@/gateway?host=/nowhere"}
    async with gateway(
        answer_with_reasoning("Let me see.", True), answer_with_reasoning("Hi"), store=nowhere, **ON
    ) as site:
        answered = await site.chat(messages=[user("q")], stream=True)
        assert text_of(answered.text) == "Let me see." and answered.text.endswith("data: [DONE]\n\n")
        answered = await site.chat(messages=[user("q"), assistant("Let me see."), user("r")])
        assert answered.json()["choices"][0]["message"]["content"] == "Hi"
        assert "messages" not in answered.headers["x-gateway-warnings"]
    lines = [record.getMessage().partition(":")[0] for record in caplog.records if record.name == "gateway"]
    assert lines == [
        "reasoning could not be stored",
        "reasoning could not be looked up",
        "reasoning could not be stored",
    ]


async def test_reasoning_that_is_recalled_counts_as_used(store, store_url):
    past = [user("q"), assistant("Let me see."), user("r")]
    (lacks,), long_ago = find_missing_reasoning(past), int(now()) - 7200
    async with store.writing() as db:
        await kept.save(db, "", [(key, THOUGHT) for key in lacks.keys], long_ago)
    async with gateway(answer_with_reasoning("Hi"), store={"url": store_url}, **ON) as site:
        await site.chat(messages=past)
        assert reasoning_sent(site) == [THOUGHT]
    async with store.reading() as db:
        used = [used_at for (used_at,) in await db.execute(select(tables.thoughts.c.used_at))]
    assert len(used) == 2 and min(used) > long_ago


async def test_reasoning_memory_is_shared_by_gateways_on_one_store(store_url):
    where = {"url": store_url}
    async with (
        gateway(answer_with_reasoning("Let me see."), store=where, **ON) as one,
        gateway(HI, store=where, **ON) as other,
    ):
        await one.chat(messages=[user("q")])
        assert await other.chat(messages=[user("q"), assistant("Let me see."), user("r")])
        assert reasoning_sent(other) == [THOUGHT]
