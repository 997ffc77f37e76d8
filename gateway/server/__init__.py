"""Serve: sockets, clock and processes.  The only code that waits."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

__all__ = ["httpx"]


class _LazyModule:
    """A module that any thread imports at its first use."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - the module's
        return getattr(import_module(self._name), name)


# The gateway's own client calls the models; httpx serves all other requests.  Importing httpx takes 7 MB and 0.07 s,
# as it imports its command line and rich.  So modules import it from here, and use it in functions only.
if TYPE_CHECKING:
    import httpx
else:
    httpx = _LazyModule("httpx")
