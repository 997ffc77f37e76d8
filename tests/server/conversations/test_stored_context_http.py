"""Test reading, changing and deleting stored responses, conversations and chat completions over HTTP, and the pages of their lists."""

import asyncio
from contextlib import asynccontextmanager
from functools import partial

import pytest
from sqlalchemy import delete

from gateway.store import tables
from support.app import bearer, gateway, problem
from support.jobs import BAD
from support.upstream import chunk, completion_body, gated, stream, whole

GONE = (404, BAD, None, None)
USER = {"role": "user", "content": "Hi"}
KEYS = {"keys": [{"name": name, "key": f"{name}-key"} for name in ("a", "b")]}
LOGPROBS = {"content": [{"token": "Hi", "logprob": -0.5, "bytes": [72, 105], "top_logprobs": []}]}


class Client:
    """A client that sends requests to a site and decodes their responses."""

    def __init__(self, site):
        self.site = site

    async def get(self, path, **params):
        return await self.site.client.get(f"/v1/{path}", params=params)

    async def post(self, path, **body):
        return await self.site.client.post(f"/v1/{path}", json=body)

    async def delete(self, path):
        return await self.site.client.delete(f"/v1/{path}")

    async def list(self, path, **params):
        answer = await self.get(path, **params)
        assert answer.status_code == 200, answer.text
        listed = answer.json()
        data = listed["data"]
        assert (listed["object"], listed["first_id"], listed["last_id"]) == (
            "list", data[0]["id"] if data else None, data[-1]["id"] if data else None,
        )  # fmt: skip
        return listed

    async def create(self, path, **body):
        answer = await self.post(path, **body)
        assert answer.status_code == 200, answer.text
        return answer.json()

    async def respond(self, input, **fields):
        return await self.create("responses", model="m", input=input, **fields)

    async def complete(self, text="Hi", **fields):
        messages = [{"role": "user", "content": text}]
        return await self.create("chat/completions", model="m", messages=messages, store=True, **fields)


@asynccontextmanager
async def site(*scripts, **sections):
    async with gateway(*(scripts or [whole(completion_body("Hello"))]), **sections) as served:
        yield Client(served)


@pytest.fixture
def serving(store_url):
    """Return a context manager: a client of a gateway on SQLite or PostgreSQL."""
    return partial(site, store={"url": store_url})


def texts(items):
    return [part["text"] for item in items for part in item["content"]]


# Responses


async def test_response_read_back_equals_the_response_sent(serving):
    async with serving(whole(completion_body("<think>Hm.</think>Hello"))) as client:
        response = await client.respond("Hi", metadata={"a": "b"}, instructions="Be brief.")
        assert (await client.get(f"responses/{response['id']}")).json() == response
    assert [item["type"] for item in response["output"]] == ["reasoning", "message"]


async def test_response_is_404_after_its_deletion(serving):
    async with serving() as client:
        response = await client.respond("Hi")
        path = f"responses/{response['id']}"
        assert (await client.delete(path)).json() == {"id": response["id"], "object": "response", "deleted": True}
        for answer in (await client.delete(path), await client.get(path), await client.get(f"{path}/input_items")):
            assert problem(answer) == GONE
            assert answer.json()["error"]["message"] == f"Response with id '{response['id']}' not found."


async def test_response_after_a_deleted_one_is_kept_but_not_continued(serving):
    async with serving() as client:
        first = await client.respond("one")
        second = await client.respond("two", previous_response_id=first["id"])
        await client.delete(f"responses/{first['id']}")
        assert (await client.get(f"responses/{second['id']}")).json() == second
        assert texts((await client.list(f"responses/{second['id']}/input_items"))["data"]) == ["two"]
        answer = await client.post("responses", model="m", input="three", previous_response_id=second["id"])
        assert problem(answer) == (400, BAD, "previous_response_not_found", "previous_response_id")
        assert "continues a response that was deleted" in answer.json()["error"]["message"]


async def test_response_without_background_cannot_be_cancelled():
    async with site() as client:
        response = await client.respond("Hi")
        answer = await client.post(f"responses/{response['id']}/cancel")
        assert problem(answer) == (400, BAD, None, None)
        assert answer.json()["error"]["message"] == "Cannot cancel a synchronous response."
        assert problem(await client.post("responses/resp_none/cancel")) == GONE


async def test_response_without_background_cannot_be_streamed_again():
    async with site() as client:
        path = f"responses/{(await client.respond('Hi'))['id']}"
        assert problem(await client.get(path, stream="true")) == (400, BAD, None, "stream")
        assert problem(await client.get("responses/resp_none", stream="true")) == GONE
        response = await client.get(path, stream="false", starting_after=0, include_obfuscation="true")
        assert response.status_code == 200


@pytest.mark.parametrize("name", ["include[]", "include"])
async def test_response_fields_are_shown_only_if_included(name):
    answered = completion_body("Hi", reasoning_content="Hm.")
    answered["choices"][0]["logprobs"] = LOGPROBS
    wanted = ["message.output_text.logprobs", "reasoning.encrypted_content"]
    async with site(whole(answered), whole(completion_body("Bye"))) as client:
        response = await client.respond("Hi", include=wanted)
        full = (await client.get(f"responses/{response['id']}", **{name: wanted})).json()
        less = (await client.get(f"responses/{response['id']}")).json()
        follows = await client.respond("So?", previous_response_id=response["id"])
        path = f"responses/{follows['id']}/input_items"
        listed = (await client.list(path, order="asc", **{name: wanted}))["data"]
        without = (await client.list(path, order="asc"))["data"]
    assert full == response
    assert full["output"][0]["encrypted_content"] and full["output"][1]["content"][0]["logprobs"]
    assert listed[1:3] == full["output"] and without[1:3] == less["output"]
    assert less["output"][0]["encrypted_content"] is None and less["output"][1]["content"][0]["logprobs"] == []


async def test_response_input_items_are_those_of_the_chain_and_its_own(serving):
    """Instructions are left out, and two branches from one response differ."""
    async with serving(
        whole(completion_body("1")),
        whole(completion_body("2")),
        whole(completion_body("3")),
        whole(completion_body("4")),
    ) as client:
        first = await client.respond("a", instructions="Be brief.")
        second = await client.respond(
            [{**USER, "id": "mine"}, {"role": "user", "content": "b"}], previous_response_id=first["id"]
        )
        other = await client.respond("c", previous_response_id=first["id"])
        last = await client.respond("d", previous_response_id=other["id"])
        lists = [
            (await client.list(f"responses/{response['id']}/input_items", order="asc"))["data"]
            for response in (first, second, other, last)
        ]
    assert [*map(texts, lists)] == [["a"], ["a", "1", "Hi", "b"], ["a", "1", "c"], ["a", "1", "c", "3", "d"]]
    assert lists[1][2]["id"] == "mine" and lists[1][1] == first["output"][0]
    assert all(item["status"] == "completed" and item["id"] for items in lists for item in items)


async def test_response_input_items_are_404_if_the_chain_was_swept(store_url, store):
    async with site(store={"url": store_url}) as client:
        first = await client.respond("a")
        await client.respond("b", previous_response_id=first["id"])
        branch = await client.respond("c", previous_response_id=first["id"])
        async with store.writing() as db:
            await db.execute(delete(tables.threads).where(tables.threads.c.id != branch["id"]))
        assert problem(await client.get(f"responses/{branch['id']}/input_items")) == GONE


# Conversations


async def test_conversation_is_created_read_changed_and_deleted(serving):
    async with serving() as client:
        made = await client.create("conversations", metadata={"a": "b"})
        path = f"conversations/{made['id']}"
        assert made["id"].startswith("conv_") and made["created_at"] > 1_700_000_000
        assert (made["object"], made["metadata"]) == ("conversation", {"a": "b"})
        assert (await client.get(path)).json() == made
        changed = {**made, "metadata": {"c": "d"}}
        assert (await client.post(path, metadata={"c": "d"})).json() == (await client.get(path)).json() == changed
        bare = {**changed, "metadata": {}}
        assert (await client.post(path, metadata=None)).json() == (await client.get(path)).json() == bare
        gone = {"id": made["id"], "object": "conversation.deleted", "deleted": True}
        assert (await client.delete(path)).json() == gone
        for answer in (await client.get(path), await client.delete(path), await client.post(path, metadata={})):
            assert problem(answer) == GONE
            assert answer.json()["error"]["message"] == f"Conversation with id '{made['id']}' not found."


@pytest.mark.parametrize("body", [b"", b"{}", b'{"items": null, "metadata": null}', b'{"items": []}'])
async def test_conversation_may_be_empty(body):
    async with site() as client:
        made = (await client.site.client.post("/v1/conversations", content=body)).json()
        assert made["metadata"] == {}
        listed = await client.list(f"conversations/{made['id']}/items")
        assert (listed["data"], listed["has_more"]) == ([], False)


async def test_conversation_items_are_added_listed_read_and_deleted(serving):
    call = {"type": "function_call", "call_id": "c1", "name": "f", "arguments": "{}"}
    output = {"type": "function_call_output", "call_id": "c1", "output": "fine"}
    async with serving() as client:
        made = await client.create("conversations", items=[USER, call])
        path = f"conversations/{made['id']}/items"
        added = await client.create(path, items=[output, {**USER, "id": "mine", "status": "incomplete"}])
        listed = await client.list(path, order="asc")
        assert added == {
            "object": "list", "data": listed["data"][2:], "first_id": listed["data"][2]["id"], "last_id": "mine", "has_more": False,
        }  # fmt: skip
        assert [item["id"].partition("_")[0] for item in listed["data"]] == ["msg", "fc", "fco", "mine"]
        assert [item["status"] for item in listed["data"]] == ["completed"] * 3 + ["incomplete"]
        assert (await client.get(f"{path}/mine")).json() == listed["data"][3]
        assert (await client.delete(f"{path}/mine")).json() == made
        for answer in (await client.get(f"{path}/mine"), await client.delete(f"{path}/mine")):
            assert problem(answer) == GONE
            assert answer.json()["error"]["message"] == "Item with id 'mine' not found."
        assert (await client.list(path))["data"] == listed["data"][2::-1]
        await client.create(path, items=[{**USER, "id": "mine"}])


async def test_conversation_items_include_those_of_its_response(serving):
    async with serving() as client:
        made = await client.create("conversations", items=[{"role": "developer", "content": "Be brief."}])
        response = await client.respond("Hi", conversation=made["id"])
        path = f"conversations/{made['id']}/items"
        listed = (await client.list(path, order="asc"))["data"]
        assert texts(listed) == ["Be brief.", "Hi", "Hello"] and listed[2] == response["output"][0]
        assert texts((await client.list(f"responses/{response['id']}/input_items"))["data"]) == ["Hi", "Be brief."]
        await client.delete(f"conversations/{made['id']}")
        assert (await client.get(f"responses/{response['id']}")).json() == response


async def test_conversation_item_reference_adds_the_item_itself(serving):
    async with serving() as client:
        response = await client.respond("Hi")
        message = response["output"][0]
        made = await client.create("conversations", items=[{"type": "item_reference", "id": message["id"]}, USER])
        path = f"conversations/{made['id']}/items"
        assert (await client.list(path, order="asc"))["data"][0] == message
        answer = await client.post(path, items=[{"id": message["id"]}])
        assert problem(answer) == (400, BAD, None, "items")
        assert problem(await client.post(path, items=[USER, {"id": "msg_none"}])) == (404, BAD, None, "items[1]")
        assert len((await client.list(path))["data"]) == 2, "all of it, or nothing"


async def test_conversation_item_fields_are_shown_only_if_included():
    part = {"type": "output_text", "text": "Hi", "annotations": [], "logprobs": LOGPROBS["content"]}
    item = {"id": "mine", "type": "message", "status": "completed", "role": "assistant", "content": [part]}
    less = {**item, "content": [{**part, "logprobs": []}]}
    wanted = {"include[]": "message.output_text.logprobs"}
    async with site() as client:
        path = f"conversations/{(await client.create('conversations'))['id']}/items"
        assert (await client.create(path, items=[item]))["data"] == [less]
        for answer, expected in (
            (await client.get(f"{path}/mine"), less),
            (await client.get(f"{path}/mine", **wanted), item),
        ):
            assert answer.json() == expected
        assert (await client.list(path))["data"] == [less]
        assert (await client.list(path, **wanted))["data"] == [item]


async def test_conversation_items_cannot_be_added_while_a_response_runs(serving):
    go_on = asyncio.Event()
    async with serving(gated("Hi", go_on)) as client:
        path = f"conversations/{(await client.create('conversations'))['id']}"
        request = {"model": "m", "input": "Hi", "stream": True, "conversation": path.partition("/")[2]}
        answering = asyncio.create_task(client.post("responses", **request))
        await client.site.upstream.arrived.wait()
        answer = await client.post(f"{path}/items", items=[USER])
        assert problem(answer) == (400, BAD, "conversation_locked", None)
        assert (await client.get(path)).status_code == (await client.get(f"{path}/items")).status_code == 200
        go_on.set()
        await answering
        added = await client.create(f"{path}/items", items=[USER])
        assert (await client.list(f"{path}/items"))["data"][0] == added["data"][0]
        assert len((await client.list(f"{path}/items"))["data"]) == 3


async def test_conversation_keeps_items_added_concurrently(serving):
    async with serving() as client:
        path = f"conversations/{(await client.create('conversations'))['id']}/items"
        added = await asyncio.gather(*(client.create(path, items=[USER, USER]) for _ in range(8)))
        listed = (await client.list(path))["data"]
        same = await asyncio.gather(*(client.post(path, items=[{**USER, "id": "mine"}]) for _ in range(4)))
    assert {item["id"] for one in added for item in one["data"]} == {item["id"] for item in listed}
    assert sorted(answer.status_code for answer in same) == [200, 400, 400, 400]


MANY = [USER] * 21
CONVERSATIONS = {
    "too many items": ("conversations", {"items": MANY}, "array_above_max_length", "items"),
    "items that are none": ("conversations", {"items": "Hi"}, "invalid_type", "items"),
    "an item that is none": ("conversations", {"items": [USER, 1]}, "invalid_type", "items[1]"),
    "an item of no type": ("conversations", {"items": [{"type": "x"}]}, "invalid_value", "items[0]"),
    "metadata that is none": ("conversations", {"metadata": [1]}, "invalid_type", "metadata"),
    "no metadata": ("conversations/{}", {}, "missing_required_parameter", "metadata"),
    "metadata of numbers": ("conversations/{}", {"metadata": {"a": 1}}, "invalid_type", "metadata.a"),
    "no items": ("conversations/{}/items", {}, "missing_required_parameter", "items"),
    "not one item": ("conversations/{}/items", {"items": []}, "empty_array", "items"),
    "too many to add": ("conversations/{}/items", {"items": MANY}, "array_above_max_length", "items"),
    "an item without content": ("conversations/{}/items", {"items": [{"role": "user"}]}, "missing_required_parameter", "items[0].content"),
}  # fmt: skip


async def test_conversation_request_with_bad_fields_is_400():
    async with site() as client:
        made = await client.create("conversations")
        for case, (path, body, code, param) in CONVERSATIONS.items():
            assert problem(await client.post(path.format(made["id"]), **body)) == (400, BAD, code, param), case
        assert (await client.list(f"conversations/{made['id']}/items"))["data"] == []


async def test_conversation_item_nested_deeply_is_stored_and_shown():
    deep = b'{"a":' * 500 + b"1" + b"}" * 500
    item = b'{"id":"mine","type":"function_call_output","call_id":"c","output":"","deep":%b}' % deep
    async with site() as client:
        made = (await client.site.client.post("/v1/conversations", content=b'{"items":[%b]}' % item)).json()
        for path in ("", "/mine"):
            assert deep in (await client.get(f"conversations/{made['id']}/items{path}")).content


@pytest.mark.parametrize("body", [b"{", b"[]", b"\xff"])
async def test_conversation_request_with_a_bad_body_is_400(body):
    async with site() as client:
        assert problem(await client.site.client.post("/v1/conversations", content=body))[:2] == (400, BAD)


async def test_conversation_request_with_a_large_body_is_413():
    async with site(limits={"body_bytes": 100}) as client:
        answer = await client.post("conversations", items=[{"role": "user", "content": "x" * 100}])
        assert problem(answer) == (413, BAD, "request_too_large", None)


# Chat completions


async def test_chat_completion_is_read_changed_and_deleted(serving):
    async with serving() as client:
        response = await client.complete(metadata={"a": "b"})
        path = f"chat/completions/{response['id']}"
        kept = (await client.get(path)).json()
        assert kept == {**response, "metadata": {"a": "b"}}
        changed = {**kept, "metadata": {"c": "d"}}
        assert (await client.post(path, metadata={"c": "d"})).json() == (await client.get(path)).json() == changed
        bare = {**changed, "metadata": {}}
        assert (await client.post(path, metadata=None)).json() == (await client.get(path)).json() == bare
        assert problem(await client.post(path)) == (400, BAD, "missing_required_parameter", "metadata")
        gone = {"id": response["id"], "object": "chat.completion.deleted", "deleted": True}
        assert (await client.delete(path)).json() == gone
        answers = [await client.get(path), await client.delete(path), await client.post(path, metadata={})]
        for answer in (*answers, await client.get(f"{path}/messages")):
            assert problem(answer) == GONE


@pytest.mark.parametrize("fields", [{}, {"store": False}])
async def test_chat_completion_without_store_true_is_not_stored(fields):
    async with site() as client:
        response = await client.create("chat/completions", model="m", messages=[USER], **fields)
        assert problem(await client.get(f"chat/completions/{response['id']}")) == GONE
        assert (await client.list("chat/completions"))["data"] == []


async def test_chat_completion_streamed_is_stored_whole():
    script = stream(chunk("Hel"), chunk("lo"), chunk(finish="stop"))
    async with site(script) as client:
        await client.post("chat/completions", model="m", messages=[USER], store=True, stream=True)
        (kept,) = (await client.list("chat/completions"))["data"]
    assert (kept["object"], kept["choices"][0]["message"]["content"]) == ("chat.completion", "Hello")


WANTED = {
    "all": ({}, "abc"),
    "of a model": ({"model": "m"}, "abc"),
    "of no model": ({"model": "x"}, ""),
    "with some metadata": ({"metadata[kind]": "odd"}, "ac"),
    "with all of the metadata": ({"metadata[kind]": "odd", "metadata[last]": "yes"}, "c"),
    "with none such": ({"metadata[kind]": "yes"}, ""),
    "what the list does not know": ({"metadata": "odd", "other": "x"}, "abc"),
}


async def test_chat_completions_are_listed_by_model_and_metadata(serving):
    labels = {"a": {"kind": "odd"}, "b": {"kind": "even"}, "c": {"kind": "odd", "last": "yes"}}
    async with serving() as client:
        ids = {(await client.complete(name, metadata=label))["id"]: name for name, label in labels.items()}
        for case, (query, names) in WANTED.items():
            listed = (await client.list("chat/completions", **query))["data"]
            # Those of one second are in the order of their ids.
            assert sorted(ids[one["id"]] for one in listed) == sorted(names), case


async def test_chat_completion_lists_its_request_messages():
    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA=="}}
    messages = [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": [{"type": "text", "text": "What is it?"}, image], "name": "ann"},
    ]
    async with site() as client:
        response = await client.create("chat/completions", model="m", messages=messages, store=True)
        first, second = (await client.list(f"chat/completions/{response['id']}/messages"))["data"]
    assert (first["role"], first["content"], first["content_parts"]) == ("system", "Be brief.", None)
    assert (second["role"], second["content"], second["content_parts"]) == ("user", None, messages[1]["content"])
    assert (first["name"], second["name"]) == (None, "ann") and first["id"] != second["id"]


# Lists


async def conversation_items(client):
    made = await client.create("conversations", items=[{"role": "user", "content": f"{i}"} for i in range(7)])
    return f"conversations/{made['id']}/items"


async def input_items(client):
    """Return the path of the input items of a response, in a chain that branches twice."""
    first = await client.respond([USER, USER])
    second = await client.respond("a", previous_response_id=first["id"])
    third = await client.respond("b", previous_response_id=first["id"])
    await client.respond("c", previous_response_id=third["id"])
    last = await client.respond("d", previous_response_id=third["id"])
    await client.delete(f"responses/{second['id']}")
    return f"responses/{last['id']}/input_items"


async def stored_completions(client):
    for _ in range(7):
        await client.complete()
    return "chat/completions"


async def messages(client):
    turns = [{"role": ("user", "assistant")[i % 2], "content": f"{i}"} for i in range(7)]
    response = await client.create("chat/completions", model="m", messages=turns, store=True)
    return f"chat/completions/{response['id']}/messages"


LISTS = {
    "conversation items": (conversation_items, "desc", 7),
    "input items": (input_items, "desc", 6),
    "completions": (stored_completions, "asc", 7),
    "messages": (messages, "asc", 7),
}


@pytest.mark.parametrize("case", LISTS)
async def test_list_pages_add_up_to_the_whole_list(serving, case):
    fill, order, size = LISTS[case]
    async with serving() as client:
        path = await fill(client)
        everything = await client.list(path, limit=100)
        assert len({one["id"] for one in everything["data"]}) == size and everything["has_more"] is False
        other = await client.list(path, order="asc" if order == "desc" else "desc")
        assert other["data"] == everything["data"][::-1]
        assert await client.list(path, order=order) == everything
        for limit in (1, 2, 3, size - 1, size):
            for direction in ("asc", "desc"):
                paged, more, after = [], True, {}
                while more:
                    page = await client.list(path, limit=limit, order=direction, **after)
                    more, after = page["has_more"], {"after": page["last_id"]}
                    paged += page["data"]
                    assert len(page["data"]) == limit or not more
                assert paged == (everything if direction == order else other)["data"]
                assert (await client.list(path, order=direction, **after))["data"] == []


async def test_list_page_has_twenty_items():
    async with site() as client:
        made = await client.create("conversations", items=[USER] * 20)
        path = f"conversations/{made['id']}/items"
        assert (await client.list(path))["has_more"] is False
        await client.create(path, items=[USER])
        listed = await client.list(path)
    assert (len(listed["data"]), listed["has_more"]) == (20, True)


QUERIES = {
    "limit=0": "integer_below_min_value",
    "limit=101": "integer_above_max_value",
    "limit=many": "invalid_type",
    "limit=": "invalid_type",
    "limit=1.5": "invalid_type",
    "order=newest": "invalid_value",
    "after=msg_none": "invalid_value",
    "after=": "invalid_value",
}


@pytest.mark.parametrize("case", LISTS)
async def test_list_names_the_bad_query_parameter(case):
    async with site() as client:
        path = await LISTS[case][0](client)
        for query, code in QUERIES.items():
            answer = await client.site.client.get(f"/v1/{path}?{query}")
            assert problem(answer) == (400, BAD, code, query.partition("=")[0]), query


VIEWS = {
    "include=x": ("invalid_value", "include[0]"),
    "include[]=reasoning.encrypted_content&include[]=x": ("invalid_value", "include[1]"),
    "stream=1": ("invalid_type", "stream"),
    "starting_after=x": ("invalid_type", "starting_after"),
    "starting_after=-1": ("integer_below_min_value", "starting_after"),
    "include_obfuscation=no": ("invalid_type", "include_obfuscation"),
}


async def test_response_view_names_the_bad_query_parameter():
    async with site() as client:
        response = await client.respond("Hi")
        for query, (code, param) in VIEWS.items():
            answer = await client.site.client.get(f"/v1/responses/{response['id']}?{query}")
            assert problem(answer) == (400, BAD, code, param), query


async def test_conversation_items_cannot_be_paged_after_a_foreign_item():
    async with site() as client:
        item = (await client.create("conversations", items=[{**USER, "id": "mine"}]))["id"]
        assert (await client.list(f"conversations/{item}/items", after="mine"))["data"] == []
        other = (await client.create("conversations", items=[USER]))["id"]
        assert problem(await client.get(f"conversations/{other}/items", after="mine"))[3] == "after"
        assert problem(await client.get(f"conversations/{other}/items/mine")) == GONE


# All of them

ROUTES = [
    ("GET", "/v1/responses/{response}", None),
    ("DELETE", "/v1/responses/{response}", None),
    ("POST", "/v1/responses/{response}/cancel", None),
    ("GET", "/v1/responses/{response}/input_items", None),
    ("GET", "/v1/conversations/{conversation}", None),
    ("POST", "/v1/conversations/{conversation}", {"metadata": {}}),
    ("DELETE", "/v1/conversations/{conversation}", None),
    ("GET", "/v1/conversations/{conversation}/items", None),
    ("POST", "/v1/conversations/{conversation}/items", {"items": [USER]}),
    ("GET", "/v1/conversations/{conversation}/items/mine", None),
    ("DELETE", "/v1/conversations/{conversation}/items/mine", None),
    ("GET", "/v1/chat/completions/{completion}", None),
    ("POST", "/v1/chat/completions/{completion}", {"metadata": {}}),
    ("DELETE", "/v1/chat/completions/{completion}", None),
    ("GET", "/v1/chat/completions/{completion}/messages", None),
]
OPEN = [("POST", "/v1/conversations", {}), ("GET", "/v1/chat/completions", None)]


async def test_tenant_gets_404_for_objects_of_another_tenant(serving):
    async with serving(auth=KEYS) as client:
        http = client.site.client
        http.headers.update(bearer("a-key"))
        named = {
            "response": (await client.respond("Hi"))["id"],
            "conversation": (await client.create("conversations", items=[{**USER, "id": "mine"}]))["id"],
            "completion": (await client.complete())["id"],
        }
        before = [(await http.get(path.format(**named))).json() for method, path, _ in ROUTES if method == "GET"]
        for method, path, body in ROUTES:
            answer = await http.request(method, path.format(**named), json=body, headers=bearer("b-key"))
            unknown = dict.fromkeys(named, "none")
            nothing = await http.request(method, path.format(**unknown), json=body, headers=bearer("b-key"))
            assert problem(answer) == problem(nothing) == GONE, path
            hidden = answer.text
            for id in named.values():
                hidden = hidden.replace(id, "none")
            assert hidden == nothing.text
        assert (await http.get("/v1/chat/completions", headers=bearer("b-key"))).json()["data"] == []
        after = {"after": named["completion"]}
        assert problem(await http.get("/v1/chat/completions", params=after, headers=bearer("b-key")))[3] == "after"
        reference = {"items": [{"id": "mine"}]}
        assert problem(await http.post("/v1/conversations", json=reference, headers=bearer("b-key"))) == (
            404,
            BAD,
            None,
            "items[0]",
        )
        after = [(await http.get(path.format(**named))).json() for method, path, _ in ROUTES if method == "GET"]
    assert before == after


async def test_api_key_is_needed_on_every_store_route():
    async with site(auth=KEYS) as client:
        for method, path, body in [*ROUTES, *OPEN]:
            answer = await client.site.client.request(method, path, json=body)
            assert problem(answer)[:3] == (401, BAD, "invalid_api_key"), path


async def test_store_that_cannot_be_used_is_503_on_every_route(tmp_path):
    (tmp_path / "store.db").write_bytes(b"This is no database. " * 100)
    async with site(store={"url": f"sqlite:///{tmp_path}/store.db"}) as client:
        for method, path, body in [*ROUTES, *OPEN]:
            answer = await client.site.client.request(method, path, json=body)
            assert problem(answer) == (503, "server_error", "store_unavailable", None), path


async def test_openapi_describes_every_store_route():
    async with site() as client:
        paths = (await client.site.client.get("/openapi.json")).json()["paths"]
    operations = {
        f"{method.upper()} {path}": route for path, routes in paths.items() for method, route in routes.items()
    }
    for method, path, _ in [*ROUTES, *OPEN]:
        parts = ("{item_id}" if part == "mine" else "{id}" if part[0] == "{" else part for part in path[1:].split("/"))
        assert operations[f"{method} /{'/'.join(parts)}"]["description"].endswith(".")
    assert len({route["operationId"] for route in operations.values()}) == len(operations)
