"""Server-sent frames of completions, of chats and of texts: all of a stream but what a choice says."""

from collections.abc import Callable, Mapping
from typing import Any, ClassVar

from msgspec import Raw

from gateway import events as ev
from gateway.endpoints.chat.shape import encode, usage
from gateway.endpoints.extras import continued
from gateway.ledger import Ledger


class Frames:
    """head: the members of each frame, but for its choices.

    include_usage, continuous_usage: a count at the end, with each chunk.
    """

    def __init__(self, head: Mapping[str, Any], ledger: Ledger, *, include_usage: bool, continuous_usage: bool) -> None:
        self._head = b"data: " + encode(head)[:-1] + b',"choices":['
        self._tail = b'],"usage":null}\n\n' if include_usage else b"]}\n\n"
        self._ledger, self._include, self._continuous = ledger, include_usage, continuous_usage
        self._waiting: dict[int, dict[str, Raw]] = {}  # by choice: extra fields of its next chunk
        self._usage = ev.Usage(0, 0)
        self._failed = False

    def encode(self, *events: ev.Event) -> bytes:
        kind = type(events[0])
        arm = self._arms[kind]
        if len(events) == 1:
            return arm(self, events[0])
        run = self._runs.get(kind)
        return run(self, events) if run else b"".join([arm(self, event) for event in events])

    def keep_alive(self) -> bytes:
        return b": keep-alive\n\n"

    def _end(self, *, whole: bool) -> bytes:
        """`whole`: there are as many choices as were asked for.  After an error there is only the end of the body."""
        if self._failed:
            return b""
        if not whole:
            self._ledger.note("unenforced", "n")
        told = self._ledger.untold()
        comment = b": gateway-warnings %b\n\n" % told.encode() if told else b""
        count = b'%b],"usage":%b}\n\n' % (self._head, encode(usage(self._usage))) if self._include else b""
        return comment + count + b"data: [DONE]\n\n"

    def _extras(self, choice: int) -> bytes:
        """What waits for the next chunk of a choice."""
        return b"," + encode(self._waiting.pop(choice))[1:-1] if choice in self._waiting else b""

    def _counted(self, e: ev.Usage) -> bytes:
        self._usage = e
        if self._continuous:
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
        ev.Usage: _counted, ev.Extra: _extra, ev.Failure: _failure,
    }  # fmt: skip
    _runs: ClassVar[dict[type[Any], Callable[[Any, Any], bytes]]] = {}  # what takes several at once
