"""Serve: sockets, clock and processes.  The only code that waits."""

from typing import TYPE_CHECKING

from gateway.lazy_module import LazyModule

__all__ = ["httpx"]

# The gateway's own client calls the models; httpx serves all other requests.  Importing httpx takes 7 MB and 0.07 s,
# as it imports its command line and rich.  So modules import it from here, and use it in functions only.
if TYPE_CHECKING:
    import httpx
else:
    httpx = LazyModule("httpx")
