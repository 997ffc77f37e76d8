"""Helpers for tests of responses that outlive their client: scripts that stop anywhere, and checks of the leftovers."""

import asyncio
from contextlib import asynccontextmanager, suppress
from itertools import pairwise

from sqlalchemy import func, select

from gateway.store.tables import metadata
from support.sse import events
from support.upstream import COUNTS, DONE, END, HANG, call, chunk, frame, head
from support.wait import until

BAD = "invalid_request_error"
F = [{"type": "function", "name": "f"}]
CHUNKS = [
    chunk(role="assistant", content=""),
    chunk(reasoning_content="Hm, "),
    chunk(reasoning_content="well."),
    chunk("Hel"),
    chunk("lo"),
    chunk(tool_calls=call("f", "", id="call_a")),
    chunk(tool_calls=call(arguments='{"a": ')),
    chunk(tool_calls=call(arguments="1}")),
    chunk(tool_calls=call("f", "", id="call_b", place=1)),
    chunk(tool_calls=call(arguments='{"b": 2}', place=1)),
    chunk(finish="tool_calls"),
    frame(choices=[], usage=COUNTS),
]
EVERYTHING = [head(), *CHUNKS, DONE, END]
RESUMED = {"responses": {"resume_seconds": 60}}


def where(store_url):
    """Return the settings of a store."""
    return {"store": {"url": store_url}}


def stopping(number, *then):
    """Return a script that sends this many pieces, and then nothing, or these."""
    return [head(), *CHUNKS[:number], *(then or (HANG,))]


def slowly(*pieces):
    """Return a script of these pieces, and the gates that each of them and the end waits for."""
    gates = [asyncio.Event() for _ in range(len(pieces) + 1)]
    steps = [step for gate, piece in zip(gates, pieces, strict=False) for step in (gate, piece)]
    return [head(), *steps, gates[-1], DONE, END], gates


async def get(site, path, **options):
    """GET a path below /v1/responses."""
    return await site.client.get(f"/v1/responses/{path}", **options)


async def cancelled(site, id, **options):
    """Cancel a response, and return it."""
    answer = await site.client.post(f"/v1/responses/{id}/cancel", **options)
    assert answer.status_code == 200, answer.text
    return answer.json()


async def accepted(site, **fields):
    """Start a response in the background, and return its id."""
    answer = await site.respond(background=True, tools=F, **fields)
    assert (answer.status_code, answer.json()["status"]) == (200, "queued"), answer.text
    return answer.json()["id"]


async def left_alone(site):
    """Start a stream in the background, disconnect the client after the first event, and return the id."""
    body = b'{"model": "m", "input": "Hello", "stream": true, "background": true}'
    messages, got, leaving = [{"type": "http.request", "body": body, "more_body": False}], [], asyncio.Event()

    async def receive():
        if messages:
            return messages.pop()
        await leaving.wait()
        return {"type": "http.disconnect"}

    async def send(message):
        if message["type"] == "http.response.body" and message["body"]:
            got.append(message["body"])
            leaving.set()

    scope = {"type": "http", "method": "POST", "path": "/v1/responses", "query_string": b"", "headers": []}
    await site.app(scope, receive, send)
    return events(got[0].decode())[0]["response"]["id"]


async def ended(site, id, **options):
    """Wait until the response has ended, and return it."""
    found = []

    async def look():
        found.append((await get(site, id, **options)).json())
        return found[-1]["status"] in ("queued", "in_progress")

    await until(look, False)
    return found[-1]


class Follower:
    """A stream on a real socket, read by a task of its own."""

    def __init__(self, answer):
        self.answer, self.data = answer, b""
        self._more = asyncio.Event()
        self.task = asyncio.create_task(self._read())

    async def _read(self):
        async for piece in self.answer.aiter_raw():
            self.data += piece
            self._more.set()

    async def until(self, wanted):
        """Wait until these bytes have arrived."""
        await until(lambda: wanted in self.data)

    async def reach(self, number, gates, seconds=0.5):
        """Wait until this event has arrived; open a gate whenever nothing has arrived for `seconds`."""
        async with asyncio.timeout(60):
            while len(per_event(self.data)) <= number:
                if gates:
                    gates.pop(0).set()
                self._more.clear()
                with suppress(TimeoutError):
                    async with asyncio.timeout(seconds):
                        await self._more.wait()

    async def all(self):
        """Return the whole stream, once it has ended."""
        async with asyncio.timeout(60):
            await self.task
        return self.data

    @property
    def id(self):
        """The id of the response."""
        return events(self.data.decode())[0]["response"]["id"]


@asynccontextmanager
async def _streamed(site, method, path, **options):
    async with site.client.stream(method, f"/v1/responses{path}", **options) as answer:
        assert answer.status_code == 200, await answer.aread()
        follower = Follower(answer)
        try:
            yield follower
        finally:
            follower.task.cancel()
            await asyncio.wait((follower.task,))


def asking(site, headers=None, **fields):
    """Stream a response to its client, as a context manager."""
    body = {"model": "m", "input": "Hello", "stream": True, "tools": F, **fields}
    return _streamed(site, "POST", "", json=body, headers=headers)


def following(site, id, after=None):
    """Stream a response to another client, behind an event or from its beginning."""
    behind = {} if after is None else {"starting_after": after}
    return _streamed(site, "GET", f"/{id}", params={"stream": True, **behind})


async def rows(store):
    """Return the number of rows of each table that has any."""
    async with store.reading() as db:
        counts = {
            table.name: await db.scalar(select(func.count()).select_from(table)) for table in metadata.sorted_tables
        }
    return {name: count for name, count in counts.items() if count}


def per_event(data):
    """Return the whole frames of a stream, cut behind each event; of a whole stream the last piece is [DONE]."""
    *frames, _ = data.split(b"\n\n")
    ends = [0, *(number for number, frame in enumerate(frames, 1) if not frame.startswith(b":"))]
    return [b"".join(frame + b"\n\n" for frame in frames[a:b]) for a, b in pairwise(ends)]
