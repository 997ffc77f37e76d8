"""A client of /v1/responses over a WebSocket, in front of a scripted model.

async with listening(HELLO) as site, connected(site) as socket:
    answer = await socket.respond(input="Hi")
"""

import asyncio
import json
from contextlib import asynccontextmanager

from openai.types.responses import ResponsesServerEvent
from pydantic import TypeAdapter
from websockets.asyncio.client import connect

from support.wait import DEADLINE

SERVER_EVENT = TypeAdapter(ResponsesServerEvent)
ENDS = ("response.completed", "response.incomplete", "response.failed")


class Socket:
    """A client; `ws`: the library's own connection."""

    def __init__(self, ws):
        self.ws = ws

    async def say(self, **event):
        """Send an event."""
        await self.ws.send(json.dumps(event))

    async def create(self, **fields):
        """Request a response."""
        await self.say(type="response.create", **{"model": "m", "input": "Hello", **fields})

    async def event(self):
        """Return the next event; check it with the SDK, unless it is the gateway's own."""
        async with asyncio.timeout(DEADLINE):
            message = await self.ws.recv()
        assert isinstance(message, str)
        event = json.loads(message)
        if not event["type"].startswith("gateway:"):
            SERVER_EVENT.validate_json(message, strict=True)
        return event

    async def until(self, type):
        """Return the events up to the first of this type."""
        events = [await self.event()]
        while events[-1]["type"] != type:
            events.append(await self.event())
        return events

    async def events(self, ends=1):
        """Return all events until `ends` responses have ended or were refused."""
        events = []
        while ends:
            events.append(await self.event())
            ends -= is_end(events[-1])
        return events

    async def respond(self, **fields):
        """Request a response, and return its last event."""
        await self.create(**fields)
        return (await self.events())[-1]


def is_end(event):
    """Return True for the end of a response; an error with a status is the only event of a refused one."""
    return event["type"] in ENDS or (event["type"] == "error" and "status" in event)


def response(event):
    """Return the response of an event `response.completed`."""
    assert event["type"] == "response.completed", event
    return event["response"]


def error(event):
    """Return status, type, code and param of an error."""
    assert event["type"] == "error", event
    assert {"type", "status", "error"} <= event.keys() <= {"type", "status", "error", "stream_id"}
    problem = event["error"]
    assert set(problem) == {"type", "code", "message", "param"}
    return event["status"], problem["type"], problem["code"], problem["param"]


def texts(event):
    """Return the texts of a response."""
    return [part["text"] for item in response(event)["output"] for part in item.get("content") or ()]


def upstream_messages(site):
    """Return the roles and contents of the messages that the model received last."""
    return [(message["role"], message.get("content")) for message in site.upstream_body["messages"]]


def address(site):
    """Return the URL of the endpoint."""
    return f"ws://127.0.0.1:{site.client.base_url.port}/v1/responses"


@asynccontextmanager
async def connected(site, headers=None, **options):
    """Connect within the block."""
    async with connect(address(site), additional_headers=headers, compression=None, **options) as ws:
        yield Socket(ws)
