"""Hold the resources of a response until it ends: a lazily created AsyncExitStack."""

from contextlib import AsyncExitStack
from types import TracebackType
from typing import Self

from msgspec import Struct


class Held(Struct):
    """At the end of the block all of it is let go of, the last one first."""

    _stack: AsyncExitStack | None = None

    @property
    def stack(self) -> AsyncExitStack:
        """The exit stack, created when the first resource needs it."""
        if self._stack is None:
            self._stack = AsyncExitStack()
        return self._stack

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        return await self._stack.__aexit__(kind, error, trace) if self._stack else None
