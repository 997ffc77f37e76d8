"""A legacy completion as it comes: events out as text_completion frames."""

from collections import defaultdict
from collections.abc import Callable
from typing import Any, ClassVar

from gateway import events as ev
from gateway.endpoints.completions.request import Asked
from gateway.endpoints.completions.shape import Head, encode, logprobs
from gateway.endpoints.frames import Frames
from gateway.ledger import Ledger


class Stream(Frames):
    """Thoughts, calls and the like have no place here; a backend that completes a text sends none."""

    def __init__(self, head: Head, asked: Asked, ledger: Ledger) -> None:
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

    def _text(self, e: ev.Text) -> bytes:
        if not e.logprobs or self._asked.logprobs is None:
            return self._frame(e.choice, encode(e.text))
        chances = logprobs(e.logprobs, self._asked.logprobs, self._said[e.choice])
        self._said[e.choice] += sum(len(entry.token) for entry in e.logprobs)
        return self._frame(e.choice, encode(e.text), encode(chances))

    def _finish(self, e: ev.Finish) -> bytes:
        return self._frame(e.choice, b'""', reason=encode(e.reason))

    _arms: ClassVar[dict[type[Any], Callable[[Any, Any], bytes]]] = {
        **Frames._arms, ev.Text: _text, ev.Finish: _finish,
        **dict.fromkeys(
            (ev.Reasoning, ev.Refusal, ev.Annotation, ev.Media, ev.HostedTool, ev.ToolStart, ev.ToolArgs, ev.ToolInput,
             ev.ToolEnd, ev.HostedStart, ev.HostedArgs, ev.HostedRun, ev.HostedEnd),
            Frames._nothing,
        ),
    }  # fmt: skip
