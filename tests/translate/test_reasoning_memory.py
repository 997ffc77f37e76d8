"""Reasoning memory: what clients leave out of the past is given back to the backend, and to nobody else."""

import asyncio
import json
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sqlalchemy import select

from gateway.errors import Problem
from gateway.events import Failure, Finish, Reasoning, Text, ToolArgs, ToolEnd, ToolStart, Usage
from gateway.ledger import Ledger
from gateway.recollection import Listener, lacking, recalled
from gateway.request import Request
from gateway.store import tables
from gateway.store import thoughts as kept
from support.app import gateway, listening, overheard
from support.sse import events, payloads, text_of
from support.upstream import DONE, END, HANG, RESET, call, chunk, head, said, stream, whole

HI = whole(said("Hi"))
ON = {"responses": {"reasoning_memory": True}}
LOST = Problem(502, "Lost.", "upstream_lost")


def user(text):
    return {"role": "user", "content": text}


def assistant(content=None, *ids, **more):
    calls = [{"id": id, "type": "function", "function": {"name": "f", "arguments": "{}"}} for id in ids]
    return {"role": "assistant", "content": content, **({"tool_calls": calls} if calls else {}), **more}


def answer(thought="", text="", *ids, choice=0):
    """The events of an answer."""
    said = [Reasoning(choice, thought)] if thought else []
    said += [Text(choice, letter) for letter in text]
    for number, id in enumerate(ids):
        said += [ToolStart(choice, number, id, "f"), ToolArgs(choice, number, "{}"), ToolEnd(choice, number)]
    return [*said, Finish(choice, "stop"), Usage(1, 1)]


def heard(asked, events):
    listener = Listener(asked)
    assert [one for event in events for one in listener.feed(event)] == events and list(listener.close()) == []
    return dict(listener.heard)


def thoughts(messages, found, **scope):
    """What the messages of the assistant are given to think again."""
    ledger, request = Ledger(), Request(model="m", messages=tuple(messages))
    after = recalled(request, lacking(messages, **scope), found, ledger)
    changed = after.messages != request.messages
    assert ledger.entries() == (["repaired:messages.reasoning_content"] if changed else [])
    return [message.get("reasoning_content") for message in after.messages if message["role"] == "assistant"]


# What is kept of an answer is found for the message that is made of it


@pytest.mark.parametrize(
    "sent_back",
    [
        assistant("Done,  as you asked.\n"),
        assistant("Done, as\n\nyou asked."),
        assistant([{"type": "text", "text": "Done, as "}, {"type": "text", "text": "you asked. "}]),
        assistant("Done, as you asked.", reasoning_content="", reasoning=None, reasoning_details=[]),
    ],
)
def test_a_text_is_known_again_whatever_became_of_its_white_space(sent_back):
    found = heard([user("Do it.")], answer("Hm.", " Done, as you asked."))
    assert thoughts([user("Do it. "), sent_back, user("Thanks.")], found) == ["Hm."]


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
def test_another_message_is_another(messages):
    found = heard([user("Do it.")], answer("Hm.", "Done."))
    assert not any(thoughts(messages, found))


def test_a_call_is_known_by_its_id_wherever_it_stands():
    found = heard([user("Do it.")], answer("Hm.", "Let me see.", "call_a8Xk2mPq", "call_Zz81qLw0"))
    assert thoughts([user("A summary."), assistant(None, "call_a8Xk2mPq")], found) == ["Hm."]
    assert thoughts([assistant("Let me see.", "call_new00001", "call_Zz81qLw0")], found) == ["Hm."]


@pytest.mark.parametrize(
    "id", ["functions.f:0", "call_1", "7", "f-12", "call_get_weather", "functions.base64decode:0", "x1"]
)
def test_an_id_that_is_not_random_is_known_in_its_own_conversation(id):
    found = heard([user("Do it.")], answer("Hm.", "", id))
    assert thoughts([user("Do it."), assistant(None, id)], found) == ["Hm."]
    assert thoughts([user("Do that."), assistant(None, id)], found) == [None]


@pytest.mark.parametrize(
    "own",
    [
        {"reasoning_content": "Mine."},
        {"reasoning": "Mine."},
        {"reasoning_details": [{"type": "reasoning.text", "text": "Mine."}]},
        {"thinking_blocks": [{"type": "redacted_thinking", "data": "x"}]},
    ],
)
def test_what_a_client_sends_back_stays_as_it_is(own):
    message = assistant("Done.", **own)
    assert lacking([user("Do it."), message]) == []


def test_of_several_choices_each_has_its_own():
    events = [*answer("One.", "1", choice=1), *answer("None.", "0"), *answer("", "2", choice=2)]
    found = heard([user("n?")], events)
    assert [thoughts([user("n?"), assistant(text)], found) for text in "012"] == [["None."], ["One."], [None]]


def test_what_was_cut_off_can_be_sent_back_too():
    events = [Reasoning(0, "H"), Reasoning(0, "m."), Text(0, "Do"), Failure(LOST)]
    found = heard([user("q")], events)
    assert thoughts([user("q"), assistant("Do")], found) == ["Hm."]


def test_what_failed_is_no_part_of_what_is_said_when_it_is_tried_again():
    events = [Reasoning(0, "One."), Text(0, "x"), Failure(LOST), *answer("Two.", "y")]
    found = heard([user("q")], events)
    assert [thoughts([user("q"), assistant(text)], found) for text in ("x", "y", "xy")] == [["One."], ["Two."], [None]]


@pytest.mark.parametrize("events", [answer("Hm."), answer("Hm.", " \n"), answer("", "Hi"), [Finish(0, "stop")]])
def test_what_no_message_can_come_of_is_not_kept(events):
    assert heard([user("q")], events) == {}


def test_in_the_current_turn_only_what_follows_the_users_last_message():
    first, second = [user("a")], [user("a"), assistant("x"), user("b")]
    found = heard(first, answer("One.", "x")) | heard(second, answer("Two.", "", "call_a8Xk2mPq"))
    messages = [*second, assistant(None, "call_a8Xk2mPq"), {"role": "tool", "tool_call_id": "c", "content": ""}]
    assert thoughts(messages, found) == ["One.", "Two."]
    assert thoughts(messages, found, all_turns=False) == [None, "Two."]


_WORDS = st.text("ab \n", min_size=1).filter(str.strip)


@given(st.lists(st.tuples(_WORDS, _WORDS, st.booleans()), max_size=6))
def test_a_conversation_finds_all_of_its_thoughts(turns):
    messages, found = [], {}
    for place, (asked, text, calls) in enumerate(turns):
        messages.append(user(asked))
        ids = [f"functions.f:{place}"] if calls else []
        found |= heard(messages, answer(f"thought {place}", text, *ids))
        messages.append(assistant(text, *ids))
    assert thoughts(messages, found) == [f"thought {place}" for place in range(len(turns))]


# An agent that leaves out what the model thought

FORMATS = {"native": "native", "parsed here": "hermes_json"}
THOUGHT = "I have to look first."
FIND = {"type": "function", "name": "find", "parameters": {"type": "object", "properties": {}}}
OFFERED = {  # what the model calls it → the tool, and the type of its call
    "find": (FIND, "function_call"),
    "edit": ({"type": "custom", "name": "edit"}, "custom_tool_call"),
    "shell": ({"type": "shell"}, "shell_call"),
    "crm__find": ({"type": "namespace", "name": "crm", "description": "", "tools": [FIND]}, "function_call"),
}
ARGUMENTS = {"edit": '{"input": "x"}', "shell": '{"commands": ["ls"]}'}


def calling(name, format, streamed):
    """A model's answer, a thought and a call, in its own words or as its server parses them."""
    arguments = ARGUMENTS.get(name, "{}")
    if format == "native":
        calls = call(name, arguments, id="chatcmpl-tool-8f0c")
        message = {"content": None, "reasoning_content": THOUGHT, "tool_calls": calls}
    else:
        told = f'{{"name": "{name}", "arguments": {arguments}}}'
        message = {"content": f"<think>{THOUGHT}</think><tool_call>{told}</tool_call>"}
    return stream(chunk(**message), chunk(finish="stop")) if streamed else whole(said(**message))


def thinking(text, streamed=False):
    message = {"content": text, "reasoning_content": THOUGHT}
    return stream(chunk(**message), chunk(finish="stop")) if streamed else whole(said(**message))


def shown(site):
    """The reasoning of each message of the assistant that the backend was last shown."""
    return [message.get("reasoning_content") for message in site.asked["messages"] if message["role"] == "assistant"]


everywhere = pytest.mark.parametrize(("format", "streamed"), [(f, s) for f in FORMATS for s in (False, True)])


@everywhere
@pytest.mark.parametrize("kind", ["function", "custom"])
async def test_an_agent_of_chat_completions(format, streamed, kind):
    name, said_of = ("find", {"arguments": "{}"}) if kind == "function" else ("edit", {"input": "x"})
    tools = [{"type": kind, kind: {"name": name}}]
    model = {"format": FORMATS[format]}
    async with gateway(calling(name, format, streamed), HI, model=model, **ON) as site:
        answered = await site.chat(messages=[user("q")], tools=tools, stream=streamed)
        if streamed:
            deltas = [one["choices"][0]["delta"] for one in payloads(answered.text)[:-1]]
            id = next(delta["tool_calls"][0]["id"] for delta in deltas if "tool_calls" in delta)
        else:
            id = answered.json()["choices"][0]["message"]["tool_calls"][0]["id"]
        past = {"role": "assistant", "tool_calls": [{"id": id, "type": kind, kind: {"name": name, **said_of}}]}
        result = {"role": "tool", "tool_call_id": id, "content": "ok"}
        answered = await site.chat(messages=[user("q"), past, result], tools=tools)
        assert shown(site) == [THOUGHT]
        assert "repaired:messages.reasoning_content" in answered.headers["x-gateway-warnings"]
        await site.chat(messages=[user("q"), past, result, {"role": "assistant", "content": "Hi"}, user("r")])
        assert shown(site) == [THOUGHT, None]


@everywhere
@pytest.mark.parametrize("name", OFFERED)
async def test_an_agent_of_responses(format, streamed, name):
    tool, type = OFFERED[name]
    model = {"format": FORMATS[format]}
    async with gateway(calling(name, format, streamed), HI, model=model, **ON) as site:
        answered = await site.respond(tools=[tool], stream=streamed, store=False)
        told = events(answered.text)[-1]["response"] if streamed else answered.json()
        thought, called = told["output"]
        assert (thought["type"], called["type"]) == ("reasoning", type)
        output = {"type": f"{type}_output", "call_id": called["call_id"], "output": []}
        past = [user("Hello"), called, output if name == "shell" else {**output, "output": "ok"}]
        answered = await site.respond(input=past, tools=[tool])
        assert shown(site) == [THOUGHT]
        assert "repaired:messages.reasoning_content" in answered.headers["x-gateway-warnings"]


@pytest.mark.parametrize("streamed", [False, True])
async def test_what_one_api_was_told_the_other_knows(streamed):
    async with gateway(thinking("Let me see.", streamed), **ON) as site:
        await site.respond(input="q", stream=streamed, store=False)
        await site.chat(messages=[user("q"), assistant("Let me see. "), user("r")])
        assert shown(site) == [THOUGHT]


async def test_a_client_of_responses_may_want_less():
    past = [user("q"), {"role": "assistant", "content": "Let me see."}, user("r")]
    async with gateway(thinking("Let me see."), **ON) as site:
        await site.respond(input="q", store=False)
        for context, expected in (("auto", THOUGHT), ("all_turns", THOUGHT), ("current_turn", None)):
            await site.respond(input=past, store=False, reasoning={"context": context})
            assert shown(site) == [expected]


async def test_without_being_asked_for_nothing_is_kept():
    async with gateway(thinking("Let me see.")) as site:
        await site.chat(messages=[user("q")])
        answered = await site.chat(messages=[user("q"), assistant("Let me see."), user("r")])
        assert shown(site) == [None]
        assert "messages" not in answered.headers["x-gateway-warnings"]


async def test_tenants_do_not_share_thoughts():
    ann, bob = ({"authorization": f"Bearer {name}-{'k' * 20}"} for name in ("ann", "bob"))
    keys = {"keys": [{"name": name, "key": f"{name}-{'k' * 20}"} for name in ("ann", "bob")]}
    past = [user("q"), assistant("Let me see."), user("r")]
    async with gateway(thinking("Let me see."), auth=keys, **ON) as site:
        await site.chat(messages=[user("q")], headers=ann)
        await site.chat(messages=past, headers=bob)
        assert shown(site) == [None]
        await site.chat(messages=past, headers=ann)
        assert shown(site) == [THOUGHT]


@pytest.mark.parametrize("streamed", [False, True])
async def test_a_thought_is_there_before_its_client_can_answer(streamed):
    """An agent that answers while it is still being told why the model has stopped."""
    go_on = asyncio.Event()
    slow = [head(), chunk("Let me see.", reasoning_content=THOUGHT), go_on, chunk(finish="stop"), DONE, END]
    past = [user("q"), assistant("Let me see."), user("r")]
    async with gateway(slow if streamed else thinking("Let me see."), HI, **ON) as site:

        async def take(message):
            if b"Let me see." in message.get("body", b""):
                go_on.set()
            if b'"finish_reason":"stop"' in message.get("body", b""):
                await site.chat(messages=past)

        await overheard(site, take, json.dumps({"model": "m", "messages": [user("q")], "stream": streamed}))
        assert shown(site) == [THOUGHT]


async def test_after_a_client_that_left_what_it_heard_is_known():
    async with listening([head(), chunk("Let me", reasoning_content=THOUGHT), HANG], HI, **ON) as site:
        asked = {"model": "m", "messages": [user("q")], "stream": True}
        async with site.client.stream("POST", "/v1/chat/completions", json=asked) as answered:
            seen, texts = "", answered.aiter_text()
            while "Let me" not in seen:
                seen += await anext(texts)
        await site.upstream.gone.wait()
        async with asyncio.timeout(5):
            while not await known(site):  # noqa: ASYNC110 - nothing tells when
                await asyncio.sleep(0.01)


async def known(site):
    """True if the backend is shown again what was thought before the words that were heard."""
    await site.chat(messages=[user("q"), assistant("Let me"), user("r")])
    return shown(site) == [THOUGHT]


async def test_after_a_backend_that_was_lost_as_well():
    async with gateway([head(), chunk("Let me", reasoning_content=THOUGHT), RESET], HI, **ON) as site:
        assert text_of((await site.chat(messages=[user("q")], stream=True)).text) == "Let me"
        assert await known(site)


async def test_a_memory_that_fails_is_no_failure(caplog):
    nowhere = {"url": "postgresql://postgres@/gateway?host=/nowhere"}
    async with gateway(thinking("Let me see.", True), thinking("Hi"), store=nowhere, **ON) as site:
        answered = await site.chat(messages=[user("q")], stream=True)
        assert text_of(answered.text) == "Let me see." and answered.text.endswith("data: [DONE]\n\n")
        answered = await site.chat(messages=[user("q"), assistant("Let me see."), user("r")])
        assert answered.json()["choices"][0]["message"]["content"] == "Hi"
        assert "messages" not in answered.headers["x-gateway-warnings"]
    told = [record.getMessage().partition(":")[0] for record in caplog.records if record.name == "gateway"]
    assert told == ["reasoning could not be kept", "reasoning could not be looked up", "reasoning could not be kept"]


async def test_what_is_given_back_counts_as_used(store, store_url):
    past = [user("q"), assistant("Let me see."), user("r")]
    (lacks,), long_ago = lacking(past), int(time.time()) - 7200
    async with store.writing() as db:
        await kept.save(db, "", [(key, THOUGHT) for key in lacks.keys], long_ago)
    async with gateway(thinking("Hi"), store={"url": store_url}, **ON) as site:
        await site.chat(messages=past)
        assert shown(site) == [THOUGHT]
    async with store.reading() as db:
        used = [used_at for (used_at,) in await db.execute(select(tables.thoughts.c.used_at))]
    assert len(used) == 2 and min(used) > long_ago


async def test_two_gateways_on_one_store_share_their_memory(store_url):
    where = {"url": store_url}
    async with gateway(thinking("Let me see."), store=where, **ON) as one, gateway(HI, store=where, **ON) as other:
        await one.chat(messages=[user("q")])
        assert await other.chat(messages=[user("q"), assistant("Let me see."), user("r")])
        assert shown(other) == [THOUGHT]
