"""What every format is: a generator over a Reader, an Emit to put what it finds, and the Context it may know."""

from collections.abc import Callable, Mapping
from typing import Any, Protocol

from msgspec import Struct

from gateway.formats.reader import Reader, Step


class Context(Struct, frozen=True):
    """What a format may know of the request."""

    tools: Mapping[str, Mapping[str, Any]]  # name → JSON Schema of its parameters; empty: none were offered
    thought_open: bool = False  # the prompt has already opened a thought


class Emit(Protocol):
    """Where a format puts what it has found.  Numbers and ids of calls are given by whoever listens.

    fragment: takes the beginning of a call that the end of the text cut before it had a name.
    """

    def text(self, text: str) -> None: ...
    def reasoning(self, text: str) -> None: ...
    def tool_start(self, name: str) -> None: ...
    def tool_args(self, json: str) -> None: ...
    def tool_end(self) -> None: ...
    def fragment(self, text: str) -> None: ...


def give_back(read: Reader, emit: Emit) -> None:
    """What seemed to be a call is none: it was text, unless the text only ended too early to tell."""
    if text := read.recorded():
        (emit.fragment if read.ended else emit.text)(text)


Format = Callable[[Reader, Emit, Context], Step]


class Parse:
    """One generator at work on one text."""

    __slots__ = ("_run", "done", "read")

    def __init__(self, read: Reader, run: Step) -> None:
        self.read, self._run = read, run
        self.done = bool(next(run, True))  # the generator has returned

    def feed(self, text: str) -> None:
        self.read.feed(text)
        self.done = bool(next(self._run, True))

    def close(self, cut: bool = False) -> None:
        """Release what was held back; see `Reader.close`."""
        self.read.close(cut)
        next(self._run, None)
