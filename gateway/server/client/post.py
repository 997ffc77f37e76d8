"""One request on its way: on a connection that stood idle if there was one, and then perhaps once more on a new one."""

from copy import copy
from typing import TYPE_CHECKING

from gateway.server.client.answer import Answer, Silent

if TYPE_CHECKING:
    from gateway.server.client.pool import Pool


class Post:
    """answer: what it gets, from the moment in which it was sent; whoever has a post has to close that.

    kept: the answer on a connection that was kept, if there is one; where there is none, or nothing comes of it, the
    pool sends the same on a connection of its own.
    """

    def __init__(self, pool: "Pool", head: bytes, body: bytes, kept: Answer | None) -> None:
        self._pool, self._head, self._body, self._again = pool, head, body, kept is not None
        self.answer = kept or pool.anew(head, body)

    def headed(self) -> bool:
        """Whether status and headers are known; where they are not, `answer.ready` tells when to look again.

        Raises what came instead, but for a connection that the backend had given up while the request was on its way.
        """
        answer = self.answer
        if answer.status or not answer.error:
            return answer.status > 0
        if not (self._again and isinstance(answer.error, Silent)):
            raise copy(answer.error)  # as what is raised knows this frame, they would be a cycle
        answer.close()
        self.answer, self._again = self._pool.anew(self._head, self._body), False
        return False

    def close(self) -> None:
        """As the answer is closed."""
        self.answer.close()
