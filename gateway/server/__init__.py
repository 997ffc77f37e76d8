"""Serve: sockets, clock and processes.  The only code that waits."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

__all__ = ["httpx"]


class _LazyModule:
    """A module that is imported when something of it is used, by any thread."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - the module's
        return getattr(import_module(self._name), name)


# Models' answers come through a client of our own; httpx is for all else, and brings its command line with it and rich
# for that (7 MB, 0.07 s). So modules have it from here, and use it in functions only.
if TYPE_CHECKING:
    import httpx
else:
    httpx = _LazyModule("httpx")
