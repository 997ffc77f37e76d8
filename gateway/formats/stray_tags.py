"""Drop tags of calls that stand alone: around nothing, or left in the text by a server that sends the call itself."""

from gateway.formats.markup_tags import MarkupTags
from gateway.formats.parser import ParserOutput
from gateway.formats.reader import ReadStep, TextReader

TORN = ">"  # the end of a closing tag, which a server leaves behind its call
_LONGEST_EMPTY = 256  # characters of opening tags


def is_word(marker: str) -> bool:
    """Return True if a tag, with the white space before it, is a word of a sentence if it follows text."""
    gap = marker[: len(marker) - len(marker.lstrip())]
    return bool(gap) and "\n" not in gap


def empty_call(read: TextReader, openings: tuple[str, ...], closings: tuple[str, ...], *, called: bool) -> ReadStep:
    """Drop the recorded tags of a call with nothing inside, before a call or the end; return "" for other text.

    The recorded beginning of a call that the server sends itself falls away, too.

    called: the server has sent a call before this text.
    """
    marks = tuple(tag for tag in openings if tag[0] in "<[")  # no words
    if read.ended and read.before_call and read.recorded.lstrip().startswith(marks):
        return _dropped(read)
    if not closings or not _are_tags(read.recorded, openings):
        return ""
    closed = found = yield from read.accept(*closings)
    while found:
        found = yield from read.accept(*closings)
    yield from read.peek()
    if read.ended:
        return _dropped(read) if closed or called else ""
    return _dropped(read) if closed and (yield from read.lookahead(*openings)) else ""


def closing_tags(
    read: TextReader, emit: ParserOutput, tags: MarkupTags, *, called: bool, fresh: bool, word: bool
) -> ReadStep:
    """Drop closing tags of a call that the server sends itself, from the marker on; return "" if they are text.

    They stand right behind the call, or at the end of a text beside it.

    called: the server has sent a call before this text.
    fresh: no text precedes them.
    word: the first one is a word of a sentence.
    """
    read.begin_recording(read.marker)
    found = yield from read.accept(*tags.after)
    alone = read.marker == TORN and not found
    while found:
        found = yield from read.accept(*tags.after)
    text = read.end_recording()
    gap = text[len(text.rstrip()) :]
    beside = called or read.before_call
    falls = beside and not word if read.ended else called and fresh and (not gap or "\n" in gap)
    if alone or not falls:
        emit.text(text)
        return ""
    opens = tags.call_tags and (yield from read.lookahead(*tags.call_tags))
    if gap and not (read.ended or opens):
        emit.text(gap)
    return "dropped"


def _dropped(read: TextReader) -> str:
    read.end_recording()
    return "dropped"


def _are_tags(text: str, tags: tuple[str, ...]) -> bool:
    """Return True if a text has nothing but tags and white space."""
    if len(text) > _LONGEST_EMPTY:
        return False
    while tag := max(filter(text.lstrip().startswith, tags), key=len, default=""):
        text = text.lstrip().removeprefix(tag)
    return not text.strip()
