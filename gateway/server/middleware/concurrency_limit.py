"""Limit the concurrent requests of a process."""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

from gateway.errors import UpstreamUnavailable
from gateway.server.http.memory import Buffers, trim
from gateway.server.worker_thread import later


class ConcurrencyLimit:
    """inside: requests, of all generations of the application, and what is answered without one of its own.

    buffers: the memory that their bodies take.
    """

    def __init__(self) -> None:
        self.inside, self.buffers = 0, Buffers(partial(later, trim))

    @contextmanager
    def acquire(self, most: float, beside: int = 0) -> Iterator[None]:
        """One more, of so many at most; raises Unavailable.  beside: what is inside already that this comes of."""
        if self.inside - beside >= most:
            raise overloaded_error()
        self.inside += 1
        try:
            yield
        finally:
            self.inside -= 1


def overloaded_error() -> UpstreamUnavailable:
    return UpstreamUnavailable("The gateway has too much to do: try again soon.", retry_after="1")
