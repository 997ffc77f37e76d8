"""Order the tool calls that a backend sends as calls: the client gets one after another.

A call stays open until its arguments are a complete object, or the response ends.  Text, reasoning and other calls
that arrive before that follow it.  A call without a name waits for it, and all that follows waits, too.

Known faults are repaired: a name in pieces, a repeated head, arguments before the name or in it, deltas with all of the
arguments so far, arguments repeated after their end, and a call that repeats another one.
"""

import re
from collections import deque
from collections.abc import Callable
from itertools import islice
from typing import Protocol

from msgspec import DecodeError, json
from msgspec.structs import replace

from gateway.events import ContentEvent, TextDelta, ToolArgsDelta, ToolCallStart
from gateway.formats import tool_names
from gateway.formats.arguments import TRAILING, Arguments
from gateway.formats.parser import ParseContext
from gateway.formats.schema_types import of_tool
from gateway.pipeline.tool_calls import ParserSettings, ToolCallTracker

_LONGEST_EMPTY = 8  # characters of `{}` with white space
_LONGEST_TAGS = 256  # characters behind the arguments that may be tags
# Behind the arguments: no more than brackets, `{}`, closing tags and special tokens, the last of them perhaps torn.
_TAGS = re.compile(rf"(?:[{re.escape(TRAILING)}]|\{{\}}|</[^<>\s]+>|<\|[^<>|\s]+\|>)*+(?:<[/|][^<>\s]*)?")
_BEFORE_VALUE = (":", "[", ",")  # after these, an inner object may begin with the same characters as the arguments


class StructuredCall:
    """One tool call of the backend, from its heads and arguments.

    twin: a call with the same id, which this one may repeat.
    texts: the arguments of the calls of this tool in the text, which this one may repeat, too.
    size: characters of the arguments as received.
    sent: the arguments that the client has received.
    started: the client has received the start.
    closed: no more of it comes.
    ended: the client has received the end.
    repaired: the arguments are not passed on unchanged.
    """

    def __init__(
        self, head: ToolCallStart, context: ParseContext, twin: "StructuredCall | None", texts: list[str]
    ) -> None:
        self.head, self.name, self.id = head, head.name, head.id
        self.started = self.closed = self.ended = self.repaired = False
        self._tools, self._twin, self._texts = context.tools, twin, texts
        self._raw: list[str] = []
        self.size = 0
        self.sent: list[str] = []  # shared with the ToolCallTracker, which completes the arguments
        self._doubtful = ""  # the last delta, which may repeat all arguments so far
        self._cumulative = False
        self._json: list[str] = []  # pieces for the client
        self._arguments: Arguments | None = None
        self._repeat = 0  # characters of the arguments that were repeated
        self._behind = ""  # other text behind the arguments, up to a limit
        if json := tool_names.arguments_behind(self.name, self._tools):
            self.repaired = True
            self._add(json)

    @property
    def raw(self) -> str:
        """The arguments as received."""
        self._raw = ["".join(self._raw)]
        return self._raw[0]

    @property
    def surplus(self) -> bool:
        """True if something after the arguments is not passed on, besides tags that the server left there."""
        return len(self._behind) > _LONGEST_TAGS or not _TAGS.fullmatch(self._behind)

    @property
    def certain(self) -> bool:
        """True if it is certain which tool is called, and that the call does not repeat another one."""
        if (self._twin or self._texts) and not (self.complete or self.closed):
            return False
        return bool(self.name) and (bool(self.size) or self.closed or tool_names.certain(self.name, self._tools))

    @property
    def repeated(self) -> bool:
        """True if the call repeats its twin, or a call in the text."""
        if self.started or not (self.complete or self.closed):
            return False
        return (self._twin is not None and _same(self.raw, self._twin.raw)) or bool(self._repeated_text())

    def drop(self) -> None:
        """Drop the call, which repeats another one; a call in the text counts as repeated once."""
        if text := self._repeated_text():
            self._texts.remove(text)

    def _repeated_text(self) -> str:
        """Return the arguments of the call in the text that this one repeats; "" without one."""
        json = "".join(self._json)
        return next((text for text in self._texts if _same(text, json if json.strip() else "{}")), "")

    @property
    def complete(self) -> bool:
        """True if the arguments are an object with members, or an empty one that the tool expects."""
        if self._arguments and self._arguments.complete:
            return True
        empty = self.size < _LONGEST_EMPTY and self.raw.strip() == "{}"
        return empty and self.name in self._tools and not self._tools[self.name].get("properties")

    def repeats(self, head: ToolCallStart) -> bool:
        """Take a further head with the same index, and return True if it belongs to this call."""
        if not head.name:  # a backend may write another id into each delta
            self.id = self.id or head.id
            return True
        if head.id and self.id and head.id != self.id:
            return False
        if head.name == self.name:
            return bool(head.id and self.id) or not self.complete
        if self.started or (self.size and self.name):
            return False
        joined = self.name + head.name
        if self.name in self._tools and joined not in self._tools and not (head.id and self.id):
            return False  # another call, of a backend that counts no calls
        self.name, self.id = joined, self.id or head.id
        if self.size:
            self._write(self.raw)
        return True

    def passes(self, piece: str) -> bool:
        """Take a piece that the client gets unchanged; return False if it needs a check."""
        size, arguments = len(piece), self._arguments
        if arguments and size < self.size and not self._doubtful and arguments.passes(piece):
            self._raw.append(piece)
            self.sent.append(piece)
            self.size += size
            return True
        return False

    def feed(self, piece: str) -> None:
        """Take the next piece of the arguments."""
        size, arguments = len(piece), self._arguments
        if arguments and size < self.size and not (arguments.over or self._doubtful):  # the usual case
            self._raw.append(piece)
            self.size += size
            arguments.feed(piece)
            if arguments.rest:
                self._take_rest(arguments.rest)
        elif self.ended or self.complete:
            self._after(piece)
        elif fresh := self._fresh(piece):
            self._add(fresh)

    def json(self) -> str:
        """Remove and return the arguments that are new for the client."""
        pieces = self._json
        json = pieces[0] if len(pieces) == 1 else "".join(pieces)
        pieces.clear()
        return json

    def close(self, cut: bool = False) -> None:
        """End the arguments.

        cut: the model did not end them itself.
        """
        if self.closed:
            return
        if self._doubtful:
            doubtful, self._doubtful = self._doubtful, ""
            self._cumulative = not _is_json(self.raw + doubtful) and _is_json(doubtful)
            self._add(doubtful[self.size :] if self._cumulative else doubtful)
        self.closed = True
        if self._arguments:
            self._arguments.close(cut)
        self.repaired |= self._cumulative or bool(self._arguments and self._arguments.repaired)

    def _fresh(self, piece: str) -> str:
        """Return the new part of a delta, which may repeat all arguments so far; "" if that is in doubt."""
        if doubtful := self._doubtful:
            self._doubtful = ""
            if not piece.startswith(doubtful):
                return doubtful + piece
            self._cumulative = True
        elif not (len(piece) >= self.size > 0 and piece[0] == "{" and piece.startswith(self.raw)):
            return piece
        elif not self._cumulative and self.raw.rstrip().endswith(_BEFORE_VALUE):
            self._doubtful = piece
            return ""
        self._cumulative = True
        return piece[self.size :]

    def _add(self, fresh: str) -> None:
        self._raw.append(fresh)
        self.size += len(fresh)
        if self.name:
            self._write(fresh)

    def _write(self, piece: str) -> None:
        """Repair a piece of the arguments, and keep it for the client."""
        if not self._arguments:
            tool = self._tools.get(tool_names.resolve(self.name, self._tools))
            self._arguments = Arguments(self._json.append, of_tool(tool))
        self._arguments.feed(piece)
        if rest := self._arguments.rest:
            self._take_rest(rest)

    def _take_rest(self, rest: str) -> None:
        """Take the text behind the arguments in the same piece."""
        self._raw = [self.raw.removesuffix(rest)]
        self._after(rest)

    def _after(self, piece: str) -> None:
        """Compare text after the end of the arguments, which may repeat them."""
        if self.raw.startswith(piece, self._repeat):
            self._repeat = (self._repeat + len(piece)) % max(len(self.raw), 1)
            self.repaired = True
        else:
            self._behind = (self._behind + piece)[: _LONGEST_TAGS + 1]
            self.repaired |= not piece.isspace()


def _is_json(text: str) -> bool:
    try:
        json.decode(text)
    except (DecodeError, RecursionError):
        return False
    return True


def _same(first: str, second: str) -> bool:
    """Return True if arguments are equal as JSON, or as text if they are none."""
    if first == second:
        return True
    return _is_json(first) and _is_json(second) and json.decode(first) == json.decode(second)


class Owner(Protocol):
    """The choice that owns the calls.  Each method takes it as an argument, because an attribute would be a cycle."""

    def take_content(self, event: ContentEvent) -> None:
        """Take text, reasoning and the like that had to wait."""

    def end_before_call(self) -> None:
        """End the text, because a tool call starts."""


class StructuredCalls:
    """The tool calls of one choice.

    queue: calls and content that are not delivered in full; the first one is the open call.
    """

    def __init__(self, choice: int, settings: ParserSettings, calls: ToolCallTracker) -> None:
        self._choice, self._settings, self._calls = choice, settings, calls
        self._known: dict[int, StructuredCall] = {}  # by the backend's index, the last one of each
        self._ids: dict[str, StructuredCall] = {}  # by the backend's id, the first one of each
        self.queue: deque[StructuredCall | ContentEvent] = deque()
        self._held = 0  # characters in the queue behind the open call

    @property
    def holds(self) -> bool:
        """True if content other than the open call's has to wait."""
        if len(self.queue) == 1 and isinstance(first := self.queue[0], StructuredCall):
            return not first.complete
        return bool(self.queue)

    def start(self, head: ToolCallStart, owner: Owner) -> None:
        """Take the head of a call: a new one, or one that repeats a known call."""
        known = self._known.get(head.call)
        if known and not known.ended:
            if known.repeats(head):
                self._go_on(owner)
                return
            self._settings.ledger.add("repaired", "tool_calls.index")
            known.close()
        elif known and not head.name:
            return  # a delta with nothing but an id
        if head.name and not self.queue:
            owner.end_before_call()  # completes a call in the text
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
        """Return `passes` of the open call, if the client knows it by the same index and nothing waits."""
        call = self._known[index]
        return call.passes if self._alone(call) and index == self._calls.count - 1 else None

    def _alone(self, call: StructuredCall) -> bool:
        """Return True if it is the open call, and nothing waits."""
        return call.started and len(self.queue) == 1 and self.queue[0] is call

    def wait(self, event: ContentEvent, owner: Owner) -> None:
        """Keep content that follows the open call."""
        self.queue.append(event)
        self._hold(_size(event), owner)
        self._go_on(owner)

    def close(self, owner: Owner, cut: bool = False) -> None:
        """End all calls.

        cut: the response ended before the model ended them.
        """
        for item in self.queue:
            if isinstance(item, StructuredCall):
                item.close(cut)
        self._go_on(owner, cut)

    def _report(self, call: StructuredCall) -> None:
        """Warn about arguments after the end of a call, which are not passed on."""
        if call.surplus or call.repaired:
            self._settings.ledger.add("invalid" if call.surplus else "repaired", "tool_calls.function.arguments")

    def _add(self, head: ToolCallStart) -> StructuredCall:
        twin = self._ids.get(head.id)
        texts = self._calls.calls_in_text(head.name)
        call = StructuredCall(head, self._settings.context, twin if twin and twin.name == head.name else None, texts)
        self._known[head.call] = call
        if head.id:
            self._ids.setdefault(head.id, call)
        self.queue.append(call)
        return call

    def _hold(self, size: int, owner: Owner) -> None:
        """Count the characters that wait; beyond the limit, end the open call."""
        self._held += size
        while self._held > self._settings.limit:
            first = self.queue[0]
            assert isinstance(first, StructuredCall)  # other content at the front is delivered at once
            first.close()
            self._go_on(owner)
            self._held = sum([_size(item) for item in islice(self.queue, 1, None)])

    def _go_on(self, owner: Owner, cut: bool = False) -> None:
        """Deliver all that need not wait any longer."""
        queue = self.queue
        while queue:
            item = queue[0]
            if isinstance(item, StructuredCall):
                self._deliver(item, owner)
                if not (item.closed or (item.complete and len(queue) > 1)):
                    break
                self._end(item, owner, cut)
            else:
                owner.take_content(item)
            queue.popleft()
        if len(queue) < 2:
            self._held = 0

    def _deliver(self, call: StructuredCall, owner: Owner) -> None:
        """Deliver the new arguments of the open call, once its tool is certain and it repeats no other."""
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
        ledger = self._settings.ledger
        if call.repeated:
            call.drop()
            ledger.add("repaired", "tool_calls")
        elif not call.started:
            if call.raw:
                owner.take_content(TextDelta(self._choice, call.raw))  # arguments without a call become text
        else:
            self._report(call)
            self._calls.end(cut, closed=True)


def _size(item: StructuredCall | ContentEvent) -> int:
    return item.size if isinstance(item, StructuredCall) else len(getattr(item, "text", ""))
