r"""Parse the patterns of a response template when the gateway starts; no pattern is ever run on a model's text.

A pattern may have these parts:

    <tool_call>  \|  \n          literal text
    (?:a|b)  (?:a)?  a?          alternatives, or an optional part, of literal text
    \s*  \n?                     white space, which is allowed between all parts anyway
    (?P<name>[^>]+)              a named part: a character class, repeated
    .*?  [^<]*                   anything, up to the literal text that follows
"""

import re
from collections import deque
from collections.abc import Iterator
from itertools import product

from msgspec import Struct

_TOKEN = re.compile(
    r"""(?:
      (?P<named>\(\?P?<(?P<name>\w+)>)
    | (?P<open>\((?:\?:|(?!\?)))
    | (?P<close>\))
    | (?P<or>\|)
    | (?P<end>\$|\\Z)
    | (?P<class>\[\^?\]?(?:\\.|[^\]\\])*\]|\\[wWsSdD]|\.)
    | (?P<char>\\[^A-Za-z0-9]|\\[ntr]|[^\\()\[|$^*+?.])
    )(?P<times>(?:(?:[*+?]|\{\d+(?:,\d*)?\})[+?]?)?)""",
    re.X | re.S,
)
_KINDS = ("named", "open", "close", "or", "end", "class", "char")
_WHITE = re.compile(r"\[(?:\\[sntr]|\s)+\]|\\[sntr]|\s")
_ESCAPES = {r"\n": "\n", r"\t": "\t", r"\r": "\r"}
_MANY = 64  # texts that one literal part of a pattern may stand for
_PROMPT = "; if the prompt opens the thought, name its tag and set thought: open in the model"


class UnsupportedPattern(Exception):
    """A pattern that is not supported; the text says why."""


class PatternTexts(Struct, frozen=True):
    """A choice of literal texts, with white space before it; an empty text makes it optional."""

    options: tuple[str, ...]


class PatternPart(Struct, frozen=True):
    """Characters of a class, up to the text that follows; `name` is "" if they are not used."""

    name: str
    characters: str


class _PatternSpace(Struct, frozen=True):
    """White space, or the end."""


class _PatternToken(Struct, frozen=True):
    kind: str
    text: str
    times: str = ""
    name: str = ""


PatternPiece = PatternTexts | PatternPart
_Pieces = list[PatternTexts | PatternPart | _PatternSpace]
_END = _PatternToken("", "")


def parse_pattern(pattern: str) -> tuple[PatternPiece, ...]:
    """Return the pieces of a pattern, without white space between them.

    Raises UnsupportedPattern.
    """
    tokens = deque((*_tokens(pattern), _END))
    pieces = _alternatives(tokens)
    if tokens[0] is not _END:
        raise UnsupportedPattern("closes a bracket that was never opened")
    return tuple(map(_stripped, (piece for piece in pieces if not isinstance(piece, _PatternSpace))))


def _tokens(pattern: str) -> Iterator[_PatternToken]:
    pos = 0
    while pos < len(pattern):
        found = _TOKEN.match(pattern, pos)
        if not found:
            beyond = re.match(r"\(\?<?.|\\.|.", pattern[pos:], re.S)
            assert beyond
            raise UnsupportedPattern(f"{beyond[0]!r} is not supported{_PROMPT if beyond[0] in ('^', '(?=') else ''}")
        kind = next(kind for kind in _KINDS if found[kind])
        yield _PatternToken(kind, found[kind], found["times"], found["name"] or "")
        pos = found.end()


def _alternatives(tokens: deque[_PatternToken]) -> _Pieces:
    """Parse up to a closing bracket or the end."""
    sequences = [_sequence(tokens)]
    while tokens[0].kind == "or":
        tokens.popleft()
        sequences.append(_sequence(tokens))
    return (
        sequences[0]
        if len(sequences) == 1
        else [PatternTexts(tuple(text for one in sequences for text in _plain(one)))]
    )


def _sequence(tokens: deque[_PatternToken]) -> _Pieces:
    pieces: _Pieces = []
    while tokens[0].kind not in ("", "or", "close"):
        for piece in _repeated(tokens):
            last = pieces[-1] if pieces else None
            if isinstance(piece, PatternTexts) and isinstance(last, PatternTexts):
                pieces[-1] = _joined(last, piece)
            else:
                pieces.append(piece)
    return pieces


def _repeated(tokens: deque[_PatternToken]) -> _Pieces:
    """Parse one element and its repetition."""
    token = tokens.popleft()
    if token.kind == "end":
        return [_PatternSpace()]
    if token.kind == "named":
        return [_part(token, tokens)]
    if token.kind == "open":
        inner = _alternatives(tokens)
        return _maybe(inner, _closed(tokens))
    if _WHITE.fullmatch(token.text) and (token.times or token.kind == "class"):
        return [_PatternSpace()]
    if token.kind == "class":
        return [_class("", token)]
    return _maybe([PatternTexts((_ESCAPES.get(token.text, token.text[-1]),))], token)


def _maybe(pieces: _Pieces, last: _PatternToken) -> _Pieces:
    """Return the pieces, optional if a question mark follows their last token."""
    if not last.times:
        return pieces
    if last.times[0] != "?":
        raise UnsupportedPattern(
            f"{last.text + last.times!r} is not supported: only white space and classes may be repeated"
        )
    return [PatternTexts((*_plain(pieces), ""))]


def _part(opening: _PatternToken, tokens: deque[_PatternToken]) -> PatternPart:
    token = tokens.popleft()
    if token.kind != "class":
        raise UnsupportedPattern(f"{opening.text!r} should hold one class of characters and its repetition, like [^<]+")
    part = _class(opening.name, token)
    if _closed(tokens).times:
        raise UnsupportedPattern(f"the group {opening.text!r} must occur exactly once")
    return part


def _class(name: str, token: _PatternToken) -> PatternPart:
    if token.times[:1] not in ("*", "+", "{"):
        raise UnsupportedPattern(f"{token.text + token.times!r} should be repeated, like {token.text}+")
    try:
        re.compile(token.text)
    except re.error as error:
        raise UnsupportedPattern(f"{token.text!r} is not a class of characters: {error}") from None
    return PatternPart(name, r"[\s\S]" if token.text == "." else token.text)


def _closed(tokens: deque[_PatternToken]) -> _PatternToken:
    """Take the closing bracket, which has to come now."""
    if tokens[0].kind != "close":
        raise UnsupportedPattern("a group should hold one class of characters, or literal text, and end")
    return tokens.popleft()


def _plain(pieces: _Pieces) -> tuple[str, ...]:
    """Return the literal texts that pieces stand for, without white space at the ends.

    Raises UnsupportedPattern if there is anything else.
    """
    texts = [piece for piece in pieces if not isinstance(piece, _PatternSpace)]
    if len(texts) > 1 or any(isinstance(piece, PatternPart) for piece in texts):
        raise UnsupportedPattern("alternatives and optional parts should be literal text")
    return texts[0].options if texts and isinstance(texts[0], PatternTexts) else ("",)


def _joined(first: PatternTexts, second: PatternTexts) -> PatternTexts:
    options = tuple(a + b for a, b in product(first.options, second.options))
    if len(options) > _MANY:
        raise UnsupportedPattern(f"expands to more than {_MANY} texts")
    return PatternTexts(options)


def _stripped(piece: PatternPiece) -> PatternPiece:
    """Return a piece without the white space around it, which every parser skips."""
    return (
        PatternTexts(tuple(dict.fromkeys(text.strip() for text in piece.options)))
        if isinstance(piece, PatternTexts)
        else piece
    )
