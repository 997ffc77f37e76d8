"""One request on its way: on a connection that stood idle if there was one, and then perhaps once more on a new one."""

from copy import copy
from math import inf
from typing import TYPE_CHECKING

from gateway.server.client.answer import NoResponse, UpstreamResponse

if TYPE_CHECKING:
    from gateway.server.client.pool import ConnectionPool


class PendingPost:
    """answer: what it gets, from the moment in which it was sent; the owner of a post has to close it.

    kept: the answer on a connection that was kept; without one the pool sends the request on a new connection.
    until: on the loop's clock.  A kept connection that closes by then without a byte was given up before the request
    came, so the pool sends it again.  Later than that a model may have worked on it.
    repeated: it was sent again.
    """

    def __init__(
        self,
        pool: "ConnectionPool",
        head: bytes,
        body: bytes,
        kept: UpstreamResponse | None = None,
        until: float = -inf,
    ) -> None:
        self._pool, self._head, self._body, self._until = pool, head, body, until
        self.answer, self.repeated = kept or pool.anew(head, body), False

    def headed(self) -> bool:
        """Return True if status and headers are known; otherwise `answer.ready` tells when to look again.

        Raises what came instead, but for a connection that the backend had given up while the request was on its way.
        """
        answer = self.answer
        if answer.status or not answer.error:
            return answer.status > 0
        if not (isinstance(answer.error, NoResponse) and answer.broken_at <= self._until):
            raise copy(answer.error)  # as what is raised knows this frame, they would be a cycle
        answer.close()
        self.answer, self._until, self.repeated = self._pool.anew(self._head, self._body), -inf, True
        return False

    def close(self) -> None:
        """As the answer is closed."""
        self.answer.close()
