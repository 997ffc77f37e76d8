"""Parse calls as JSON objects, one, or several in a list or in sequence:  {"name": "f", "arguments": {…}}

The parser also accepts variants that models write:

- other names of the members, arguments before the name
- arguments as a JSON string or null, or as members beside the name
- the API's own form with a `function` inside
- Python's quotes, doubled braces, a missing last brace, a missing comma between members

Before its name is known an object may still be text; after that it is a call, complete or cut off.
"""

import re
from collections.abc import Collection

from gateway.formats import lenient_json
from gateway.formats.argument_types import escape_json_string
from gateway.formats.argument_values import fitted
from gateway.formats.arguments import encoded, whole
from gateway.formats.parser import ParseContext, ParserOutput, emit_as_text, start_call
from gateway.formats.reader import ReadStep, TextReader, TextSink
from gateway.formats.schema_types import ANYTHING, Shape
from gateway.formats.string_ends import Nesting
from gateway.formats.text_buffer import Malformed

_NAME = {"name", "tool_name", "tool", "function"}
_ID = {"id", "tool_call_id"}
_ARGUMENTS = {"arguments", "parameters", "args"}
_RARE_ARGUMENTS = {"input", "params", "tool_input"}  # only of an object, and unless the tool has such a parameter
_PLAIN = {"type", "index"}
_BARE = re.compile(r"[^,{}\[\]<]*")
_KNOWN = {*_NAME, *_ID, *_ARGUMENTS, *_PLAIN}
_QUOTED = tuple(sorted(quote + key + quote for quote in "\"'" for key in _KNOWN))
FENCE = "```"
_EMPTY = "{} \n\t"


def tagged_calls(read: TextReader, emit: ParserOutput, context: ParseContext) -> ReadStep:
    """Read calls of any name between tags; an empty list holds no calls."""
    return (yield from read_calls(read, JsonCall(read, emit, context)))


def keyed_calls(read: TextReader, emit: ParserOutput, context: ParseContext) -> ReadStep:
    """Read calls like `tagged_calls` in which the name is the key of the arguments:  [{"f": {…}}]"""
    return (yield from read_calls(read, KeyedCall(read, emit, context)))


def read_calls(read: TextReader, call: "JsonCall") -> ReadStep:
    """Read one object, several or a list of them, perhaps between code fences."""
    fence = yield from read.accept(FENCE)
    if fence:
        yield from read.take_literal("json")
    bracket = yield from read.accept("[")
    if bracket and (yield from read.accept("]")):
        call.none()
    else:
        yield from read.expect("{")
        yield from several(read, call, listed=bool(bracket))
    return (yield from read.accept(fence)) if fence else ""


def read_arguments(read: TextReader, put: TextSink, shape: Shape) -> ReadStep:
    """Pass on arguments in any of their spellings as a JSON object; return "" if the text ended first."""
    first = yield from read.peek()
    try:
        return (yield from _spelled(first, read, put, shape))
    except Malformed:
        return (yield from _as_they_came(read, put))


def _spelled(first: str, read: TextReader, put: TextSink, shape: Shape) -> ReadStep:
    """Return the step that passes on arguments with this first character."""
    return encoded(read, put, shape) if first in ('"', "'") else whole(read, put, shape)


def _as_they_came(read: TextReader, put: TextSink) -> ReadStep:
    """Pass on the rest of arguments that cannot be repaired, to the bracket that closes them; return "" at the end."""
    if read.nesting:
        return (yield from Nesting("{" * read.nesting).leave(read, put))
    put((yield from read.run(_BARE)).rstrip())
    return "" if read.ended else "whole"


def surplus(read: TextReader) -> ReadStep:
    """Drop a surplus brace behind a call."""
    found = yield from read.accept("}")
    read.was_repaired |= bool(found)
    return found


class JsonCall:
    """Parse objects, while the TextReader records from the announcement of the call.

    names: if no tag announced the call, the names that make an object a call; None for any name.
    pseudo: names of objects that are neither calls nor text.
    """

    def __init__(
        self,
        read: TextReader,
        emit: ParserOutput,
        context: ParseContext,
        names: Collection[str] | None = None,
        pseudo: Collection[str] = (),
    ) -> None:
        self.read, self.emit, self.names, self._context, self._pseudo = read, emit, names, context, pseudo

    def none(self) -> None:
        """Take a list without calls, and drop its markup."""
        self.read.end_recording()

    def run(self) -> ReadStep:
        """Parse one object behind its opening brace; return "" if the text ended before the object did.

        Raises Malformed if the object has no name, or if its text cannot be repaired.
        """
        self._started = self._argued = self._mute = False
        self._shape = ANYTHING
        self._python = False  # the last string had Python's quotes
        self._id = ""
        self._early: list[str] = []  # arguments before the name
        self._strange: list[str] = []  # unknown members before the name
        self._beside: dict[str, str] = {}  # parameters of the tool that stand beside its name
        self.depth = 1  # open braces between two members
        doubled = yield from self.read.take_literal("{")
        yield from self._members()
        if not self._started:
            raise Malformed
        closed = yield from self.read.accept("}")
        self._gather(closed)
        if not closed and self.read.ended:
            return ""
        if doubled:
            yield from self.read.accept("}")
        if not self._mute:
            self.emit.tool_end()
        yield from surplus(self.read)
        return "whole"

    def _members(self) -> ReadStep:
        more = ","
        while more and (yield from self.read.peek()) != "}":
            key = yield from self._string(_KNOWN)
            yield from self.read.expect(":")
            yield from self._member(key)
            more = (yield from self.read.accept(",")) or (yield from self._missing_comma())
        return ""

    def _missing_comma(self) -> ReadStep:
        """Return a comma if a known key comes without one."""
        missing = "," if (yield from self.read.lookahead(*_QUOTED)) else ""
        self.read.was_repaired |= bool(missing)
        return missing

    def _member(self, key: str) -> ReadStep:
        first = yield from self.read.peek()
        if key == "function" and first == "{" and self.depth == 1:
            yield from self._inside()
        elif key in _NAME and not self._started:
            self._start((yield from self._string(self.names)))
        elif not self._argued and self._holds_arguments(key, first):
            yield from self._argue(first)
        elif key in _ID and not self._started and first in ('"', "'"):
            self._id = yield from lenient_json.read_string(self.read)
        else:
            yield from self._other(key)
        return ""

    def _holds_arguments(self, key: str, first: str) -> bool:
        rare = key in _RARE_ARGUMENTS and first == "{" and self._started and not self._is_parameter(key)
        return rare or key in _ARGUMENTS

    def _is_parameter(self, key: str) -> bool:
        return self._shape.member(key) is not ANYTHING

    def _argue(self, first: str) -> ReadStep:
        """Pass on the arguments; in an object with Python's quotes, Python's notation counts as no repair."""
        self._argued, mended = True, self.read.was_repaired
        try:
            end = yield from _spelled(first, self.read, self._put, self._shape)
        except Malformed:
            if not self._started:
                raise
            end = yield from _as_they_came(self.read, self._put)
        if self._python:
            self.read.was_repaired = mended
        return end

    def _inside(self) -> ReadStep:
        """Read the members of an object inside this one."""
        yield from self.read.take_literal("{")
        self.depth += 1
        yield from self._members()
        yield from self.read.accept("}")
        self.depth -= 1
        return ""

    def _other(self, key: str) -> ReadStep:
        if key not in _KNOWN and self._started and not self._argued and self._is_parameter(key):
            return (yield from self._keep(key))
        if key not in _PLAIN:
            self._drop(f"tool_calls.{key}" if key in _KNOWN else "tool_calls.function")
        return (yield from self._value(_ignore))

    def _value(self, put: TextSink) -> ReadStep:
        return lenient_json.read_value(self.read, put) if self._python else self.read.json(put)

    def _keep(self, key: str) -> ReadStep:
        """Keep a parameter beside the name until the object ends, as its arguments may still come."""
        pieces: list[str] = []
        end = yield from self._value(pieces.append)
        value = "".join(pieces)
        self._beside[key] = fitted(value, self._shape.member(key)) or value
        return end

    def _gather(self, closed: str) -> None:
        """Pass on the parameters beside the name as the arguments, if no others came."""
        if self._beside and self._argued:
            self._drop("tool_calls.function")
        elif self._beside:
            self.read.was_repaired = True
            pairs = [f'"{escape_json_string(key)}": {value}' for key, value in self._beside.items()]
            self._put("{" + ", ".join(pairs) + closed)

    def _string(self, options: Collection[str] | None) -> ReadStep:
        """Read a string in any quotes; while the object may be text, only one of the options, else raise Malformed."""
        quote = yield from self.read.peek()
        self._python = quote == "'"
        if self.names is None or self._started:
            return (yield from lenient_json.read_string(self.read))
        spelled = [quote + option + quote for option in options or ()] if quote in ('"', "'") else []
        found = (yield from self.read.take_literal(*spelled)) if spelled else ""
        return found[1:-1] or _malformed()

    def _start(self, name: str) -> None:
        self._started = True
        self._mute = name in self._pseudo
        if self._mute:
            self.read.end_recording()
        else:
            start_call(self.read, self.emit, name, self._id)
            self._shape = self._context.shape(name)
        for key in self._strange:
            self.emit.note_dropped(key)
        if early := "".join(self._early):
            self._put(early if self._mute else fitted(early, self._shape) or early)

    def _drop(self, what: str) -> None:
        """Add a warning about a dropped member once the object is a call."""
        if not self._started:
            self._strange.append(what)
        else:
            self.emit.note_dropped(what)

    @property
    def _put(self) -> TextSink:
        """The sink for the arguments that come next."""
        if not self._started:
            return self._early.append
        return self._unused if self._mute else self.emit.tool_args

    def _unused(self, arguments: str) -> None:
        """Drop the arguments of an object that is no call; warn unless they are empty."""
        if arguments.strip(_EMPTY):
            self.emit.note_dropped("tool_calls.function.arguments")


class KeyedCall(JsonCall):
    """Parse objects whose key is the name of the call, or that name it in a member as other calls do."""

    def _member(self, key: str) -> ReadStep:
        if self._started or key in _KNOWN:
            return (yield from super()._member(key))
        self._start(key)
        return (yield from self._argue((yield from self.read.peek())))


def several(read: TextReader, call: JsonCall, *, listed: bool) -> ReadStep:
    """Read the first call, whose brace was taken, and those that follow."""
    yield from call.run()
    if listed:
        call.names = None
    while not read.ended:
        read.begin_recording()
        parted = yield from read.accept(",", ";")
        if (yield from read.accept("{")):
            if (yield from _another(read, call, listed=listed)):
                continue
            return ""
        if not (listed and (yield from read.accept("]"))) and parted:
            emit_as_text(read, call.emit, call.emit.text)
        read.end_recording()
        return ""
    return ""


def _another(read: TextReader, call: JsonCall, *, listed: bool) -> ReadStep:
    """Read a further call; any other object becomes text, and only a list continues behind it."""
    try:
        yield from call.run()
    except Malformed:
        if not read.is_recording:
            raise
        try:
            goes_on = (yield from _rest(read, call)) if listed else ""
        except Malformed:
            goes_on = ""
        emit_as_text(read, call.emit, call.emit.text)
        return goes_on
    return "whole"


def _rest(read: TextReader, call: JsonCall) -> ReadStep:
    """Take the rest of an object that is no call."""
    return (yield from read.json(_ignore, call.depth)) if call.depth else "whole"


def _malformed() -> str:
    raise Malformed


def _ignore(_: str) -> None:
    pass
