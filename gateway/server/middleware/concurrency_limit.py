"""Limit the concurrent requests of a process."""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

from gateway.errors import UpstreamUnavailable
from gateway.server.http.memory import Buffers, trim
from gateway.server.worker_thread import start_in_thread


class ConcurrencyLimit:
    """Count the requests in progress, over all generations of the application, and the bytes of their bodies.

    inside: the requests in progress; buffers: the memory of their bodies.
    """

    def __init__(self) -> None:
        self.inside, self.buffers = 0, Buffers(partial(start_in_thread, trim))

    @contextmanager
    def acquire(self, most: float, beside: int = 0) -> Iterator[None]:
        """Count a request within the block; raise UpstreamUnavailable at the limit `most`.

        beside: requests counted already that this one is part of.
        """
        if self.inside - beside >= most:
            raise overloaded_error()
        self.inside += 1
        try:
            yield
        finally:
            self.inside -= 1


def overloaded_error() -> UpstreamUnavailable:
    """Return the error for a request beyond the limit."""
    message = "The gateway is overloaded: it handles its maximum of requests (limits.concurrent). Retry after 1 s."
    return UpstreamUnavailable(message, retry_after="1")
