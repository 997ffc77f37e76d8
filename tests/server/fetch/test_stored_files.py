"""Test requests that name stored files by id: in each API, for their owner only, and within limits."""

import base64

import anthropic
import openai
import pytest
from sqlalchemy import update

from gateway.server.http import memory
from gateway.store import tables
from gateway.store.file_store import FileStore
from support.anthropic_server import MessagesServer
from support.anthropic_server import text as reply_text
from support.app import gateway, listening, problem
from support.jobs import accepted, ended
from support.pdf import pdf, words
from support.stored import ANN, BOB, TENANTS
from support.upstream import HELLO, KEY, completion_body, whole
from support.web import PNG

TEXT = '<file name="a.txt">Hello</file>'
URL = f"data:image/png;base64,{base64.b64encode(PNG).decode()}"
MISSING = 404, "invalid_request_error", "file_not_found"


async def upload(site, content=b"Hello", name="a.txt", headers=None, purpose="user_data"):
    """Store a file, and return its id."""
    files, data = {"file": (name, content)}, {"purpose": purpose}
    response = await site.client.post("/v1/files", files=files, data=data, headers=headers)
    assert response.status_code == 200, response.text
    return response.json()["id"]


def file_part(id, **more):
    return {"type": "file", "file": {"file_id": id, **more}}


def user(*parts):
    return [{"role": "user", "content": [*parts]}]


def input_file(id):
    return {"type": "input_file", "file_id": id}


def input_image(id):
    return {"type": "input_image", "file_id": id}


def block(id, type="document"):
    return {"type": type, "source": {"type": "file", "file_id": id}}


def last_content(site):
    """Return the content of the last message that the backend got."""
    return site.upstream_body["messages"][-1]["content"]


async def test_file_of_a_chat_completion_is_read():
    async with gateway(HELLO) as site:
        id = await upload(site)
        for part, text in ((file_part(id), TEXT), (file_part(id, filename="b"), '<file name="b">Hello</file>')):
            response = await site.chat(messages=user(part), stream=True)
            assert response.headers["x-gateway-warnings"] == "translated:file_id, translated:file"
            assert last_content(site) == text


@pytest.mark.parametrize("purpose", ["assistants", "vision", "user_data", "evals"])
async def test_file_of_each_purpose_is_read(purpose):
    async with gateway(HELLO) as site:
        await site.chat(messages=user(file_part(await upload(site, purpose=purpose))), stream=True)
        assert last_content(site) == TEXT


async def test_file_of_several_chunks_is_read():
    async with gateway(HELLO) as site:
        content = b"word " * 500_000
        await site.chat(messages=user(file_part(await upload(site, content))), stream=True)
        assert last_content(site) == f'<file name="a.txt">{content.decode()}</file>'


async def test_file_of_a_completed_upload_is_read():
    async with gateway(HELLO) as site:
        described = {"bytes": 5, "filename": "a.txt", "mime_type": "text/plain", "purpose": "user_data"}
        path = f"/v1/uploads/{(await site.client.post('/v1/uploads', json=described)).json()['id']}"
        part = (await site.client.post(f"{path}/parts", files={"data": b"Hello"})).json()["id"]
        done = (await site.client.post(f"{path}/complete", json={"part_ids": [part]})).json()
        await site.chat(messages=user(file_part(done["file"]["id"])), stream=True)
        assert last_content(site) == TEXT


@pytest.mark.parametrize("kind", ["openai", "llamacpp"])
async def test_file_and_image_of_a_response_are_read(kind):
    async with gateway(whole(completion_body()), backend={"kind": kind}) as site:
        file, image = await upload(site, pdf(words("Hallo")), "a.pdf"), await upload(site, PNG, "b")
        response = await site.respond(input=user(input_file(file), {**input_image(image), "detail": "high"}))
        assert last_content(site) == [
            {"type": "text", "text": '<file name="a.pdf">Hallo</file>'},
            {"type": "image_url", "image_url": {"detail": "high", "url": URL}},
        ]
        shown = (await site.client.get(f"/v1/responses/{response.json()['id']}/input_items")).json()["data"]
        assert [part["file_id"] for part in shown[0]["content"]] == [file, image]


async def test_file_in_the_output_of_a_tool_call_is_read():
    async with gateway(whole(completion_body())) as site:
        call = {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"}
        output = {"type": "function_call_output", "call_id": "c", "output": [input_file(await upload(site))]}
        await site.respond(input=[call, output])
        assert last_content(site) == TEXT


async def test_file_of_a_message_is_read_and_counted():
    async with gateway(whole(completion_body())) as site:
        file, image = await upload(site), await upload(site, PNG, "b")
        response = await site.message(messages=user({**block(file), "title": "t"}, block(image, "image")))
        assert response.status_code == 200
        assert last_content(site) == [
            {"type": "text", "text": '<file name="t">Hello</file>'},
            {"type": "image_url", "image_url": {"url": URL}},
        ]
        body = {"model": "m", "messages": user(block(file))}
        assert (await site.client.post("/v1/messages/count_tokens", json=body)).json()["input_tokens"] > 5


async def test_file_of_a_background_response_is_read():
    async with gateway(HELLO) as site:
        id = await accepted(site, input=user(input_file(await upload(site))))
        assert (await ended(site, id))["status"] == "completed"
        assert last_content(site) == TEXT


async def test_file_is_read_at_each_request_that_continues_its_item():
    async with gateway(whole(completion_body()), whole(completion_body()), whole(completion_body())) as site:
        id = await upload(site)
        conversation = (await site.client.post("/v1/conversations", json={"items": user(input_file(id))})).json()["id"]
        assert (await site.respond(conversation=conversation)).status_code == 200
        assert site.upstream_body["messages"][0]["content"] == TEXT
        first = await site.respond(input=user(input_file(id)))
        following = {"previous_response_id": first.json()["id"]}
        assert (await site.respond(**following)).status_code == 200
        assert site.upstream_body["messages"][0]["content"] == TEXT
        await site.client.delete(f"/v1/files/{id}")
        for continued in (following, {"conversation": conversation}):
            response = await site.respond(**continued)
            assert problem(response) == (*MISSING, "input")
            assert id in response.json()["error"]["message"]
        assert len(site.upstream.posts) == 3


async def test_file_of_another_tenant_is_not_found():
    async with gateway(HELLO, auth=TENANTS) as site:
        messages = user(file_part(await upload(site, headers=ANN)))
        assert problem(await site.chat(messages=messages, headers=BOB)) == (
            *MISSING,
            "messages[0].content[0].file.file_id",
        )
        assert (await site.chat(messages=messages, headers=ANN, stream=True)).status_code == 200


async def test_file_that_has_expired_is_not_found():
    async with gateway(HELLO) as site:
        id = await upload(site)
        async with site.app.state.store.writing() as db:
            await db.execute(update(tables.files).values(expires_at=1))
        assert problem(await site.chat(messages=user(file_part(id))))[:3] == MISSING


@pytest.mark.parametrize("id", ["file-missing", "file_of_another_service", "", "file-\0"])
async def test_missing_file_is_named_by_its_path_in_each_api(id):
    async with gateway() as site:
        chat = await site.chat(messages=user({"type": "text", "text": "q"}, file_part(id)))
        assert problem(chat) == (*MISSING, "messages[0].content[1].file.file_id")
        for part in (input_file(id), input_image(id)):
            response = await site.respond(input=user({"type": "input_text", "text": "q"}, part))
            assert problem(response) == (*MISSING, "input[0].content[1].file_id")
            assert response.json()["error"]["message"].startswith("Invalid 'input[0].content[1].file_id': your API key")
        for type in ("document", "image"):
            message = await site.message(messages=user({"type": "text", "text": "q"}, block(id, type)))
            error = message.json()["error"]
            assert (message.status_code, error["type"]) == (404, "not_found_error")
            assert "messages.0.content.1" in error["message"] or "messages[0].content[1]" in error["message"]


async def test_missing_file_is_reported_beside_a_stored_one():
    async with gateway() as site:
        parts = [file_part(await upload(site)), file_part("file-missing")]
        assert problem(await site.chat(messages=user(*parts))) == (*MISSING, "messages[0].content[1].file.file_id")


async def test_file_that_is_no_image_is_refused_as_an_image():
    async with gateway() as site:
        response = await site.respond(input=user(input_image(await upload(site))))
        expected = 400, "invalid_request_error", "unsupported_image_media_type", "input[0].content[0].file_id"
        assert problem(response) == expected


async def test_files_count_each_time_they_are_named():
    async with gateway(HELLO, files={"max_bytes": 10}, images={"max_bytes": 2 * len(PNG)}) as site:
        file, image = await upload(site), await upload(site, PNG)
        two = [file_part(file)] * 2
        assert (await site.chat(messages=user(*two), stream=True)).status_code == 200
        response = await site.chat(messages=user(*two, file_part(file)))
        assert problem(response) == (
            400,
            "invalid_request_error",
            "file_too_large",
            "messages[0].content[2].file.file_id",
        )
        assert "10 bytes in total (files.max_bytes)" in response.json()["error"]["message"]
        response = await site.respond(input=user(*[input_image(image)] * 3))
        assert problem(response)[2:] == ("image_file_too_large", "input[0].content[0].file_id")


async def test_files_take_memory_like_bodies(monkeypatch):
    monkeypatch.setattr(memory, "_MAX_WAIT", 0.01)
    async with gateway(HELLO, limits={"memory_bytes": 200_000}) as site:
        buffers, messages = site.app.state.buffers, user(file_part(await upload(site, b"x" * 50_000)))
        buffers.taken += 100_000
        assert problem(await site.chat(messages=messages))[2] == "server_is_overloaded"
        buffers.taken -= 100_000
        assert (await site.chat(messages=messages, stream=True)).status_code == 200
        assert buffers.taken == 0


async def test_file_whose_bytes_are_gone_fails_the_request():
    async with gateway() as site:
        messages = user(file_part(await upload(site)))
        for path in site.app.state.store.folder.iterdir():
            path.unlink()
        assert problem(await site.chat(messages=messages))[:3] == (503, "server_error", "store_unavailable")


async def test_request_without_file_ids_reads_no_file(monkeypatch):
    def fail(*_):
        raise AssertionError

    monkeypatch.setattr(FileStore, "read", fail)
    async with gateway(whole(completion_body())) as site:
        monkeypatch.setattr(site.app.state.handler._parser.files, "_database", None)
        image = {"type": "image_url", "image_url": {"url": URL}}
        data = {"type": "file", "file": {"file_data": base64.b64encode(b"Hello").decode()}}
        assert (await site.chat(messages=user(image, data))).status_code == 200


# Backends of the Messages API


async def test_file_id_of_its_own_reaches_a_messages_backend_unchanged():
    async with MessagesServer(lambda _: [reply_text("Hi")]).serving() as server:
        backends = {"claude": {"kind": "anthropic", "url": server.url, "api_key": KEY}}
        models = {"a": {"backends": ["claude"]}}
        async with gateway(more_backends=backends, more_models=models) as site:
            own, elsewhere = await upload(site), user(block("file_elsewhere"))
            assert (await site.message(model="a", messages=elsewhere)).status_code == 200
            assert server.posts[-1].json["messages"] == elsewhere
            assert (await site.message(model="a", messages=user(block(own)))).status_code == 200
            assert server.posts[-1].json["messages"] == user({"type": "text", "text": TEXT})
            response = await site.message(model="a", messages=user(block(own), block("file_elsewhere")))
            assert (response.status_code, response.json()["error"]["type"]) == (404, "not_found_error")


# SDKs


async def test_file_of_the_openai_sdk_is_read():
    async with (
        listening(whole(completion_body()), whole(completion_body())) as site,
        openai.AsyncOpenAI(base_url=f"{site.client.base_url}/v1", api_key="k", max_retries=0) as client,
    ):
        file = await client.files.create(file=("a.txt", b"Hello"), purpose="user_data")
        await client.chat.completions.create(model="m", messages=user(file_part(file.id)))
        assert last_content(site) == TEXT
        await client.responses.create(model="m", input=user(input_file(file.id)))
        assert last_content(site) == TEXT
        await client.files.delete(file.id)
        with pytest.raises(openai.NotFoundError, match=file.id):
            await client.responses.create(model="m", input=user(input_file(file.id)))


async def test_file_of_the_anthropic_sdk_is_read():
    async with (
        listening(whole(completion_body())) as site,
        anthropic.AsyncAnthropic(base_url=str(site.client.base_url), api_key="x", max_retries=0) as client,
    ):
        request = {"model": "m", "max_tokens": 9, "betas": ["files-api-2025-04-14"]}
        id = await upload(site)
        await client.beta.messages.create(**request, messages=user(block(id)))
        assert last_content(site) == TEXT
        with pytest.raises(anthropic.NotFoundError, match="file_elsewhere"):
            await client.beta.messages.create(**request, messages=user(block("file_elsewhere")))
