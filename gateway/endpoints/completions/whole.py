"""A legacy completion in one body: the fold of the same events."""

from typing import Any

from msgspec import Raw

from gateway import events as ev
from gateway.endpoints.completions.request import CompletionParams
from gateway.endpoints.completions.shape import completion_logprobs, usage_object
from gateway.endpoints.extras import join_extra
from gateway.endpoints.folded import BodyEncoder


class CompletionBodyEncoder(BodyEncoder[CompletionParams, "_CompletionChoice"]):
    def _begun(self) -> "_CompletionChoice":
        return _CompletionChoice()

    def record(self) -> None:
        """Completions are not stored."""

    def _completion(self) -> dict[str, Any]:
        said = {"id": self._head.id, "object": "text_completion", "created": self._head.created}
        choices = [choice.body(index, self._asked.logprobs) for index, choice in self._sorted()]
        return {
            **said,
            "model": self._head.model,
            "choices": choices,
            "usage": usage_object(self._usage),
            **self._extras,
        }


class _CompletionChoice:
    def __init__(self) -> None:
        self._texts: list[str] = []
        self._logprobs: list[ev.Logprob] = []
        self._reason = "stop"
        self._extras: dict[str, Raw] = {}

    def add(self, event: ev.Event) -> None:
        """Thoughts, calls and the like have no place here."""
        match event:
            case ev.TextDelta():
                self._texts.append(event.text)
                self._logprobs += event.logprobs
            case ev.Finish():
                self._reason = event.reason
            case ev.ExtraField():
                self._extras[event.name] = join_extra(self._extras.get(event.name), event.json)

    def body(self, index: int, most: int | None) -> dict[str, Any]:
        chances = None if most is None or not self._logprobs else completion_logprobs(self._logprobs, most)
        text = "".join(self._texts)
        return {"text": text, "index": index, "logprobs": chances, "finish_reason": self._reason, **self._extras}
