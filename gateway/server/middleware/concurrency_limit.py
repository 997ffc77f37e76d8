"""Limit the concurrent requests of a process."""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

from gateway.errors import UpstreamUnavailable
from gateway.server.http.memory import Buffers, trim
from gateway.server.worker_thread import start_in_thread


class ConcurrencyLimit:
    """Count the requests in progress, over all generations of the application, and the bytes of their bodies.

    in_progress: the number of requests; buffers: the memory of their bodies.
    """

    def __init__(self) -> None:
        self.in_progress, self.buffers = 0, Buffers(partial(start_in_thread, trim))

    @contextmanager
    def acquire(self, max_requests: float, already_counted: int = 0) -> Iterator[None]:
        """Count a request within the block; raise UpstreamUnavailable at the limit `max_requests`.

        already_counted: the number of counted requests that this one is part of.
        """
        if self.in_progress - already_counted >= max_requests:
            raise overloaded_error()
        self.in_progress += 1
        try:
            yield
        finally:
            self.in_progress -= 1


def overloaded_error() -> UpstreamUnavailable:
    """Return the error for a request beyond the limit."""
    message = "The gateway is overloaded: it handles its maximum of requests (limits.concurrent). Retry after 1 s."
    return UpstreamUnavailable(message, retry_after="1")
