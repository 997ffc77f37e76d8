"""Server-sent frames of completions, of chats and of texts: all of a stream but what a choice says."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Any, ClassVar

from msgspec import Raw

from gateway import events as ev
from gateway.endpoints.chat.shape import encode, usage_object
from gateway.endpoints.extras import IN_EACH, forward, join_extra, joined
from gateway.ledger import Warnings

_Place = tuple[int | None, bool]  # of a member: its choice, and True within the choice's message


class StreamEncoder(ABC):
    """head: the members of each frame, but for its choices.

    include_usage, continuous_usage: a count at the end, with each chunk.
    """

    def __init__(
        self, head: Mapping[str, Any], ledger: Warnings, *, include_usage: bool, continuous_usage: bool
    ) -> None:
        self._members = {**head}
        self._head = self._opening()
        self._tail = b'],"usage":null}\n\n' if include_usage else b"]}\n\n"
        self._ledger, self._include, self._continuous = ledger, include_usage, continuous_usage
        self._waiting: dict[_Place, dict[str, Raw]] = {}  # members of the next frame
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
        rest = self._rest() if self._waiting else b""
        told = self._ledger.untold()
        comment = b": gateway-warnings %b\n\n" % told.encode() if told else b""
        count = b""
        if self._include:
            parts = self._head, self._extras(None), encode(usage_object(self._usage))
            count = b'%b]%b,"usage":%b}\n\n' % parts
        return rest + comment + count + b"data: [DONE]\n\n"

    def _rest(self) -> bytes:
        """Return frames of the members that still wait, but for those that the last count takes along."""
        places = sorted({choice for choice, _ in self._waiting if choice is not None})
        frames = b"".join([self._frame_of(choice) for choice in places])
        return frames + self._head + self._ending() if self._waiting and not self._include else frames

    @abstractmethod
    def _frame_of(self, choice: int) -> bytes:
        """Return a frame that brings nothing of a choice but what waits for it."""

    def _opening(self) -> bytes:
        return b"data: " + encode(self._members)[:-1] + b',"choices":['

    def _ending(self) -> bytes:
        """Return the end of a frame, with what waits for a place beside the choices."""
        return b"]" + self._extras(None) + self._tail[1:] if (None, False) in self._waiting else self._tail

    def _extras(self, choice: int | None, *, inside: bool = False) -> bytes:
        """Return the members that wait for the next frame of a choice."""
        waiting = self._waiting.pop((choice, inside), None)
        return b"," + encode(waiting)[1:-1] if waiting else b""

    def _counted(self, e: ev.Usage) -> bytes:
        self._usage = e
        if self._continuous:
            self._tail = b'],"usage":%b}\n\n' % encode(usage_object(e))
        return b""

    def _extra(self, e: ev.ExtraField) -> bytes:
        forward(e, self._ledger)
        if e.choice is None and e.asked:  # at once: it may be all that comes for long, like the progress of a prompt
            return b"%b],%b%b" % (self._head, encode({e.name: e.json})[1:-1], self._tail[1:])
        if e.choice is None and e.name in IN_EACH:
            self._members[e.name] = e.json
            self._head = self._opening()
            return b""
        waiting = self._waiting.setdefault((e.choice, e.inside), {})
        join = joined if e.inside else join_extra
        waiting[e.name] = e.json if e.choice is None else join(waiting.get(e.name), e.json)
        return b""

    def _failure(self, e: ev.Failure) -> bytes:
        self._failed = True
        return b"data: %b\n\n" % e.problem.body()

    def _nothing(self, _: ev.Event) -> bytes:
        return b""

    _arms: ClassVar[dict[type[Any], Callable[[Any, Any], bytes]]] = {
        ev.Usage: _counted, ev.ExtraField: _extra, ev.Failure: _failure,
    }  # fmt: skip
    _runs: ClassVar[dict[type[Any], Callable[[Any, Any], bytes]]] = {}  # what takes several at once
