"""Test the kept pasts of stored chains: a turn gets the same messages with them as from the store alone."""

import asyncio
import itertools
from contextlib import AsyncExitStack
from random import Random

import pytest

from gateway.api import responses as api
from gateway.errors import ClientError
from gateway.server.conversations.past_cache import PastCache
from gateway.server.conversations.stored_context import ReadOnlyContext
from gateway.store import conversations, item_lists, responses
from gateway.warnings import Warnings
from support.app import gateway, problem
from support.jobs import BAD
from support.upstream import completion_body, whole

SETTINGS = api.ParseSettings(open=lambda _: None)
CALLS = {"tool_calls": [{"id": "call_1", "type": "function", "function": {"name": "f", "arguments": "{}"}}]}
F = {"type": "function", "name": "f"}
MANY = [{"role": ("user", "assistant")[i % 2], "content": f"text {i}"} for i in range(41)]


def message(role, id):
    return {"id": id, "type": "message", "role": role, "content": [{"type": "input_text", "text": f"text of {id}"}]}


class Walk:
    """Random turns of chains and conversations, and random deletions, with two processes that keep pasts."""

    def __init__(self, store, seed):
        self.store, self.random, self.numbers = store, Random(seed), itertools.count()
        self.workers = [PastCache(min_items=0), PastCache(min_items=0)]
        self.responses, self.conversations, self.kept = [], [], 0

    def id(self, prefix):
        return f"{prefix}_{next(self.numbers)}"

    async def step(self):
        what = self.random.choices(["begin", "go_on", "talk", "delete", "remove"], [1, 8, 6, 1, 1])[0]
        async with self.store.writing() as db:
            await getattr(self, what)(db)
        for id in self.random.choices(self.responses, k=2):
            await self.compare(previous_response_id=id)
        for id in self.random.choices(self.conversations, k=1) if self.conversations else ():
            await self.compare(conversation=id)

    async def save(self, db, behind):
        new = self.id("resp")
        output = [message("assistant", self.id("msg")) for _ in range(self.random.choice([1, 1, 1, 2]))]
        given = [message("user", self.id("msg"))]
        await responses.save(db, "t", {"id": new, "status": "completed", "output": output}, given, behind, 0)
        self.responses.append(new)

    async def begin(self, db):
        await self.save(db, None)
        self.conversations.append(self.id("conv"))
        await conversations.create(db, "t", self.conversations[-1], {}, [], 0)

    async def go_on(self, db):
        old = self.responses[-1] if self.random.random() < 0.7 else self.random.choice(self.responses)
        if found := await responses.find(db, "t", old):
            await self.save(db, found.behind)

    async def talk(self, db):
        await self.save(db, await conversations.find(db, "t", self.random.choice(self.conversations)))

    async def delete(self, db):
        if found := await responses.find(db, "t", self.random.choice(self.responses)):
            await responses.remove(db, found)

    async def remove(self, db):
        found = await conversations.find(db, "t", self.random.choice(self.conversations))
        ids = [item["id"] for item in await item_lists.read(db, [found.items])]
        if ids:
            await item_lists.remove(db, await item_lists.find(db, "t", [found.items], self.random.choice(ids)))

    async def compare(self, **fields):
        worker = self.random.choice(self.workers)
        _, expected = await loaded(self.store, None, **fields)
        kept, found = await loaded(self.store, worker, **fields)
        assert found == expected, fields
        self.kept += kept


async def loaded(store, pasts, **fields):
    """Return whether a past was kept, and the messages, the warnings and the position of a turn; or its error."""
    draft = api.draft_response({"model": "m", "input": "Next", **fields}, SETTINGS)
    try:
        origin = await ReadOnlyContext(store, "t", pasts).load_predecessor(draft, "", AsyncExitStack())
    except ClientError as error:
        return False, error.problem
    ledger = Warnings()
    request = api.parse_response(draft, origin.context, SETTINGS, ledger).request
    found = request.with_whole_past().messages, ledger.entries(), origin.behind, origin.conversation
    return origin.context.past is not None, found


@pytest.mark.parametrize("seed", range(3))
async def test_kept_pasts_of_two_processes_give_the_messages_of_the_store(store, seed):
    walk = Walk(store, seed)
    async with store.writing() as db:
        await walk.begin(db)
    for _ in range(40):
        await walk.step()
    assert walk.kept > 40


async def turn(store, pasts, id, behind=None, text="Hi"):
    """Store a response of two items, and load what continues it; return its position."""
    given, output = message("user", f"{id}_in"), message("assistant", f"{id}_out")
    output["content"][0]["text"] = text
    async with store.writing() as db:
        await responses.save(db, "t", {"id": id, "status": "completed", "output": [output]}, [given], behind, 0)
    await loaded(store, pasts, previous_response_id=id)
    async with store.reading() as db:
        return (await responses.find(db, "t", id)).behind


async def test_kept_past_makes_a_turn_read_the_new_items_only(store, monkeypatch):
    pasts, behind = PastCache(min_items=0), None
    read, plain = [], item_lists.read

    async def reading(db, ranges):
        read.append([(one.first, one.end) for one in ranges])
        return await plain(db, ranges)

    monkeypatch.setattr(item_lists, "read", reading)
    for i in range(3):
        behind = await turn(store, pasts, f"r{i}", behind)
    await loaded(store, pasts, previous_response_id="r2")
    assert read == [[(0, 2)], [(2, 4)], [(4, 6)], [(6, 6)]]


async def test_kept_past_is_not_used_behind_items_that_cannot_be_kept(store):
    pasts = PastCache(min_items=0)
    behind = await turn(store, pasts, "r0")
    assert await is_kept(store, pasts, "r0")
    call = {"id": "ctc_1", "type": "custom_tool_call", "call_id": "call_1", "name": "f", "input": "x"}
    given = [call, {"id": "ctco_1", "type": "custom_tool_call_output", "call_id": "call_1", "output": "y"}]
    body = {"id": "r1", "status": "completed", "output": [message("assistant", "r1_out")]}
    async with store.writing() as db:
        await responses.save(db, "t", body, given, behind, 0)
    whole_history = await loaded(store, None, previous_response_id="r1")
    assert await loaded(store, pasts, previous_response_id="r1") == whole_history
    assert len(whole_history[1][0]) == 5


async def is_kept(store, pasts, id):
    async with store.reading() as db:
        chain = await item_lists.ranges(db, (await responses.find(db, "t", id)).behind)
        return (await pasts.load(db, "t", chain)).past is not None


async def test_kept_pasts_have_a_bound_and_the_oldest_is_dropped(store):
    pasts = PastCache(max_bytes=1900, min_items=0)
    for id in "abcdefghi":
        await turn(store, pasts, id, text="x" * 150)
    assert [await is_kept(store, pasts, id) for id in "abcdefghi"] == [False, *[True] * 8]
    await turn(store, pasts, "large", text="x" * 400)  # above an eighth of the bound
    assert not await is_kept(store, pasts, "large") and await is_kept(store, pasts, "b")


async def test_response_behind_a_kept_past_sends_all_messages_to_the_backend():
    async with gateway(*(whole(completion_body(text)) for text in ("one", "two", "three"))) as site:
        first = (await site.respond(input=MANY)).json()
        second = (await site.respond(input="b", previous_response_id=first["id"])).json()
        await site.respond(input="c", previous_response_id=second["id"], instructions="Be brief.")
        system, *messages = site.upstream_body["messages"]
        texts = [message["content"] for message in messages]
    assert system == {"role": "system", "content": "Be brief."}
    assert texts == [*(item["content"] for item in MANY), "one", "b", "two", "c"]


@pytest.mark.parametrize(
    "fields",
    [
        {"truncation": "auto"},
        {"input": [{"role": "user", "content": [{"type": "input_image", "image_url": "data:image/png;base64,AA=="}]}]},
        {"context_management": [{"type": "compaction", "compact_threshold": 100_000}]},
    ],
)
async def test_response_whose_messages_are_read_here_has_all_of_them(fields):
    async with gateway(*(whole(completion_body(text)) for text in ("one", "two"))) as site:
        first = (await site.respond(input=MANY)).json()
        answer = await site.respond(**{"input": "b", "previous_response_id": first["id"], **fields})
        assert answer.status_code == 200, answer.text
        assert len(site.upstream_body["messages"]) == len(MANY) + 2


async def test_tool_call_behind_a_kept_past_is_sent_as_well():
    scripts = [
        whole(completion_body("one")),
        whole(completion_body("two")),
        whole(completion_body(None, **CALLS)),
        whole(completion_body("done")),
        whole(completion_body("end")),
    ]
    async with gateway(*scripts) as site:
        last = (await site.respond(input=MANY)).json()
        last = (await site.respond(input="b", previous_response_id=last["id"])).json()
        last = (await site.respond(input="c", previous_response_id=last["id"], tools=[F])).json()
        output = {"type": "function_call_output", "call_id": last["output"][0]["call_id"], "output": "42"}
        last = (await site.respond(input=[output], previous_response_id=last["id"])).json()
        await site.respond(input="d", previous_response_id=last["id"])
        roles = [message["role"] for message in site.upstream_body["messages"][len(MANY) :]]
    assert roles == ["assistant", "user", "assistant", "user", "assistant", "tool", "assistant", "user"]


def agent_items():
    """Return a turn of an agent with many tool calls."""
    for i in range(20):
        yield {"type": "function_call", "call_id": f"call_{i}", "name": "f", "arguments": "{}"}
        yield {"type": "function_call_output", "call_id": f"call_{i}", "output": f"result {i}"}


AGENT = [{"role": "user", "content": "Hi"}, *agent_items(), {"role": "assistant", "content": "one"}]


@pytest.mark.parametrize("model", [{}, {"tools": "prompt"}, {"format": "mistral"}])
async def test_tool_calls_of_a_kept_past_reach_the_backend_in_the_form_of_its_model(model):
    async with gateway(*(whole(completion_body(text)) for text in ("two", "three", "four")), model=model) as site:
        first = (await site.respond(input=AGENT[:-1])).json()
        for text in ("b", "c"):
            await site.respond(input=text, previous_response_id=first["id"])
        messages = site.upstream_body["messages"]
        answer = {"role": "assistant", "content": "two"}
        await site.respond(input=[*AGENT[:-1], answer, {"role": "user", "content": "c"}], store=False)
        assert messages == site.upstream_body["messages"] and messages[-1]["content"] == "c"


async def test_new_tool_call_gets_an_id_that_no_call_of_a_kept_past_has():
    scripts = (
        whole(completion_body("one")),
        whole(completion_body("two")),
        whole(completion_body(None, tool_calls=[{**CALLS["tool_calls"][0], "id": "call_3"}])),
    )
    async with gateway(*scripts) as site:
        first = (await site.respond(input=AGENT)).json()
        await site.respond(input="b", previous_response_id=first["id"])
        answer = (await site.respond(input="c", previous_response_id=first["id"], tools=[F])).json()
    assert answer["output"][0]["call_id"] not in {item.get("call_id") for item in AGENT}


async def test_deleted_response_of_a_kept_past_is_not_continued():
    async with gateway(*(whole(completion_body(text)) for text in ("one", "two", "three"))) as site:
        first = (await site.respond(input=MANY)).json()
        second = (await site.respond(input="b", previous_response_id=first["id"])).json()
        await site.respond(input="c", previous_response_id=second["id"])
        await site.client.delete(f"/v1/responses/{first['id']}")
        answer = await site.respond(input="d", previous_response_id=second["id"])
    assert problem(answer) == (400, BAD, "previous_response_not_found", "previous_response_id")


async def test_requests_that_continue_one_response_at_once_do_not_mix():
    async with gateway(*(whole(completion_body("one")) for _ in range(5))) as site:
        first = (await site.respond(input=MANY)).json()
        await asyncio.gather(*(site.respond(input=f"b{i}", previous_response_id=first["id"]) for i in range(4)))
        histories = [post.json["messages"] for post in site.upstream.posts[1:]]
    assert {messages[-1]["content"] for messages in histories} == {"b0", "b1", "b2", "b3"}
    assert [len(messages) for messages in histories] == [len(MANY) + 2] * 4
