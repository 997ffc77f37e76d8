"""What clients of a proxy see while the gateways behind it are killed, restarted and upgraded."""

import asyncio
from contextlib import suppress

import httpx
import pytest
from httpx_sse import aconnect_sse
from sqlalchemy import text
from websockets.exceptions import ConnectionClosed

from replicas.load import ASK, OUTPUT_TEXT, WHOLE, Load
from replicas.next_release import REVISION, write_next_release
from replicas.proxied import CONFIG, NAMES, fleet
from support.limits import KEYS, check_all
from support.wait import DEADLINE, idle, until
from support.websocket import ENDS, connected, response

pytestmark = pytest.mark.parametrize("store_url", ["postgresql"], indirect=True)
ONE, OTHER = NAMES


@pytest.fixture
async def site(store_url, tmp_path):
    async with fleet(store_url, tmp_path) as one:
        yield one


# A gateway is killed


class Reader:
    """A streamed response as its client gets it, who comes back where the connection was lost."""

    def __init__(self, client, **fields):
        self._client, self.events, self.lost = client, [], 0
        self.task = asyncio.create_task(self._read(fields))

    async def _read(self, fields):
        await self._follow("POST", "/v1/responses", json={**fields, "stream": True})
        while self.events[-1]["type"] not in ENDS:
            self.lost += 1
            after = {"stream": True, "starting_after": self.events[-1]["sequence_number"]}
            await self._follow("GET", f"/v1/responses/{self.id}", params=after)

    async def _follow(self, *arguments, **more):
        with suppress(httpx.RemoteProtocolError):
            async with aconnect_sse(self._client, *arguments, **more) as source:
                async for event in source.aiter_sse():
                    if event.data != "[DONE]":
                        self.events.append(event.json())

    @property
    def id(self):
        return self.events[0]["response"]["id"]

    @property
    def text(self):
        return "".join(event["delta"] for event in self.events if event["type"] == "response.output_text.delta")

    async def wait_for(self, words):
        def has_words():
            assert words in self.text or not self.task.done(), self.events
            return words in self.text

        await until(has_words)


async def test_nothing_is_lost_when_a_gateway_is_killed(site):
    """Of three responses that it is at work on, and of what is asked meanwhile."""
    slow = {"model": "m", "input": "@@text 0.4@@"}
    await site.proxy.only(ONE)
    polled = await site.ai.responses.create(**slow, background=True)
    readers = [Reader(site.client, **slow, background=background) for background in (True, False)]
    for reader in readers:
        await reader.wait_for("word 2")
    await site.proxy.all()
    await site.replicas[ONE].kill()

    for _ in range(20):
        answer = await site.ai.responses.create(model="m", input="@@text 0@@")
        assert answer.output_text == WHOLE
    for reader in readers:
        await reader.task
        assert reader.lost == 1
        assert [event["sequence_number"] for event in reader.events] == [*range(len(reader.events))]
        last = reader.events[-1]["response"]
        assert (last["status"], last["error"]["code"]) == ("failed", "server_error")
        assert OUTPUT_TEXT.startswith(reader.text) and last["output"][0]["content"][0]["text"] == reader.text
        assert (await site.client.get(f"/v1/responses/{reader.id}")).json() == last

    async def over():
        return (await site.ai.responses.retrieve(polled.id)).status not in ("queued", "in_progress")

    await until(over)
    found = await site.ai.responses.retrieve(polled.id)
    assert (found.status, found.output_text) == ("completed", OUTPUT_TEXT)


# What they share


async def test_a_conversation_goes_on_through_either(site):
    conversation = (await site.ai.conversations.create()).id
    for turn in range(6):
        await site.proxy.only(NAMES[turn % 2])
        await site.ai.responses.create(model="m", input=f"{turn}", conversation=conversation)
    items = (await site.ai.conversations.items.list(conversation, order="asc")).data
    texts = [item.content[0].text for item in items]
    assert texts[::2] == [f"{turn}" for turn in range(6)] and texts[1::2] == [WHOLE] * 6
    assert all([await site.proxy.passed(name) >= 3 for name in NAMES])


@pytest.mark.parametrize("stream", [False, True])
async def test_a_request_that_is_sent_again_is_answered_by_the_other(site, stream):
    answers = []
    for name in NAMES:
        await site.proxy.only(name)
        request = {"model": "m", "input": ASK, "stream": stream}
        answers.append(await site.client.post("/v1/responses", json=request, headers={"idempotency-key": "k"}))
    first, again = answers
    assert first.status_code == again.status_code == 200 and first.content == again.content
    assert again.headers["idempotent-replayed"] == "true" and "idempotent-replayed" not in first.headers


async def test_limits_hold_over_both(store_url, tmp_path):
    async with fleet(store_url, tmp_path, auth=KEYS) as site:
        await check_all(site.proxy.url)
        assert all([await site.proxy.passed(name) > 50 for name in NAMES])


# Gateways are restarted


async def restart(site, name, **options):
    """As an operator does: the next one has its turn when the proxy knows that this one is back."""
    await site.replicas[name].stop()
    await site.replicas[name].start(**options)
    await site.proxy.sees(name, "UP")


async def test_a_rolling_restart_fails_nobody(store_url, tmp_path):
    """Even where the proxy asks nobody else when a connection is refused: it has been told in time."""
    once = CONFIG.replace("retries 3", "retries 0")
    assert once != CONFIG
    async with fleet(store_url, tmp_path, proxied=once) as site, Load(site.ai).running() as load:
        for name in NAMES:
            await restart(site, name)
        await idle(1)
    load.is_well()


async def test_a_websocket_ends_behind_its_turn_and_goes_on_elsewhere(site):
    await site.proxy.only(ONE)
    async with connected(site) as socket:
        first = response(await socket.respond(input=ASK))
        await socket.create(input="@@text 0.7@@", previous_response_id=first["id"])
        await socket.until("response.output_text.delta")
        await site.proxy.all()
        stopping = asyncio.create_task(site.replicas[ONE].stop())
        second = response((await socket.events())[-1])
        with pytest.raises(ConnectionClosed) as closed:
            await asyncio.wait_for(socket.ws.recv(), DEADLINE)
        assert closed.value.rcvd.code == 1012
    async with connected(site) as socket:
        response(await socket.respond(input=ASK, previous_response_id=second["id"]))
    await stopping


# Gateways are upgraded


@pytest.fixture
def next_release(tmp_path):
    return write_next_release(tmp_path / "next")


async def revision(store):
    async with store.reading() as db:
        return await db.scalar(text("SELECT version_num FROM alembic_version"))


async def test_a_migration_fails_nobody_whom_the_release_before_serves(site, store, next_release):
    """An old one that is restarted meanwhile serves on the new schema as well."""
    async with Load(site.ai).running() as load:
        await idle(1)
        await restart(site, ONE, code=next_release)
        await until(lambda: revision(store), REVISION)  # by the first transaction of the new release
        await restart(site, OTHER)
        await site.proxy.only(OTHER)
        await idle(2)
        await site.proxy.all()
        await restart(site, OTHER, code=next_release)
        await idle(1)
    load.is_well()
    assert await revision(store) == REVISION
