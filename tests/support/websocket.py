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

SERVER_EVENT = TypeAdapter(ResponsesServerEvent)
ENDS = ("response.completed", "response.incomplete", "response.failed")
PATIENCE = 10  # seconds; what does not come at all fails by this


class Socket:
    """`ws` is the library's own connection."""

    def __init__(self, ws):
        self.ws = ws

    async def say(self, **event):
        await self.ws.send(json.dumps(event))

    async def create(self, **fields):
        await self.say(type="response.create", **{"model": "m", "input": "Hello", **fields})

    async def event(self):
        """The next one; each is what the SDK knows, but for our own."""
        async with asyncio.timeout(PATIENCE):
            message = await self.ws.recv()
        assert isinstance(message, str)
        event = json.loads(message)
        if not event["type"].startswith("gateway:"):
            SERVER_EVENT.validate_json(message, strict=True)
        return event

    async def until(self, type):
        """The events up to one of this type, and with it."""
        events = [await self.event()]
        while events[-1]["type"] != type:
            events.append(await self.event())
        return events

    async def events(self, ends=1):
        """All that come until so many responses are over, or were refused."""
        events = []
        while ends:
            events.append(await self.event())
            ends -= is_end(events[-1])
        return events

    async def respond(self, **fields):
        """The last event: that of a response's end, or an error."""
        await self.create(**fields)
        return (await self.events())[-1]


def is_end(event):
    """An error that has a status is all that there is of an answer."""
    return event["type"] in ENDS or (event["type"] == "error" and "status" in event)


def response(event):
    """The response of an event that says that it is complete."""
    assert event["type"] == "response.completed", event
    return event["response"]


def error(event):
    """What an error has of a status, type, code and param."""
    assert event["type"] == "error", event
    assert {"type", "status", "error"} <= event.keys() <= {"type", "status", "error", "stream_id"}
    said = event["error"]
    assert set(said) == {"type", "code", "message", "param"}
    return event["status"], said["type"], said["code"], said["param"]


def texts(event):
    """What was said in a response."""
    return [part["text"] for item in response(event)["output"] for part in item.get("content") or ()]


def asked(site):
    """What the model was shown last: who said what."""
    return [(message["role"], message.get("content")) for message in site.asked["messages"]]


def address(site):
    return f"ws://127.0.0.1:{site.client.base_url.port}/v1/responses"


@asynccontextmanager
async def connected(site, headers=None, **options):
    async with connect(address(site), additional_headers=headers, compression=None, **options) as ws:
        yield Socket(ws)
