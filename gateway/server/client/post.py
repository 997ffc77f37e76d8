"""One request on its way: on a connection that stood idle if there was one, and then perhaps once more on a new one."""

from collections.abc import Callable
from copy import copy

from gateway.server.client.answer import Answer, Silent


class Post:
    """answer: what it gets, from the moment in which it was sent; whoever has a post has to close that.

    kept: the answer on a connection that was kept, if there is one; anew: sends the same on a connection of its own.
    """

    def __init__(self, kept: Answer | None, anew: Callable[[], Answer]) -> None:
        self.answer = kept or anew()
        self._anew = anew if kept else None

    def headed(self) -> bool:
        """Whether status and headers are known; where they are not, `answer.ready` tells when to look again.

        Raises what came instead, but for a connection that the backend had given up while the request was on its way.
        """
        answer = self.answer
        if answer.status or not answer.error:
            return answer.status > 0
        if not (self._anew and isinstance(answer.error, Silent)):
            raise copy(answer.error)  # as what is raised knows this frame, they would be a cycle
        answer.close()
        self.answer, self._anew = self._anew(), None
        return False

    def close(self) -> None:
        """As the answer is closed."""
        self.answer.close()
