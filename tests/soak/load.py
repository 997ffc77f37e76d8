"""The clients: so many at a time, each of which asks again and again, for another thing in another way."""

import asyncio
import json
import random
from collections import Counter
from contextlib import suppress

from msgspec import Struct, field
from websockets.asyncio.client import connect
from websockets.exceptions import WebSocketException

from soak.hostile import HOSTILE
from soak.mock import FAULTS, WELL
from support.wait import idle

TOOL = {"name": "f", "parameters": {"type": "object", "properties": {"a": {"type": "string"}}}}
PATIENCE = 60  # seconds beyond the pauses that an answer may take
PLAIN = ("chat", "chat_stream", "responses", "responses_stream", "messages", "messages_stream")
STORED = ("stored", "stored_stream", "background", "chain", "file")  # each some transactions of the store
WAYS = (*PLAIN * 4, *STORED, "websocket", "hostile")
MANNERS = ("reads",) * 8 + ("leaves",) * 2 + ("never_reads",)
ENDS = ("response.completed", "response.incomplete", "response.failed", "error")
FAULTY = 0.15  # of the backend's answers
LINKS = 3  # responses of a chain


class Broken(Exception):
    """An answer that is none."""


class Load(Struct):
    """port: of the gateway; pause: seconds between two pieces of an answer.

    ended: how many answers, by their outcomes; unexpected: what should not have been, by its words.
    """

    port: int
    pause: float
    running: int = 0
    ended: Counter = field(default_factory=Counter)
    unexpected: Counter = field(default_factory=Counter)

    async def run(self, streams, ramp, stop):
        """Ask until `stop`, an event; those begun by then come to their end."""
        async with asyncio.TaskGroup() as group:
            for number in range(streams):
                group.create_task(self._ask_again_and_again(random.Random(number), ramp * number / streams, stop))

    async def _ask_again_and_again(self, dice, wait, stop):
        with suppress(TimeoutError):
            async with asyncio.timeout(wait):
                await stop.wait()
        while not stop.is_set():
            kind = dice.choice(FAULTS if dice.random() < FAULTY else [*WELL])
            await self.ask(dice.choice(WAYS), kind, dice.choice(MANNERS), dice)

    async def ask(self, way, kind, manner, dice):
        self.running += 1
        try:
            async with asyncio.timeout(PATIENCE + 60 * self.pause):
                outcome = await self._outcome(way, kind, manner, dice)
        except (Broken, OSError, asyncio.IncompleteReadError, TimeoutError, WebSocketException) as error:
            self.unexpected[f"{way} {kind} {manner}: {type(error).__name__} {error}"[:160]] += 1
        else:
            self.ended[outcome] += 1
        finally:
            self.running -= 1

    async def _outcome(self, way, kind, manner, dice):
        text = f"@@{kind} {self.pause}@@"
        if way == "hostile":
            return await self._refused(*dice.choice(HOSTILE))
        if own := self._own(way):
            return await own(text, kind)
        path, body = question(way, text)
        if manner != "reads":
            return await self._badly(path, body, manner, dice)
        return self._judged(kind, *await self._post(path, body))

    def _own(self, way):
        """The method of a way that is more than one request; None for the others."""
        return {
            "background": self._in_background,
            "chain": self._chain,
            "file": self._with_file,
            "websocket": self._over_websocket,
        }.get(way)

    def _judged(self, kind, status, body):
        """How it ended; Broken if it should have ended otherwise."""
        failed = status != 200 or b'"error":{' in body or b'"status":"failed"' in body
        if failed != (kind in FAULTS):
            raise Broken(f"{status} {body[-300:]!r}")
        return f"failed {status}" if failed else "well"

    async def _in_background(self, text, kind):
        status, body = await self._post("/v1/responses", {"model": "m", "input": text, "background": True})
        while status == 200 and b'"error":{' not in body and json.loads(body)["status"] in ("queued", "in_progress"):
            await idle(max(self.pause, 0.05))
            status, body = await self._get(f"/v1/responses/{json.loads(body)['id']}")
        return self._judged(kind, status, body)

    async def _chain(self, text, kind):
        """Some responses one behind the other; the last one is deleted."""
        before, outcome, items = {}, "", [{"role": "user", "content": text}]
        for _ in range(1 if kind in FAULTS else LINKS):
            status, body = await self._post("/v1/responses", {"model": "m", "input": items, **before})
            outcome = self._judged(kind, status, body)
            if outcome == "well":
                response = json.loads(body)
                before, items = {"previous_response_id": response["id"]}, [*outputs(response), items[-1]]
        if before:
            await self._send("DELETE", f"/v1/responses/{before['previous_response_id']}")
        return outcome

    async def _with_file(self, text, kind):
        """A file in the store, a chat with it, and its end."""
        parts = (
            f'--B\r\ncontent-disposition: form-data; name="{name}' for name in ("purpose", 'file"; filename="a.txt')
        )
        purpose, file = parts
        form = f'{purpose}"\r\n\r\nuser_data\r\n{file}"\r\n\r\n{"text in a file " * 4_000}\r\n--B--\r\n'
        status, body = await self._send("POST", "/v1/files", form.encode(), "multipart/form-data; boundary=B")
        if status != 200:
            raise Broken(f"{status} {body[-300:]!r}")
        id = json.loads(body)["id"]
        content = [{"type": "file", "file": {"file_id": id}}, {"type": "text", "text": text}]
        request = {"model": "m", "messages": [{"role": "user", "content": content}]}
        outcome = self._judged(kind, *await self._post("/v1/chat/completions", request))
        await self._send("DELETE", f"/v1/files/{id}")
        return outcome

    async def _over_websocket(self, text, kind):
        """Two turns of one connection."""
        before, outcome, items = {}, "", [{"role": "user", "content": text}]
        async with connect(f"ws://127.0.0.1:{self.port}/v1/responses", max_size=None, proxy=None) as socket:
            for _ in range(1 if kind in FAULTS else 2):
                create = {"type": "response.create", "model": "m", "input": items, **before}
                await socket.send(json.dumps(create))
                event = {"type": ""}
                while event["type"] not in ENDS:
                    event = json.loads(await socket.recv())
                outcome = self._judged(kind, 200, json.dumps(event, separators=(",", ":")).encode())
                if outcome == "well":
                    response = event["response"]
                    before, items = {"previous_response_id": response["id"]}, [*outputs(response), items[-1]]
        return outcome

    async def _refused(self, path, body):
        status, response = await self._send("POST", path, body)
        if not 400 <= status < 500 or b'"error":{' not in response:
            raise Broken(f"{status} {response[-300:]!r}")
        return f"refused {status}"

    async def _badly(self, path, body, manner, dice):
        _, writer = await self._open("POST", path, json.dumps(body).encode())
        try:
            if manner == "never_reads":
                writer.transport.pause_reading()
            await idle(dice.random() * max(self.pause * 10, 0.2))
        finally:
            writer.transport.abort()
        return manner

    def _post(self, path, body):
        return self._send("POST", path, json.dumps(body).encode())

    def _get(self, path):
        return self._send("GET", path)

    async def _send(self, method, path, body=b"", type="application/json"):
        """Status and body; Broken if the body is not whole."""
        reader, writer = await self._open(method, path, body, type)
        try:
            head = await reader.readuntil(b"\r\n\r\n")
            data = await reader.read()
        finally:
            writer.transport.abort()
        if b"chunked" in head and not data.endswith(b"0\r\n\r\n"):
            raise Broken("the body breaks off")
        return int(head[9:12]), data

    async def _open(self, method, path, body, type="application/json"):
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        fields = f"host: x\r\nconnection: close\r\ncontent-type: {type}\r\ncontent-length: {len(body)}"
        writer.write(f"{method} {path} HTTP/1.1\r\n{fields}\r\n\r\n".encode() + body)
        return reader, writer


def outputs(response):
    """Of each call, as the next request has to bring them."""
    calls = (item["call_id"] for item in response["output"] if item["type"] == "function_call")
    return [{"type": "function_call_output", "call_id": id, "output": "1"} for id in calls]


def question(way, text):
    """Path and body."""
    streamed = way.endswith("stream")
    if way.startswith("messages"):
        tool = {"name": "f", "input_schema": TOOL["parameters"]}
        request = {"messages": [{"role": "user", "content": text}], "tools": [tool], "max_tokens": 999}
        return "/v1/messages", {"model": "m", "stream": streamed, **request}
    if way.startswith("chat"):
        request = {"messages": [{"role": "user", "content": text}], "tools": [{"type": "function", "function": TOOL}]}
        return "/v1/chat/completions", {"model": "m", "stream": streamed, **request}
    request = {"input": text, "tools": [{"type": "function", **TOOL}], "store": way.startswith("stored")}
    return "/v1/responses", {"model": "m", "stream": streamed, **request}
