"""Test kept pasts with files, images and custom tools: a turn sends and checks the same as without a kept past."""

import base64
import json
import sys

import pytest

from gateway.server.fetch import pdf_reader
from gateway.server.http import memory
from gateway.store import item_lists
from support.app import gateway, problem
from support.pdf import pdf, words
from support.upstream import Upstream, completion_body, whole
from support.web import HERE, PNG, page, web

FILLERS = [{"role": ("user", "assistant")[i % 2], "content": f"text {i}"} for i in range(40)]
TEXT = {"type": "input_file", "filename": "a.txt", "file_data": "data:text/plain;base64,SGVsbG8="}
PDF = {"type": "input_file", "filename": "a.pdf", "file_data": base64.b64encode(pdf(words("World"))).decode()}
CALL = {"type": "custom_tool_call", "call_id": "call_1", "name": "patch", "input": "*** é"}
OUTPUT = {"type": "custom_tool_call_output", "call_id": "call_1", "output": "Done."}
TOOL = {"type": "custom", "name": "patch"}


def user(*parts):
    return {"role": "user", "content": [*parts]}


def image(url):
    return {"type": "input_image", "image_url": url, "detail": "auto"}


@pytest.fixture
def read(monkeypatch):
    """Return the numbers of items that turns have read from the store."""
    counts, plain = [], item_lists.read

    async def reading(db, ranges):
        found = await plain(db, ranges)
        counts.append(len(found))
        return found

    monkeypatch.setattr(item_lists, "read", reading)
    return counts


def site_of(count, **settings):
    return gateway(*(whole(completion_body("ok")) for _ in range(count)), **settings)


async def upload(site, content=b"Hello", name="b.txt"):
    response = await site.client.post("/v1/files", files={"file": (name, content)}, data={"purpose": "user_data"})
    return response.json()["id"]


async def chain(site, *items, turns=3, **fields):
    """Send the items and the turns behind them; return all responses."""
    answers = [await site.respond(input=[*FILLERS, *items], **fields)]
    for i in range(turns):
        answers.append(await site.respond(input=f"turn {i}", previous_response_id=answers[-1].json()["id"], **fields))
    return answers


def whole_input(items, turns):
    """Return the items and turns as one input."""
    answer = {"role": "assistant", "content": "ok"}
    return [
        *FILLERS,
        *items,
        *(one for i in range(turns) for one in (answer, {"role": "user", "content": f"turn {i}"})),
    ]


@pytest.mark.parametrize("kind", ["vllm", "openai", "llamacpp", "sglang"])
@pytest.mark.parametrize("tools", [[], [TOOL]])
async def test_turn_behind_kept_files_sends_what_all_items_give(read, kind, tools):
    fetch = {"fetch": True, "networks": [HERE]}
    async with web({"/a": page(PNG)}) as there, site_of(9, backend={"kind": kind}, images=fetch) as site:
        named = {"type": "input_file", "file_id": await upload(site)}
        shown = {"type": "input_image", "file_id": await upload(site, PNG, "c.png"), "detail": "auto"}
        items = [user(TEXT, PDF), CALL, OUTPUT, user(named, shown), user(image(f"{there.url}/a"))]
        *_, last = await chain(site, *items, tools=tools)
        kept = site.upstream_body["messages"]
        assert read[-1] == 2
        again = await site.respond(input=whole_input(items, 3), tools=tools, store=False)
        assert kept == site.upstream_body["messages"] and "World" in json.dumps(kept)
        warnings = [{*answer.headers["x-gateway-warnings"].split(", ")} for answer in (last, again)]
        assert warnings[0] == warnings[1]


@pytest.mark.parametrize("kind", ["transformers", "sglang", "llamacpp"])
async def test_kept_past_fits_another_model_with_other_tools(read, kind):
    settings = {
        "backend": {"kind": "vllm"},
        "images": {"fetch": True, "networks": [HERE]},
        "more_models": {"other": {"backends": ["theirs"]}},
    }
    async with web({"/a": page(PNG)}) as there, Upstream([whole(completion_body("ok"))] * 2, ()).serving() as upstream:
        settings["more_backends"] = {"theirs": {"url": upstream.url, "kind": kind}}
        async with site_of(9, **settings) as site:
            items = [user(TEXT), CALL, OUTPUT, user(image(f"{there.url}/a"))]
            *_, last = await chain(site, *items)
            other = {"model": "other", "tools": [TOOL]}
            await site.respond(input="turn 3", previous_response_id=last.json()["id"], **other)
            assert read[-1] == 2
            await site.respond(input=whole_input(items, 4), store=False, **other)
            kept, again = [post.json["messages"] for post in upstream.posts]
            assert kept == again and len(kept) > 40


@pytest.mark.parametrize("part", ["file", "image"])
async def test_deleted_file_of_a_kept_past_is_reported(read, part):
    async with site_of(9) as site:
        id = await upload(site, PNG)
        *_, last = await chain(site, user({"type": f"input_{part}", "file_id": id}))
        assert read[-1] == 2
        await site.client.delete(f"/v1/files/{id}")
        answer = await site.respond(previous_response_id=last.json()["id"])
        assert problem(answer) == (404, "invalid_request_error", "file_not_found", "input")
        assert id in answer.json()["error"]["message"]


async def test_files_of_a_kept_past_count_for_the_limit(read):
    async with site_of(9, files={"max_bytes": 12}) as site:
        named = user({"type": "input_file", "file_id": await upload(site)})
        *_, last = await chain(site, named)
        more = {"previous_response_id": last.json()["id"]}
        assert read[-1] == 2 and (await site.respond(input=[named], **more)).status_code == 200
        answer = await site.respond(input=[user(*named["content"] * 2)], **more)
        assert problem(answer)[2] == "file_too_large" and read[-1] == 0


async def test_files_that_are_too_large_together_are_refused_as_without_a_kept_past():
    async with site_of(9, files={"max_bytes": 12}) as site:
        named = {"type": "input_file", "file_id": await upload(site)}
        first = await site.respond(input=[*FILLERS, user(named, named)])
        second = await site.respond(input=[user(named)], previous_response_id=first.json()["id"])
        assert problem(second)[2:] == ("file_too_large", "input[0].content[0].file_id")


async def test_file_of_a_chain_whose_bytes_are_gone_fails_the_request():
    async with site_of(9) as site:
        first = await site.respond(input=[*FILLERS, user({"type": "input_file", "file_id": await upload(site)})])
        for path in site.app.state.store.folder.iterdir():
            path.unlink()
        answer = await site.respond(previous_response_id=first.json()["id"])
        assert problem(answer)[:3] == (503, "server_error", "store_unavailable")


async def test_many_stored_files_of_a_chain_are_kept(read):
    async with site_of(9) as site:
        ids = [await upload(site, b"a%d" % i) for i in range(21)]
        await chain(site, *[user({"type": "input_file", "file_id": id}) for id in ids], *FILLERS * 5)
        assert read[-1] == 2 and site.upstream_body["messages"][60]["content"].endswith("a20</file>")


async def test_image_urls_of_a_kept_past_are_fetched_in_each_turn_within_the_memory(monkeypatch, read):
    monkeypatch.setattr(memory, "_MAX_WAIT", 0.01)
    settings = {"images": {"fetch": True, "networks": [HERE]}, "limits": {"memory_bytes": 200_000}}
    async with (
        web({"/a": page(PNG + bytes(50_000))}) as there,
        site_of(9, backend={"kind": "llamacpp"}, **settings) as site,
    ):
        *_, last = await chain(site, user(image(f"{there.url}/a")))
        assert read[-1] == 2 and len(there.requests) == 4
        site.app.state.buffers.taken += 180_000
        answer = await site.respond(previous_response_id=last.json()["id"])
        assert problem(answer)[2] == "server_is_overloaded"
        site.app.state.buffers.taken -= 180_000


async def test_file_at_a_url_is_read_in_each_turn(read):
    settings = {"files": {"fetch": True, "networks": [HERE]}}
    async with web({"/a": page(b"Hello")}) as there, site_of(9, **settings) as site:
        await chain(site, user({"type": "input_file", "file_url": f"{there.url}/a"}))
        assert len(there.requests) == 4 and read[-1] > 40


async def test_pdf_that_was_not_read_to_its_end_is_read_in_each_turn(monkeypatch, read):
    program = "print('\"World\"', flush=True); raise SystemExit(1)"
    monkeypatch.setattr(pdf_reader, "_COMMAND", (sys.executable, "-I", "-c", program))
    async with site_of(9) as site:
        *_, last = await chain(site, user(PDF))
        assert read[-1] > 40 and last.headers["x-gateway-warnings"] == "truncated:file"


async def test_reasoning_memory_finds_reasoning_behind_files():
    thinking = whole(completion_body("ok", reasoning_content="Hm."))
    async with gateway(*[thinking] * 4, responses={"reasoning_memory": True}) as site:
        first = await site.respond(input=[*FILLERS, user(TEXT)])
        for _ in range(3):
            first = await site.respond(input="b", previous_response_id=first.json()["id"])
        thoughts = [message.get("reasoning_content") for message in site.upstream_body["messages"][-6:]]
        assert thoughts == ["Hm.", None] * 3
