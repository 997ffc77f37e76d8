"""Define the lease of a job: the process that works on it, and the time until which others leave it alone."""

import time

from msgspec import Struct

SECONDS = 15.0  # a process that does not say for so long that it lives is dead


class Lease(Struct, frozen=True):
    """holder: this process, by a name that no other has."""

    holder: str
    seconds: float = SECONDS

    def times(self) -> tuple[int, int]:
        """Now, and for how long from now: milliseconds."""
        return int(time.time() * 1000), int(self.seconds * 1000)
