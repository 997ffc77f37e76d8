"""The tool calls that a backend sends as calls, in the order in which the client gets them: one after another.

A call stays open until its arguments are a complete object, or the answer ends.  Text, reasoning and other calls that
arrive before that follow it.  A call whose name has not arrived waits for it, and all that follows waits with it.
"""

from collections import deque
from collections.abc import Callable
from itertools import islice
from typing import Protocol

from msgspec.structs import replace

from gateway.calls import ParserSettings, ToolCallTracker
from gateway.events import ContentEvent, TextDelta, ToolArgsDelta, ToolCallStart
from gateway.structured_call import StructuredCall


class Owner(Protocol):
    """The choice that owns the calls.  They are lent it for each event, as they would be a cycle with it."""

    def say(self, event: ContentEvent) -> None:
        """Take text, reasoning and the like that had to wait."""

    def end_before_call(self) -> None:
        """End the text, as a call starts."""


class StructuredCalls:
    """The calls of one choice.

    queue: what has not been delivered in full; the first one is the open call.
    """

    def __init__(self, choice: int, setting: ParserSettings, calls: ToolCallTracker) -> None:
        self._choice, self._setting, self._calls = choice, setting, calls
        self._known: dict[int, StructuredCall] = {}  # by the backend's index, the last one of each
        self._ids: dict[str, StructuredCall] = {}  # by the backend's id, the first one of each
        self.queue: deque[StructuredCall | ContentEvent] = deque()
        self._held = 0  # characters that wait

    @property
    def holds(self) -> bool:
        """True if what is not of the open call has to wait."""
        if len(self.queue) == 1 and isinstance(first := self.queue[0], StructuredCall):
            return not first.complete
        return bool(self.queue)

    def start(self, head: ToolCallStart, owner: Owner) -> None:
        """Take the head of a call: a new one, or one that is known again."""
        known = self._known.get(head.call)
        if known and not known.ended:
            if known.repeats(head):
                self._go_on(owner)
                return
            self._setting.ledger.note("repaired", "tool_calls.index")
            known.close()
        elif known and not head.name and head.id == known.id:
            return  # a delta that has nothing but the id again
        self._add(head)
        self._go_on(owner)

    def args(self, event: ToolArgsDelta, owner: Owner) -> None:
        """Take the next arguments of a call, which may come before its head."""
        call = self._known.get(event.call) or self._add(ToolCallStart(self._choice, event.call, "", ""))
        call.feed(event.json)
        if self._alone(call):
            self._calls.args(call.json())
            return
        if call.ended:
            self._report(call)
            return
        self._hold(len(event.json), owner)
        self._go_on(owner)

    def passes(self, index: int) -> Callable[[str], bool] | None:
        """Return `passes` of the open call, if this is its index for the backend and the client, and nothing waits."""
        call = self._known[index]
        return call.passes if self._alone(call) and index == self._calls.count - 1 else None

    def _alone(self, call: StructuredCall) -> bool:
        """Return whether it is the open call, and nothing waits."""
        return call.started and len(self.queue) == 1 and self.queue[0] is call

    def wait(self, event: ContentEvent, owner: Owner) -> None:
        """Keep what follows the open call."""
        self.queue.append(event)
        self._hold(_size(event), owner)
        self._go_on(owner)

    def close(self, owner: Owner, cut: bool = False) -> None:
        """End all calls.  cut: the answer ended, and not by the model's will."""
        for item in self.queue:
            if isinstance(item, StructuredCall):
                item.close(cut)
        self._go_on(owner, cut)

    def _report(self, call: StructuredCall) -> None:
        """Report what came for a call after its end; nothing of it is passed on."""
        if call.surplus or call.repaired:
            self._setting.ledger.note("invalid" if call.surplus else "repaired", "tool_calls.function.arguments")

    def _add(self, head: ToolCallStart) -> StructuredCall:
        twin = self._ids.get(head.id)
        call = StructuredCall(head, self._setting.context, twin if twin and twin.name == head.name else None)
        self._known[head.call] = call
        if head.id:
            self._ids.setdefault(head.id, call)
        self.queue.append(call)
        return call

    def _hold(self, size: int, owner: Owner) -> None:
        """Count what waits; if it is too much, the open call is waited for no longer."""
        self._held += size
        while self._held > self._setting.limit:
            first = self.queue[0]
            assert isinstance(first, StructuredCall)  # all else would have gone on
            first.close()
            self._go_on(owner)
            self._held = sum([_size(item) for item in islice(self.queue, 1, None)])

    def _go_on(self, owner: Owner, cut: bool = False) -> None:
        """Deliver all that does not have to wait any longer."""
        queue = self.queue
        while queue:
            item = queue[0]
            if isinstance(item, StructuredCall):
                self._deliver(item, owner)
                if not (item.closed or (item.complete and len(queue) > 1)):
                    break
                self._end(item, owner, cut)
            else:
                owner.say(item)
            queue.popleft()
        if len(queue) < 2:
            self._held = 0

    def _deliver(self, call: StructuredCall, owner: Owner) -> None:
        """Deliver what has come of the open call, once it is certain that it is one, and which."""
        if not call.certain or call.repeated:
            return
        if not call.started:
            call.started = True
            owner.end_before_call()
            call.sent = self._calls.start(replace(call.head, name=call.name, id=call.id))
        self._calls.args(call.json())

    def _end(self, call: StructuredCall, owner: Owner, cut: bool) -> None:
        call.close(cut)
        self._deliver(call, owner)
        call.ended = True
        ledger = self._setting.ledger
        if call.repeated:
            ledger.note("repaired", "tool_calls")
        elif not call.started:
            if call.raw:
                owner.say(TextDelta(self._choice, call.raw))  # arguments of no call are not lost
        else:
            self._report(call)
            self._calls.end(cut)


def _size(item: StructuredCall | ContentEvent) -> int:
    return item.size if isinstance(item, StructuredCall) else len(getattr(item, "text", ""))
