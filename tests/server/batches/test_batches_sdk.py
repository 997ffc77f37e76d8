"""Test batches with the official SDK, sync and async, against a running gateway."""

import asyncio
import json

import openai
import pytest
from openai.types import Batch

from support.app import listening
from support.batches import CHAT, RUNNING, chat_line
from support.upstream import HELLO
from support.wait import DEADLINE, settled, until

CLIENTS = [openai.AsyncOpenAI, openai.OpenAI]


@pytest.mark.parametrize("kind", CLIENTS)
async def test_sdk_runs_a_batch(kind):
    async with listening(HELLO) as site:
        client = kind(base_url=f"{site.client.base_url}/v1", api_key="k", timeout=DEADLINE, max_retries=0)
        lines = b"\n".join([chat_line("a"), chat_line("b")])

        async def call(method, *args, **fields):
            result = await asyncio.to_thread(method, *args, **fields)
            return await settled(result)

        file = await call(client.files.create, file=("lines.jsonl", lines), purpose="batch")
        made = await call(client.batches.create, input_file_id=file.id, endpoint=CHAT, completion_window="24h")
        assert isinstance(made, Batch) and made.status == "validating"
        found = [made]

        async def runs():
            found.append(await call(client.batches.retrieve, made.id))
            return found[-1].status in RUNNING

        await until(runs, False)
        batch = found[-1]
        assert (batch.status, batch.request_counts.completed) == ("completed", 2)
        content = await call(client.files.content, batch.output_file_id)
        assert {json.loads(one)["custom_id"] for one in content.text.splitlines()} == {"a", "b"}
        page = await call(client.batches.list)
        assert [one.id for one in page.data] == [made.id]
        with pytest.raises(openai.BadRequestError, match="cannot be cancelled"):
            await call(client.batches.cancel, made.id)
        await call(client.close)
