"""Schedule the responses of a connection: one at a time per stream, and a limited number in all.  Pure."""

from gateway.errors import Problem
from gateway.server.websocket.messages import CreateMessage, InvalidMessage, StreamId

MAX_RUNNING = 16
MAX_NAMED = 32
MAX_WAITING = 64
_TOO_MANY = (
    f"This WebSocket connection has reached its maximum number of distinct stream IDs ({MAX_NAMED}). Reuse an existing"
    " stream_id or open a new WebSocket connection."
)
_FULL = "Too many requests wait on this WebSocket connection. Send more when some of its responses are complete."

ScheduledMessage = CreateMessage | InvalidMessage


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
