"""One connection: what comes in is always taken, and what goes out waits for the client to read it."""

import asyncio
from collections.abc import Coroutine
from contextlib import suppress
from typing import Any

from starlette.requests import ClientDisconnect
from starlette.requests import Request as HttpRequest
from starlette.types import Message, Receive, Scope, Send

from gateway.config import ApiKey
from gateway.errors import Problem
from gateway.server.handler import ModelRequestHandler
from gateway.server.http.disconnect import CancelOnDisconnect
from gateway.server.websocket.messages import (
    CreateMessage,
    InvalidMessage,
    SteerMessage,
    error_message,
    parse_message,
    steer_failed_message,
)
from gateway.server.websocket.recent_responses import RecentResponses
from gateway.server.websocket.response_task import ResponseTask, WebSocketClient
from gateway.server.websocket.stream_scheduler import ScheduledMessage, StreamScheduler
from gateway.server.worker_thread import parsed

_MOST_SECONDS = 3600.0
_MOST_UNREAD = 64  # responses that a client does not read while it sends on; beyond them it is cut off
_GOING_AWAY = 1001
_NO_CONNECTION: Scope = {}  # messages report that the client of a WebSocket disconnects
_OLD = Problem(
    400,
    "Responses websocket connection limit reached (60 minutes). Create a new websocket connection to continue.",
    "websocket_connection_limit_reached",
)


class WebSocketConnection:
    """`run` it once; `end` it at any time.  most_bytes: of what waits, and of what is remembered."""

    def __init__(self, scope: Scope, receive: Receive, send: Send, key: ApiKey | None, most_bytes: int) -> None:
        self._receive, self._send = receive, send
        self._gone = asyncio.Event()
        self._leaving = _leaving(self._gone)
        http = HttpRequest({**scope, "type": "http", "method": "POST"}, self._leaving)
        self._client = WebSocketClient(http, key, RecentResponses(most_bytes))
        self._lanes = StreamScheduler(most_bytes)
        self._running: set[asyncio.Task[None]] = set()
        self._asides: set[asyncio.Task[None]] = set()
        self._refusal: Problem | None = None  # of all that is new

    async def run(self, asking: ModelRequestHandler) -> None:
        """Until the client has gone, and all is over that it asked for.

        Where it is cancelled the client is told what that ended.
        """
        self._asking = asking
        await self._send({"type": "websocket.accept"})
        aging = asyncio.create_task(self._grow_old())
        try:
            with suppress(ClientDisconnect), CancelOnDisconnect(_NO_CONNECTION, self._leaving):
                await self._read()
        except asyncio.CancelledError:
            self._lanes.clear()
            for task in self._running:
                task.cancel()
            await self._done()
            raise
        finally:
            aging.cancel()
            self._lanes.clear()
            self._gone.set()
            await self._done()

    async def end(self, problem: Problem, code: int) -> None:
        """Refuse what is new, and close the connection as soon as nothing runs any more."""
        self._refusal = problem
        await self._done()
        with suppress(OSError, RuntimeError):  # it is closed already
            await self._send({"type": "websocket.close", "code": code, "reason": problem.message})

    async def _done(self) -> None:
        while tasks := self._running | self._asides:
            await asyncio.wait(tasks)

    async def _grow_old(self) -> None:
        await asyncio.sleep(_MOST_SECONDS)
        await self.end(_OLD, _GOING_AWAY)

    # in

    async def _read(self) -> None:
        while (message := await self._receive())["type"] != "websocket.disconnect":
            text = message.get("text")
            self._take(await parsed(parse_message, message["bytes"] if text is None else text, self._asking.counts))
            await asyncio.sleep(0)  # where many messages came at once, the answers to them are to get away

    def _take(self, said: CreateMessage | InvalidMessage | SteerMessage | None) -> None:
        if isinstance(said, SteerMessage):
            self._tell_aside(steer_failed_message(said.event, said.lane))
        elif said:
            message = InvalidMessage(said.lane, self._refusal) if self._refusal else said
            if problem := self._lanes.add(message):
                self._tell_aside(error_message(problem, message.lane))
            self._begin()

    def _begin(self) -> None:
        for entry in self._lanes.begun():
            self._beside(self._answer(entry), self._running)

    async def _answer(self, entry: ScheduledMessage) -> None:
        try:
            problem = await self._problem(entry)
            if problem:
                await self._tell_while_there(error_message(problem, entry.lane))
        finally:
            self._lanes.over(entry.lane)
            self._begin()

    async def _problem(self, entry: ScheduledMessage) -> Problem | None:
        if isinstance(entry, InvalidMessage):
            return entry.problem
        return await ResponseTask(self._asking, self._client, entry, self._tell).run()

    # out

    async def _tell(self, text: str) -> None:
        """Wait until there is room for it; what cannot be told to anybody is no matter."""
        if self._gone.is_set():
            return
        try:
            await self._send({"type": "websocket.send", "text": text})
        except (OSError, RuntimeError):  # the server knows that it is closed, and has not told us yet
            self._gone.set()

    async def _tell_while_there(self, text: str) -> None:
        with suppress(ClientDisconnect), CancelOnDisconnect(_NO_CONNECTION, self._leaving):
            await self._tell(text)

    def _tell_aside(self, text: str) -> None:
        """Tell it and go on."""
        if len(self._asides) < _MOST_UNREAD:
            self._beside(self._tell_while_there(text), self._asides)
        else:
            self._gone.set()

    def _beside(self, work: Coroutine[Any, Any, None], tasks: set[asyncio.Task[None]]) -> None:
        task = asyncio.create_task(work)
        tasks.add(task)
        task.add_done_callback(tasks.discard)


def _leaving(gone: asyncio.Event) -> Receive:
    """Return the `receive` behind the body.  It does not know the connection, so that it keeps no reference to it."""

    async def receive() -> Message:
        await gone.wait()
        return {"type": "http.disconnect"}

    return receive
