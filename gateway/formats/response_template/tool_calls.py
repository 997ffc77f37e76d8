"""Compile the field `tool_calls` of a response template to a parser of calls."""

import re
from collections.abc import Generator, Mapping, Sequence

from msgspec import Struct

from gateway.formats import lenient_json
from gateway.formats.argument_types import JSON, STRING
from gateway.formats.grammars.json_calls import JsonCall, read_arguments, read_calls
from gateway.formats.grammars.tagged import TaggedCall
from gateway.formats.lenient_json import MARKS
from gateway.formats.markers import END_TOKENS
from gateway.formats.parser import CallParser, ParseContext, ParserOutput, start_call
from gateway.formats.plain_text import PassThrough
from gateway.formats.reader import ReadStep, TextReader
from gateway.formats.response_template.node import TemplateNode
from gateway.formats.response_template.pattern import PatternPart, PatternPiece, PatternTexts
from gateway.formats.schema_types import Shape
from gateway.formats.text_buffer import Malformed

_GAP = 256  # most characters to skip for an unnamed part
_JSON_ARGS = ("unquoted_keys", "string_delims", "allow_non_json", "strip")
_XML_ARGS = ("tag_pattern", "value_parser", "merge_duplicates")
_DELIMITERS = [[mark, mark] for mark in (*MARKS, '"', "'")]
_TYPES = {
    "text": STRING,
    "json": JSON,
    "int": frozenset({"integer"}),
    "float": frozenset({"number"}),
    "bool": frozenset({"boolean"}),
}
_PLACEHOLDER, _MEMBER = re.compile(r"\{(\w+)\}"), re.compile(r"\{content\.(\w+)\}")
_TAG_SHAPES = (["", "key", "", "value", ""], ["", "key", "", "", "value", ""])
_TRIMMED = re.compile(r"\\s[*+]\??\(\?P?<value>")
_ELEMENT = re.compile(r"<([\w:.-]+)")
_TAG = "should be tags around a key and a value, like <arg name=(?P<key>[^>]+)>(?P<value>.*?)</arg>"
_SHAPE = 'should be like {"function": {"name": "{name}", "arguments": "{content}"}}'


class CallOpening:
    """The pieces of a call's opening behind the first tag.

    before: the texts that may follow the opening; a named part ends there.
    """

    def __init__(self, pieces: Sequence[PatternPiece], before: tuple[str, ...]) -> None:
        self._before = before
        self._sure = not pieces or isinstance(pieces[-1], PatternTexts)  # a name may continue, a tag cannot
        self._steps: list[tuple[PatternPiece, tuple[str, ...], re.Pattern[str]]] = []
        ends = before
        for piece in reversed(pieces):
            characters = piece.characters if isinstance(piece, PatternPart) else "."
            self._steps.insert(0, (piece, ends, _up_to(ends, characters)))
            if isinstance(piece, PatternTexts):
                ends = piece.options

    def read(self, read: TextReader) -> Generator[PassThrough | None, None, Mapping[str, str]]:
        """Return the named parts.  Raises Malformed if the opening, or the text behind it, does not match."""
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
        if not (yield from read.lookahead(*self._before)) and not (self._sure and read.ended):
            raise Malformed
        return parts


class CallNaming(Struct, frozen=True):
    """The source of a call's name and id.

    name: the part of the opening with the name, or the name itself if it is `fixed`.
    id: the part of the opening with the id, "" for none.
    """

    name: str
    id: str = ""
    fixed: bool = False

    def of(self, parts: Mapping[str, str]) -> tuple[str, str]:
        """Return the name and the id.  Raises Malformed if the name is empty."""
        name = self.name if self.fixed else parts[self.name]
        if not name:
            raise Malformed
        return name, parts[self.id] if self.id else ""


class ObjectCalls(Struct, frozen=True):
    """Parse calls that are JSON objects with their names inside.  `keys`: the template's name of a member → ours."""

    opening: CallOpening
    keys: Mapping[str, str]

    def __call__(self, read: TextReader, emit: ParserOutput, context: ParseContext) -> ReadStep:
        yield from self.opening.read(read)
        return (yield from read_calls(read, _RenamedJsonCall(read, emit, context, self.keys)))


class ArgumentCalls(Struct, frozen=True):
    """Parse calls that are only arguments.

    ends: the texts that may end the call.
    lax: the arguments are in a dialect of JSON.
    """

    opening: CallOpening
    origin: CallNaming
    ends: tuple[str, ...]
    lax: bool

    def __call__(self, read: TextReader, emit: ParserOutput, context: ParseContext) -> ReadStep:
        name, id = self.origin.of((yield from self.opening.read(read)))
        start_call(read, emit, name, id)
        if self.ends and (end := (yield from read.take_literal(*self.ends))):
            emit.tool_args("{}")
        elif not (yield from self._arguments(read, emit, context.shape(name))):
            return ""
        else:
            end = (yield from read.accept(*self.ends)) if self.ends else ""
        emit.tool_end()
        return end

    def _arguments(self, read: TextReader, emit: ParserOutput, shape: Shape) -> ReadStep:
        return (
            lenient_json.read_value(read, emit.tool_args) if self.lax else read_arguments(read, emit.tool_args, shape)
        )


class PairCalls(Struct, frozen=True):
    """Parse calls whose arguments stand between tags, one by one."""

    opening: CallOpening
    origin: CallNaming
    tags: TaggedCall

    def __call__(self, read: TextReader, emit: ParserOutput, context: ParseContext) -> ReadStep:
        name, id = self.origin.of((yield from self.opening.read(read)))
        start_call(read, emit, name, id)
        return (yield from self.tags.run_named(read, emit, context, name))


class _RenamedJsonCall(JsonCall):
    def __init__(self, read: TextReader, emit: ParserOutput, context: ParseContext, keys: Mapping[str, str]) -> None:
        super().__init__(read, emit, context)
        self._keys = keys

    def _member(self, key: str) -> ReadStep:
        return (yield from super()._member(self._keys.get(key, key)))


def _up_to(ends: tuple[str, ...], characters: str) -> re.Pattern[str]:
    """Return a pattern of these characters up to white space or the first character of an end."""
    first = re.escape("".join(sorted({end[0] for end in ends if end})))
    return re.compile(rf"(?:(?![\s{first}]){characters})*+")


def _one_of(read: TextReader, options: tuple[str, ...]) -> ReadStep:
    found = yield from read.take_literal(*options)
    if not found and "" not in options:
        raise Malformed
    return found


def _skip(read: TextReader, ends: tuple[str, ...]) -> ReadStep:
    """Take the text before the first of the ends."""
    for _ in range(_GAP):
        if (yield from read.lookahead(*ends)):
            return ""
        yield from read.take(1)
    raise Malformed


def compile_tool_calls(place: TemplateNode) -> tuple[dict[str, CallParser], tuple[str, ...]]:
    """Return the opening tags with the parser of the text behind them, and the closing tags.

    Adds faults to the node, and returns no tags if the opening is faulty.
    """
    pieces, closes = place.pieces("open"), place.texts("close")
    if not place.has("open"):
        place.add_error("is missing; it marks the beginning of a tool call", "open")
    if not pieces:
        return {}, ()
    first, *rest = pieces
    if not isinstance(first, PatternTexts) or "" in first.options:
        place.add_error("should begin with literal text that is not optional", "open_pattern")
        return {}, ()
    after = tuple(dict.fromkeys((*closes, *_closing(pieces))))
    bare = (close.removesuffix(token) for close in closes for token in END_TOKENS)  # servers may remove this token
    call = _ToolCallsField(place, first.options, rest, tuple(dict.fromkeys((*after, *filter(None, bare))))).call()
    return dict.fromkeys(first.options, call) if call else {}, after


def _closing(pieces: tuple[PatternPiece, ...]) -> list[str]:
    """Return the tags that close the elements of an opening, as templates state only the last one."""
    texts = [text for piece in pieces if isinstance(piece, PatternTexts) for text in piece.options]
    return [f"</{name}>" for text in texts for name in _ELEMENT.findall(text)]


class _ToolCallsField:
    """The field `tool_calls`: its opening tags, the pieces of the opening behind them, and the ends of a call."""

    def __init__(
        self, place: TemplateNode, tags: tuple[str, ...], rest: list[PatternPiece], ends: tuple[str, ...]
    ) -> None:
        self._place, self._tags, self._rest, self._ends = place, tags, rest, ends
        self._parts = {piece.name for piece in rest if isinstance(piece, PatternPart) and piece.name}

    def call(self) -> CallParser | None:
        """Return the parser behind an opening tag; None if anything is wrong."""
        kind, origin = self._place.data.get("content", "text"), self._origin()
        if kind == "xml-inline":
            return self._pairs(origin)
        if kind in ("json", "text"):
            return self._json(origin)
        self._place.add_error("should be json, text or xml-inline", "content")
        return None

    def _origin(self) -> CallNaming | Mapping[str, str]:
        """Return the source of a call's name and id.

        For objects with the names inside, return the map from their keys to our names.
        """
        words = self._words()
        each = self._place.data.get("transform_each") is True
        inner = _PLACEHOLDER if each else _MEMBER
        keys = {found[1]: word for word, text in words.items() if (found := inner.fullmatch(text))}
        if len(keys) == len(words):
            return keys
        if each or words["arguments"] != "{content}":
            self._place.add_error(_SHAPE, "transform")
            return {}
        fixed = "{" not in words["name"]
        return CallNaming(words["name"] if fixed else self._part(words["name"]), self._part(words.get("id", "")), fixed)

    def _words(self) -> Mapping[str, str]:
        """Return our names with the template's text for each; nothing if the content is a whole call."""
        transform = self._place.data.get("transform")
        function = transform.get("function", transform) if isinstance(transform, Mapping) else transform
        if function in (None, "{content}"):
            return {}
        if isinstance(transform, Mapping) and isinstance(function, Mapping):
            given = {**transform, **function}
            words = {word: given[word] for word in ("name", "arguments", "id") if isinstance(given.get(word), str)}
            if "name" in words and "arguments" in words:
                return words
        self._place.add_error(_SHAPE, "transform")
        return {}

    def _part(self, text: str) -> str:
        """Return the group of the opening pattern that a text like `{name}` refers to; "" if it refers to none."""
        found = _PLACEHOLDER.fullmatch(text)
        if found and found[1] in self._parts:
            return found[1]
        if text:
            self._place.add_error(
                f"{text} should be a group of open_pattern, like {{name}} for (?P<name>…)", "transform"
            )
        return ""

    def _json(self, origin: CallNaming | Mapping[str, str]) -> CallParser:
        args = self._place.inside("content_args", _JSON_ARGS)
        pairs = args.data.get("string_delims") or ()
        if not isinstance(pairs, list | tuple) or not all(pair in _DELIMITERS for pair in pairs):
            args.add_error(
                f"should be a list of any of these pairs: {', '.join(map(str, _DELIMITERS))}", "string_delims"
            )
        if isinstance(origin, CallNaming):
            lax = bool(pairs or args.data.get("unquoted_keys"))
            return ArgumentCalls(CallOpening(self._rest, ("{", '"', *self._ends)), origin, self._ends, lax)
        if pairs or args.data.get("unquoted_keys"):
            args.add_error("applies only if the content consists of arguments; take the name from open_pattern")
        return ObjectCalls(CallOpening(self._rest, ("{", "[", "```")), origin)

    def _pairs(self, origin: CallNaming | Mapping[str, str]) -> CallParser | None:
        args = self._place.inside("content_args", _XML_ARGS)
        if not isinstance(origin, CallNaming):
            self._place.add_error(_SHAPE, "transform")
            return None
        if not self._ends:
            self._place.add_error(
                "is missing; where values are text, only a tag can tell that a call has ended", "close"
            )
            return None
        tags = self._tagged(args)
        return PairCalls(CallOpening(self._rest, (tags.key, "{", *self._ends)), origin, tags) if tags else None

    def _tagged(self, args: TemplateNode) -> TaggedCall | None:
        """Return the parser of the tags around a call's arguments."""
        if args.data.get("merge_duplicates"):
            args.add_error("repeated keys cannot be merged into a list; remove it", "merge_duplicates")
        value = args.inside("value_parser", ("name", "args"))
        kind = value.data.get("name", "text")
        if not isinstance(kind, str) or kind not in _TYPES:
            value.add_error(f"should be one of: {', '.join(_TYPES)}", "name")
            return None
        pieces = args.pattern("tag_pattern")
        texts = [piece.options for piece in pieces if isinstance(piece, PatternTexts)]
        shape = [piece.name if isinstance(piece, PatternPart) else "" for piece in pieces]
        if shape not in _TAG_SHAPES or any(len(options) > 1 for options in texts[:-1]):
            if pieces:
                args.add_error(_TAG, "tag_pattern")
            return None
        (key, *_), (key_end, *_), *between, value_ends = texts
        quote = key[-1] if key[-1] in "\"'" else ""
        return TaggedCall(
            key=key.removesuffix(quote),
            key_end=key_end.removeprefix(quote),
            value=between[0][0] if between else "",
            value_ends=value_ends,
            call_ends=self._ends,
            next=(*self._tags, *self._ends),
            unknown=_TYPES[kind],
            trim=bool(_TRIMMED.search(args.data["tag_pattern"])),
        )
