"""Run one WebSocket connection: its messages are read at once, and events wait for the client to read."""

import asyncio
from collections.abc import Coroutine
from contextlib import suppress
from typing import Any

from starlette.requests import ClientDisconnect
from starlette.requests import Request as HttpRequest
from starlette.types import Message, Receive, Scope, Send

from gateway.errors import Problem
from gateway.server.handler import ModelRequestHandler
from gateway.server.http.client_connection import CancelOnDisconnect
from gateway.server.websocket.messages import (
    CreateMessage,
    InvalidMessage,
    SteerMessage,
    StreamId,
    error_message,
    parse_message,
    steer_failed_message,
)
from gateway.server.websocket.recent_responses import RecentResponses
from gateway.server.websocket.response_task import Authenticate, ResponseTask, WebSocketClient
from gateway.server.worker_thread import parse_body

MAX_RUNNING = 16
MAX_NAMED = 32
MAX_WAITING = 64
_TOO_MANY = (
    f"This WebSocket connection has reached its maximum number of distinct stream IDs ({MAX_NAMED}). Reuse an existing"
    " stream_id or open a new WebSocket connection."
)
_FULL = "Too many requests wait on this WebSocket connection. Send more when some of its responses are complete."

ScheduledMessage = CreateMessage | InvalidMessage


_MAX_SECONDS = 3600.0
_MAX_UNREAD = 64  # messages that a client leaves unread while it sends more; beyond that the connection is closed
_GOING_AWAY = 1001
_NO_CONNECTION: Scope = {}  # messages report that the client of a WebSocket disconnects
_OLD = Problem(
    400,
    "Responses websocket connection limit reached (60 minutes). Create a new websocket connection to continue.",
    "websocket_connection_limit_reached",
)


class WebSocketConnection:
    """A WebSocket connection: `run` it once; `end` it at any time.

    authenticate: returns the client's key, for each request.
    most_bytes: of waiting requests, and of the history that is kept.
    """

    def __init__(self, scope: Scope, receive: Receive, send: Send, authenticate: Authenticate, most_bytes: int) -> None:
        self._receive, self._send = receive, send
        self._gone = asyncio.Event()
        self._leaving = _leaving(self._gone)
        http = HttpRequest({**scope, "type": "http", "method": "POST"}, self._leaving)
        self._client = WebSocketClient(http, authenticate, RecentResponses(most_bytes))
        self._scheduler = StreamScheduler(most_bytes)
        self._running: set[asyncio.Task[None]] = set()
        self._asides: set[asyncio.Task[None]] = set()
        self._refusal: Problem | None = None  # the error for all new requests

    async def run(self, handler: ModelRequestHandler) -> None:
        """Serve the connection until the client has disconnected and all its responses have ended.

        If this is cancelled, the running responses report it to the client first.
        """
        self._handler = handler
        await self._send({"type": "websocket.accept"})
        aging = asyncio.create_task(self._grow_old())
        try:
            with suppress(ClientDisconnect), CancelOnDisconnect(_NO_CONNECTION, self._leaving):
                await self._read()
        except asyncio.CancelledError:
            self._scheduler.clear()
            for task in self._running:
                task.cancel()
            await self._done()
            raise
        finally:
            aging.cancel()
            self._scheduler.clear()
            self._gone.set()
            await self._done()

    async def end(self, problem: Problem, code: int) -> None:
        """Refuse new requests, and close the connection when no response runs."""
        self._refusal = problem
        await self._done()
        with suppress(OSError, RuntimeError):  # it is closed already
            await self._send({"type": "websocket.close", "code": code, "reason": problem.message})

    async def _done(self) -> None:
        while tasks := self._running | self._asides:
            await asyncio.wait(tasks)

    async def _grow_old(self) -> None:
        await asyncio.sleep(_MAX_SECONDS)
        await self.end(_OLD, _GOING_AWAY)

    # Incoming messages

    async def _read(self) -> None:
        while (message := await self._receive())["type"] != "websocket.disconnect":
            text = message.get("text")
            self._take(
                await parse_body(parse_message, message["bytes"] if text is None else text, self._handler.counts)
            )
            await asyncio.sleep(0)  # lets responses out, if many messages arrive at once

    def _take(self, message: CreateMessage | InvalidMessage | SteerMessage | None) -> None:
        if isinstance(message, SteerMessage):
            self._tell_aside(steer_failed_message(message.event, message.stream_id))
        elif message:
            message = InvalidMessage(message.stream_id, self._refusal) if self._refusal else message
            if problem := self._scheduler.add(message):
                self._tell_aside(error_message(problem, message.stream_id))
            self._begin()

    def _begin(self) -> None:
        for entry in self._scheduler.begun():
            self._beside(self._answer(entry), self._running)

    async def _answer(self, entry: ScheduledMessage) -> None:
        try:
            problem = await self._problem(entry)
            if problem:
                await self._tell_while_there(error_message(problem, entry.stream_id))
        finally:
            self._scheduler.over(entry.stream_id)
            self._begin()

    async def _problem(self, entry: ScheduledMessage) -> Problem | None:
        if isinstance(entry, InvalidMessage):
            return entry.problem
        return await ResponseTask(self._handler, self._client, entry, self._tell).run()

    # Outgoing messages

    async def _tell(self, text: str) -> None:
        """Send a message once there is room for it; drop it if the connection is closed."""
        if self._gone.is_set():
            return
        try:
            await self._send({"type": "websocket.send", "text": text})
        except (OSError, RuntimeError):  # the server knows of the close, but has not reported it yet
            self._gone.set()

    async def _tell_while_there(self, text: str) -> None:
        with suppress(ClientDisconnect), CancelOnDisconnect(_NO_CONNECTION, self._leaving):
            await self._tell(text)

    def _tell_aside(self, text: str) -> None:
        """Send a message in a task, without waiting for it."""
        if len(self._asides) < _MAX_UNREAD:
            self._beside(self._tell_while_there(text), self._asides)
        else:
            self._gone.set()

    def _beside(self, work: Coroutine[Any, Any, None], tasks: set[asyncio.Task[None]]) -> None:
        task = asyncio.create_task(work)
        tasks.add(task)
        task.add_done_callback(tasks.discard)


def _leaving(gone: asyncio.Event) -> Receive:
    """Return a `receive` that reports the disconnect.

    It has no reference to the connection, which would be a cycle.
    """

    async def receive() -> Message:
        await gone.wait()
        return {"type": "http.disconnect"}

    return receive


class StreamScheduler:
    """Queue the messages of a connection: `add` each one, run the ones that `begun` returns, then call `over`.

    most_bytes: of all waiting messages.
    """

    def __init__(self, most_bytes: int) -> None:
        self._most_bytes = most_bytes
        self._waiting: list[ScheduledMessage] = []  # in the order of arrival
        self._busy: set[StreamId] = set()
        self._named: set[StreamId] = set()  # all stream ids so far

    def add(self, entry: ScheduledMessage) -> Problem | None:
        """Queue a message; return the problem if it is rejected."""
        named = self._named | {entry.stream_id} - {None}
        if len(named) > MAX_NAMED:
            return Problem(400, _TOO_MANY, "websocket_stream_limit_reached", "stream_id")
        if not self._free(entry.stream_id) and self._full(entry):
            return Problem(429, _FULL, "rate_limit_exceeded")
        self._named = named
        self._waiting.append(entry)
        return None

    def begun(self) -> list[ScheduledMessage]:
        """Return the messages to run from now on."""
        begun: list[ScheduledMessage] = []
        waiting, self._waiting = self._waiting, []
        for entry in waiting:
            if self._free(entry.stream_id):
                self._busy.add(entry.stream_id)
                begun.append(entry)
            else:
                self._waiting.append(entry)
        return begun

    def over(self, stream_id: StreamId) -> None:
        """Free a stream whose message has been handled."""
        self._busy.discard(stream_id)

    def clear(self) -> None:
        """Drop all waiting messages."""
        self._waiting.clear()

    def _free(self, stream_id: StreamId) -> bool:
        return stream_id not in self._busy and len(self._busy) < MAX_RUNNING

    def _full(self, entry: ScheduledMessage) -> bool:
        size = sum(len(one.body) for one in self._waiting) + len(entry.body)
        return len(self._waiting) >= MAX_WAITING or size > self._most_bytes
