"""A legacy completion in one body: the fold of the same events."""

from typing import Any

from msgspec import Raw

from gateway import events as ev
from gateway.endpoints.completions.request import Asked
from gateway.endpoints.completions.shape import Head, encode, logprobs, usage
from gateway.endpoints.extras import continued
from gateway.ledger import Ledger


class Whole:
    def __init__(self, head: Head, asked: Asked, ledger: Ledger) -> None:
        self._head, self._asked, self._ledger = head, asked, ledger
        self._choices: dict[int, _Choice] = {}
        self._usage = ev.Usage(0, 0)
        self._extras: dict[str, Raw] = {}
        self._failed = False

    def start(self) -> bytes:
        return b""

    def keep_alive(self) -> bytes:
        return b""

    def encode(self, event: ev.Event) -> bytes:
        match event:
            case ev.Usage():
                self._usage = event
            case ev.Failure():
                self._failed = True
            case ev.Extra(choice=None):
                self._extras[event.name] = event.json
            case ev.Text() | ev.Finish() | ev.Extra(choice=int()):
                self._choices.setdefault(event.choice or 0, _Choice()).add(event)
        return b""

    def record(self) -> None:
        """Completions are not stored."""

    def close(self, *, kept: bool) -> bytes:
        """The body; a failure has none."""
        return b"" if self._failed else encode(self._completion())

    def _completion(self) -> dict[str, Any]:
        if len(self._choices) < self._asked.request.n:
            self._ledger.note("unenforced", "n")
        said = {"id": self._head.id, "object": "text_completion", "created": self._head.created}
        choices = [choice.body(index, self._asked.logprobs) for index, choice in sorted(self._choices.items())]
        return {**said, "model": self._head.model, "choices": choices, "usage": usage(self._usage), **self._extras}


class _Choice:
    def __init__(self) -> None:
        self._texts: list[str] = []
        self._logprobs: list[ev.Logprob] = []
        self._reason = "stop"
        self._extras: dict[str, Raw] = {}

    def add(self, event: ev.Text | ev.Finish | ev.Extra) -> None:
        if isinstance(event, ev.Text):
            self._texts.append(event.text)
            self._logprobs += event.logprobs
        elif isinstance(event, ev.Finish):
            self._reason = event.reason
        else:
            self._extras[event.name] = continued(self._extras.get(event.name), event.json)

    def body(self, index: int, most: int | None) -> dict[str, Any]:
        chances = None if most is None or not self._logprobs else logprobs(self._logprobs, most)
        text = "".join(self._texts)
        return {"text": text, "index": index, "logprobs": chances, "finish_reason": self._reason, **self._extras}
