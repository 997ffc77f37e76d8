"""A legacy completion as it comes: events out as text_completion frames."""

from collections import defaultdict
from collections.abc import Callable
from typing import Any, ClassVar

from msgspec import Raw

from gateway import events as ev
from gateway.endpoints.completions.request import Asked
from gateway.endpoints.completions.shape import Head, encode, logprobs, usage
from gateway.endpoints.extras import continued
from gateway.ledger import Ledger


class Stream:
    """Thoughts, calls and the like have no place here; a backend that completes a text sends none."""

    def __init__(self, head: Head, asked: Asked, ledger: Ledger) -> None:
        said = {"id": head.id, "object": "text_completion", "created": head.created, "model": head.model}
        self._head = b"data: " + encode(said)[:-1] + b',"choices":['
        self._tail = b'],"usage":null}\n\n' if asked.include_usage else b"]}\n\n"
        self._asked, self._ledger = asked, ledger
        self._choices: set[int] = set()
        self._said: dict[int, int] = defaultdict(int)  # by choice: characters of its tokens
        self._waiting: dict[int, dict[str, Raw]] = {}  # by choice: extra fields of its next chunk
        self._usage = ev.Usage(0, 0)
        self._failed = False

    def start(self) -> bytes:
        return b""

    def encode(self, event: ev.Event) -> bytes:
        return self._arms[type(event)](self, event)

    def keep_alive(self) -> bytes:
        return b": keep-alive\n\n"

    def record(self) -> None:
        """Completions are not stored."""

    def close(self, *, kept: bool) -> bytes:
        """The end; after an error there is none but the end of the body."""
        if self._failed:
            return b""
        if len(self._choices) < self._asked.request.n:
            self._ledger.note("unenforced", "n")
        told = self._ledger.untold()
        comment = b": gateway-warnings %b\n\n" % told.encode() if told else b""
        count = b'%b],"usage":%b}\n\n' % (self._head, encode(usage(self._usage))) if self._asked.include_usage else b""
        return comment + count + b"data: [DONE]\n\n"

    def _frame(self, choice: int, text: bytes, chances: bytes = b"null", reason: bytes = b"null") -> bytes:
        self._choices.add(choice)
        more = b"," + encode(self._waiting.pop(choice))[1:-1] if choice in self._waiting else b""
        parts = (self._head, text, choice, chances, reason, more, self._tail)
        return b'%b{"text":%b,"index":%d,"logprobs":%b,"finish_reason":%b%b}%b' % parts

    def _text(self, e: ev.Text) -> bytes:
        if not e.logprobs or self._asked.logprobs is None:
            return self._frame(e.choice, encode(e.text))
        chances = logprobs(e.logprobs, self._asked.logprobs, self._said[e.choice])
        self._said[e.choice] += sum(len(entry.token) for entry in e.logprobs)
        return self._frame(e.choice, encode(e.text), encode(chances))

    def _finish(self, e: ev.Finish) -> bytes:
        return self._frame(e.choice, b'""', reason=encode(e.reason))

    def _counted(self, e: ev.Usage) -> bytes:
        self._usage = e
        if self._asked.continuous_usage:
            self._tail = b'],"usage":%b}\n\n' % encode(usage(e))
        return b""

    def _extra(self, e: ev.Extra) -> bytes:
        if e.choice is None:
            return b'%b],"%b":%b%b' % (self._head, e.name.encode(), e.json, self._tail[1:])
        waiting = self._waiting.setdefault(e.choice, {})
        waiting[e.name] = continued(waiting.get(e.name), e.json)
        return b""

    def _failure(self, e: ev.Failure) -> bytes:
        self._failed = True
        return b"data: %b\n\n" % e.problem.body()

    def _nothing(self, _: ev.Event) -> bytes:
        return b""

    _arms: ClassVar[dict[type[Any], Callable[[Any, Any], bytes]]] = {
        ev.Text: _text, ev.Reasoning: _nothing, ev.Refusal: _nothing, ev.Annotation: _nothing,
        ev.HostedTool: _nothing, ev.ToolStart: _nothing, ev.ToolArgs: _nothing, ev.ToolInput: _nothing,
        ev.ToolEnd: _nothing, ev.Finish: _finish, ev.Usage: _counted, ev.Extra: _extra, ev.Failure: _failure,
    }  # fmt: skip
