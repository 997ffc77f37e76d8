"""Calls as a response template describes them: what its pattern has behind the first tag, and then the arguments."""

import re
from collections.abc import Generator, Mapping, Sequence

from msgspec import Struct

from gateway.formats import dialect
from gateway.formats.format import ParseContext, ParserOutput, start_call
from gateway.formats.json_call import JsonCall, read_arguments, read_calls
from gateway.formats.passage import PassThrough
from gateway.formats.reader import Malformed, ReadStep, TextReader
from gateway.formats.response_template.pattern import PatternPart, PatternPiece, PatternTexts
from gateway.formats.shape import Shape
from gateway.formats.tagged import TaggedCall

_GAP = 256  # characters that mean nothing, at most


class CallOpening:
    """The pieces behind the first tag.

    before: what may follow them; a part with a name ends there.
    """

    def __init__(self, pieces: Sequence[PatternPiece], before: tuple[str, ...]) -> None:
        self._before = before
        self._sure = not pieces or isinstance(pieces[-1], PatternTexts)  # a name may go on, a tag cannot
        self._steps: list[tuple[PatternPiece, tuple[str, ...], re.Pattern[str]]] = []
        ends = before
        for piece in reversed(pieces):
            characters = piece.characters if isinstance(piece, PatternPart) else "."
            self._steps.insert(0, (piece, ends, _up_to(ends, characters)))
            if isinstance(piece, PatternTexts):
                ends = piece.options

    def read(self, read: TextReader) -> Generator[PassThrough | None, None, Mapping[str, str]]:
        """The parts that have names; Malformed if the text, or what follows it, is of another form."""
        parts: dict[str, str] = {}
        for piece, ends, characters in self._steps:
            yield from read.peek()
            if isinstance(piece, PatternTexts):
                yield from _one_of(read, piece.options)
            elif piece.name:
                parts[piece.name] = yield from read.run(characters)
            else:
                yield from _skip(read, ends)
        yield from read.peek()
        if not (yield from read.ahead(*self._before)) and not (self._sure and read.ended):
            raise Malformed
        return parts


class CallNaming(Struct, frozen=True):
    """Where the name and the id of a call come from: parts of its opening, or, the name, a text of its own."""

    name: str
    id: str = ""
    fixed: bool = False

    def of(self, parts: Mapping[str, str]) -> tuple[str, str]:
        """Both, or Malformed."""
        name = self.name if self.fixed else parts[self.name]
        if not name:
            raise Malformed
        return name, parts[self.id] if self.id else ""


class ObjectCalls(Struct, frozen=True):
    """Objects with the names in them.  `keys`: the template's word for a member → ours."""

    opening: CallOpening
    keys: Mapping[str, str]

    def __call__(self, read: TextReader, emit: ParserOutput, context: ParseContext) -> ReadStep:
        yield from self.opening.read(read)
        return (yield from read_calls(read, _RenamedJsonCall(read, emit, context, self.keys)))


class ArgumentCalls(Struct, frozen=True):
    """Arguments on their own, as JSON, or, if `lax`, in a dialect of it; one of `ends` follows."""

    opening: CallOpening
    origin: CallNaming
    ends: tuple[str, ...]
    lax: bool

    def __call__(self, read: TextReader, emit: ParserOutput, context: ParseContext) -> ReadStep:
        name, id = self.origin.of((yield from self.opening.read(read)))
        start_call(read, emit, name, id)
        if self.ends and (end := (yield from read.literal(*self.ends))):
            emit.tool_args("{}")
        elif not (yield from self._arguments(read, emit, context.shape(name))):
            return ""
        else:
            end = (yield from read.accept(*self.ends)) if self.ends else ""
        emit.tool_end()
        return end

    def _arguments(self, read: TextReader, emit: ParserOutput, shape: Shape) -> ReadStep:
        return dialect.read_value(read, emit.tool_args) if self.lax else read_arguments(read, emit.tool_args, shape)


class PairCalls(Struct, frozen=True):
    """Arguments one by one, between tags."""

    opening: CallOpening
    origin: CallNaming
    tags: TaggedCall

    def __call__(self, read: TextReader, emit: ParserOutput, context: ParseContext) -> ReadStep:
        name, id = self.origin.of((yield from self.opening.read(read)))
        start_call(read, emit, name, id)
        return (yield from self.tags.named(read, emit, context, name))


class _RenamedJsonCall(JsonCall):
    def __init__(self, read: TextReader, emit: ParserOutput, context: ParseContext, keys: Mapping[str, str]) -> None:
        super().__init__(read, emit, context)
        self._keys = keys

    def _member(self, key: str) -> ReadStep:
        return (yield from super()._member(self._keys.get(key, key)))


def _up_to(ends: tuple[str, ...], characters: str) -> re.Pattern[str]:
    """So many of these characters as stand before white space and before what any of the ends begins with."""
    first = re.escape("".join(sorted({end[0] for end in ends if end})))
    return re.compile(rf"(?:(?![\s{first}]){characters})*+")


def _one_of(read: TextReader, options: tuple[str, ...]) -> ReadStep:
    found = yield from read.literal(*options)
    if not found and "" not in options:
        raise Malformed
    return found


def _skip(read: TextReader, ends: tuple[str, ...]) -> ReadStep:
    """Take what stands before any of the ends."""
    for _ in range(_GAP):
        if (yield from read.ahead(*ends)):
            return ""
        yield from read.some(1)
    raise Malformed
