r"""The patterns of a response template, taken apart when the gateway starts: none is ever run on a model's text.

What may stand in one:

    <tool_call>  \|  \n          literal text
    (?:a|b)  (?:a)?  a?          one of several, or what may be missing; of literal text
    \s*  \n?                     white space, which may stand between all parts anyway
    (?P<name>[^>]+)              a part with a name: a class of characters, repeated
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
_MANY = 64  # texts that one stretch of a pattern may stand for
_PROMPT = "; for a thought that the prompt opens, name its tag and write thought: open at the model"


class Unsupported(Exception):
    """A pattern that cannot be taken apart; its text says why."""


class Texts(Struct, frozen=True):
    """One of these, with white space before it; the empty one stands for what may be missing."""

    options: tuple[str, ...]


class Part(Struct, frozen=True):
    """Characters of a class, up to whatever follows; `name` is "" where nobody asks for them."""

    name: str
    characters: str


class _Space(Struct, frozen=True):
    """White space, or the end."""


class _Token(Struct, frozen=True):
    kind: str
    text: str
    times: str = ""
    name: str = ""


Piece = Texts | Part
_Pieces = list[Texts | Part | _Space]
_END = _Token("", "")


def take_apart(pattern: str) -> tuple[Piece, ...]:
    """What a pattern stands for, white space apart; or Unsupported."""
    tokens = deque((*_tokens(pattern), _END))
    pieces = _alternatives(tokens)
    if tokens[0] is not _END:
        raise Unsupported("closes a bracket that was never opened")
    return tuple(map(_stripped, (piece for piece in pieces if not isinstance(piece, _Space))))


def _tokens(pattern: str) -> Iterator[_Token]:
    pos = 0
    while pos < len(pattern):
        found = _TOKEN.match(pattern, pos)
        if not found:
            beyond = re.match(r"\(\?<?.|\\.|.", pattern[pos:], re.S)
            assert beyond
            raise Unsupported(f"{beyond[0]!r} is not supported{_PROMPT if beyond[0] in ('^', '(?=') else ''}")
        kind = next(kind for kind in _KINDS if found[kind])
        yield _Token(kind, found[kind], found["times"], found["name"] or "")
        pos = found.end()


def _alternatives(tokens: deque[_Token]) -> _Pieces:
    """What stands up to a closing bracket or the end."""
    sequences = [_sequence(tokens)]
    while tokens[0].kind == "or":
        tokens.popleft()
        sequences.append(_sequence(tokens))
    return sequences[0] if len(sequences) == 1 else [Texts(tuple(text for one in sequences for text in _plain(one)))]


def _sequence(tokens: deque[_Token]) -> _Pieces:
    pieces: _Pieces = []
    while tokens[0].kind not in ("", "or", "close"):
        for piece in _repeated(tokens):
            last = pieces[-1] if pieces else None
            if isinstance(piece, Texts) and isinstance(last, Texts):
                pieces[-1] = _joined(last, piece)
            else:
                pieces.append(piece)
    return pieces


def _repeated(tokens: deque[_Token]) -> _Pieces:
    """One thing, as often as it may stand there."""
    token = tokens.popleft()
    if token.kind == "end":
        return [_Space()]
    if token.kind == "named":
        return [_part(token, tokens)]
    if token.kind == "open":
        inner = _alternatives(tokens)
        return _maybe(inner, _closed(tokens))
    if _WHITE.fullmatch(token.text) and (token.times or token.kind == "class"):
        return [_Space()]
    if token.kind == "class":
        return [_class("", token)]
    return _maybe([Texts((_ESCAPES.get(token.text, token.text[-1]),))], token)


def _maybe(pieces: _Pieces, last: _Token) -> _Pieces:
    """The pieces, which may be missing if a question mark follows their last token."""
    if not last.times:
        return pieces
    if last.times[0] != "?":
        raise Unsupported(f"{last.text + last.times!r} is not supported: only white space and classes may be repeated")
    return [Texts((*_plain(pieces), ""))]


def _part(opening: _Token, tokens: deque[_Token]) -> Part:
    token = tokens.popleft()
    if token.kind != "class":
        raise Unsupported(f"{opening.text!r} should hold one class of characters and its repetition, like [^<]+")
    part = _class(opening.name, token)
    if _closed(tokens).times:
        raise Unsupported(f"the group {opening.text!r} may not be missing, nor be there twice")
    return part


def _class(name: str, token: _Token) -> Part:
    if token.times[:1] not in ("*", "+", "{"):
        raise Unsupported(f"{token.text + token.times!r} should be repeated, like {token.text}+")
    try:
        re.compile(token.text)
    except re.error as error:
        raise Unsupported(f"{token.text!r} is no class of characters: {error}") from None
    return Part(name, r"[\s\S]" if token.text == "." else token.text)


def _closed(tokens: deque[_Token]) -> _Token:
    """The bracket that has to come now."""
    if tokens[0].kind != "close":
        raise Unsupported("a group should hold one class of characters, or literal text, and end")
    return tokens.popleft()


def _plain(pieces: _Pieces) -> tuple[str, ...]:
    """The texts that pieces stand for, if that is all, white space at the ends apart."""
    texts = [piece for piece in pieces if not isinstance(piece, _Space)]
    if len(texts) > 1 or any(isinstance(piece, Part) for piece in texts):
        raise Unsupported("alternatives, and what may be missing, should be literal text")
    return texts[0].options if texts and isinstance(texts[0], Texts) else ("",)


def _joined(first: Texts, second: Texts) -> Texts:
    options = tuple(a + b for a, b in product(first.options, second.options))
    if len(options) > _MANY:
        raise Unsupported(f"stands for more than {_MANY} texts")
    return Texts(options)


def _stripped(piece: Piece) -> Piece:
    """Without the white space around, which every reader skips."""
    return Texts(tuple(dict.fromkeys(text.strip() for text in piece.options))) if isinstance(piece, Texts) else piece
