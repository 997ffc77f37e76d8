"""A legacy completion as it comes: events out as text_completion frames."""

from collections import defaultdict
from collections.abc import Callable
from typing import Any, ClassVar

from gateway import events as ev
from gateway.endpoints.completions.request import CompletionParams
from gateway.endpoints.completions.shape import CompletionHead, completion_logprobs, encode
from gateway.endpoints.frames import StreamEncoder
from gateway.ledger import Warnings


class CompletionStreamEncoder(StreamEncoder):
    """Thoughts, calls and the like have no place here; a backend that completes a text sends none."""

    def __init__(self, head: CompletionHead, asked: CompletionParams, ledger: Warnings) -> None:
        said = {"id": head.id, "object": "text_completion", "created": head.created, "model": head.model}
        super().__init__(said, ledger, include_usage=asked.include_usage, continuous_usage=asked.continuous_usage)
        self._asked = asked
        self._choices: set[int] = set()
        self._said: dict[int, int] = defaultdict(int)  # by choice: characters of its tokens

    def start(self) -> bytes:
        return b""

    def record(self) -> None:
        """Completions are not stored."""

    def close(self, *, kept: bool) -> bytes:
        return self._end(whole=len(self._choices) >= self._asked.request.n)

    def _frame(self, choice: int, text: bytes, chances: bytes = b"null", reason: bytes = b"null") -> bytes:
        self._choices.add(choice)
        parts = (self._head, text, choice, chances, reason, self._extras(choice), self._ending())
        return b'%b{"text":%b,"index":%d,"logprobs":%b,"finish_reason":%b%b}%b' % parts

    def _frame_of(self, choice: int) -> bytes:
        return self._frame(choice, b'""')

    def _text(self, e: ev.TextDelta) -> bytes:
        if not e.logprobs or self._asked.logprobs is None:
            return self._frame(e.choice, encode(e.text))
        chances = completion_logprobs(e.logprobs, self._asked.logprobs, self._said[e.choice])
        self._said[e.choice] += sum(len(entry.token) for entry in e.logprobs)
        return self._frame(e.choice, encode(e.text), encode(chances))

    def _finish(self, e: ev.Finish) -> bytes:
        return self._frame(e.choice, b'""', reason=encode(e.reason))

    _arms: ClassVar[dict[type[Any], Callable[[Any, Any], bytes]]] = {
        **StreamEncoder._arms,
        ev.TextDelta: _text,
        ev.Finish: _finish,
        **dict.fromkeys(
            (
                ev.ReasoningDelta,
                ev.RefusalDelta,
                ev.Annotation,
                ev.Media,
                ev.BuiltinItem,
                ev.ToolCallStart,
                ev.ToolArgsDelta,
                ev.ToolInputDelta,
                ev.ToolCallEnd,
                ev.BuiltinItemStart,
                ev.BuiltinArgsDelta,
                ev.BuiltinRunStart,
                ev.BuiltinItemEnd,
            ),
            StreamEncoder._nothing,
        ),
    }
