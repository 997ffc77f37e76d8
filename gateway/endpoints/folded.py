"""Completions in one body, of chats and of texts: all of the fold but what a choice says."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, Generic, Protocol, TypeVar

from msgspec import Raw

from gateway import events as ev
from gateway.endpoints.chat.shape import encode
from gateway.ledger import Ledger


class Choice(Protocol):
    def add(self, event: Any) -> None:  # noqa: ANN401 - any event of a choice
        ...


_Choice = TypeVar("_Choice", bound=Choice)


class Folded(ABC, Generic[_Choice]):
    """n: how many choices were asked for; choice: makes an empty one."""

    def __init__(self, n: int, choice: Callable[[], _Choice], ledger: Ledger) -> None:
        self._n, self._choice, self._ledger = n, choice, ledger
        self._choices: dict[int, _Choice] = {}
        self._usage = ev.Usage(0, 0)
        self._extras: dict[str, Raw] = {}
        self._failed = False

    def start(self) -> bytes:
        return b""

    def keep_alive(self) -> bytes:
        return b""

    def encode(self, *events: ev.Event) -> bytes:
        for event in events:
            if type(event) is ev.Usage:
                self._usage = event
            elif type(event) is ev.Failure:
                self._failed = True
            else:
                self._take(event)
        return b""

    def _take(self, event: Any) -> None:  # noqa: ANN401 - any other event
        if event.choice is None:
            self._extras[event.name] = event.json
            return
        choice = self._choices.get(event.choice)
        if choice is None:
            choice = self._choices[event.choice] = self._choice()
        choice.add(event)

    def close(self, *, kept: bool) -> bytes:
        """The body; a failure has none."""
        return b"" if self._failed else encode(self._completion())

    @abstractmethod
    def _completion(self) -> dict[str, Any]: ...

    def _sorted(self) -> list[tuple[int, _Choice]]:
        """The choices in their order; that some are missing is listed."""
        if len(self._choices) < self._n:
            self._ledger.note("unenforced", "n")
        return sorted(self._choices.items())
