"""Keep the idle connections to a backend."""

from typing import Generic, TypeVar

Connection = TypeVar("Connection")


class IdleConnections(Generic[Connection]):
    """The idle connections, at most `limit`; the one used last goes first."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._connections: dict[Connection, None] = {}

    def add(self, connection: Connection) -> bool:
        """Keep a connection; return False if the limit is reached."""
        if len(self._connections) >= self.limit:
            return False
        self._connections[connection] = None
        return True

    def pop(self) -> Connection | None:
        """Remove and return the connection used last; None if no connection is idle."""
        return self._connections.popitem()[0] if self._connections else None

    def discard(self, connection: Connection) -> None:
        """Remove a connection, if it is kept."""
        self._connections.pop(connection, None)
