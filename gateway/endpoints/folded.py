"""Completions in one body, of chats and of texts: all of the fold but what a choice says."""

from abc import ABC, abstractmethod
from typing import Any, Generic, Protocol, TypeVar

from msgspec import Raw

from gateway import events as ev
from gateway.endpoints.chat.shape import CompletionHead, encode
from gateway.endpoints.extras import forward
from gateway.ledger import Warnings
from gateway.request import Request

_NOTHING = ev.Usage(0, 0)


class BodyChoice(Protocol):
    def add(self, event: Any) -> None:  # noqa: ANN401 - any event of a choice
        ...


class HasRequest(Protocol):
    @property
    def request(self) -> Request: ...


_Asked = TypeVar("_Asked", bound=HasRequest)
_Choice = TypeVar("_Choice", bound=BodyChoice)


class BodyEncoder(ABC, Generic[_Asked, _Choice]):
    def __init__(self, head: CompletionHead, asked: _Asked, ledger: Warnings) -> None:
        self._head, self._asked, self._ledger = head, asked, ledger
        self._choices: dict[int, _Choice] = {}
        self._usage = _NOTHING
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
        if type(event) is ev.ExtraField:
            forward(event, self._ledger)
        if event.choice is None:
            self._extras[event.name] = event.json
            return
        choice = self._choices.get(event.choice)
        if choice is None:
            choice = self._choices[event.choice] = self._begun()
        choice.add(event)

    def close(self, *, kept: bool) -> bytes:
        """The body; a failure has none."""
        return b"" if self._failed else encode(self._completion())

    @abstractmethod
    def _begun(self) -> _Choice:
        """One of which nothing is said yet."""

    @abstractmethod
    def _completion(self) -> dict[str, Any]: ...

    def _sorted(self) -> list[tuple[int, _Choice]]:
        """The choices in their order; that some are missing is listed."""
        if len(self._choices) < self._asked.request.n:
            self._ledger.note("unenforced", "n")
        return sorted(self._choices.items())
