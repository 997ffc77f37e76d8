"""Test files and uploads with the official SDK, sync and async, against a running gateway and both databases."""

import asyncio
import hashlib

import openai
import pytest
from openai.types import FileObject, Upload

from support.app import listening
from support.wait import DEADLINE, settled

DATA = bytes(range(256)) * 8192
AFTER = {"anchor": "created_at", "seconds": 3600}


async def everything(pages):
    pages = pages if hasattr(pages, "__aiter__") else await settled(pages)
    return [one async for one in pages] if hasattr(pages, "__aiter__") else [*pages]


async def files(client):
    made = await settled(client.files.create(file=("ä.bin", DATA), purpose="user_data", expires_after=AFTER))
    assert isinstance(made, FileObject) and (made.bytes, made.filename) == (len(DATA), "ä.bin")
    assert made.expires_at == made.created_at + 3600
    batch = await settled(client.files.create(file=("lines.jsonl", b'{"a": 1}\n{"b": 2}\n'), purpose="batch"))
    assert await settled(client.files.retrieve(made.id)) == made
    assert {file.id for file in await everything(client.files.list(limit=1))} == {made.id, batch.id}
    assert await everything(client.files.list(purpose="batch")) == [batch]
    assert (await settled(client.files.content(made.id))).content == DATA
    assert (await settled(client.files.content(batch.id))).text.splitlines() == ['{"a": 1}', '{"b": 2}']
    assert (await settled(client.files.delete(made.id))).deleted
    with pytest.raises(openai.NotFoundError, match=made.id):
        await settled(client.files.content(made.id))
    with pytest.raises(openai.BadRequestError, match="Invalid value: 'fun'"):
        await settled(client.files.create(file=b"x", purpose="fun"))


async def uploads(client):
    described = {"bytes": len(DATA), "filename": "a.bin", "mime_type": "application/octet-stream", "purpose": "evals"}
    upload = await settled(client.uploads.create(**described))
    assert isinstance(upload, Upload) and upload.status == "pending"
    parts = [
        await settled(client.uploads.parts.create(upload.id, data=DATA[begin : begin + 1_500_000]))
        for begin in (0, 1_500_000)
    ]
    digest = hashlib.md5(DATA).hexdigest()
    done = await settled(client.uploads.complete(upload.id, part_ids=[part.id for part in parts], md5=digest))
    assert done.status == "completed" and (await settled(client.files.content(done.file.id))).content == DATA
    chunked = await settled(client.uploads.upload_file_chunked(file=DATA, part_size=1 << 20, **described))
    assert (await settled(client.files.retrieve(chunked.file.id))).bytes == len(DATA)
    other = await settled(client.uploads.create(**described))
    assert (await settled(client.uploads.cancel(other.id))).status == "cancelled"


def sdk(url):
    return openai.AsyncOpenAI(base_url=url, api_key="k", timeout=DEADLINE, max_retries=0)


STORIES = [files, uploads]


@pytest.mark.parametrize("story", STORIES)
async def test_files_sdk_async_client(story, store_url):
    async with listening(store={"url": store_url}) as site, sdk(f"{site.client.base_url}/v1") as client:
        await story(client)


@pytest.mark.parametrize("story", STORIES)
async def test_files_sdk_sync_client(story, store_url):
    def run(url):
        with openai.OpenAI(base_url=url, api_key="k", max_retries=0) as client:
            asyncio.run(story(client))

    async with listening(store={"url": store_url}) as site:
        await asyncio.to_thread(run, f"{site.client.base_url}/v1")
