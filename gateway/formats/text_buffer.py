"""Keep text that comes in chunks until a format takes it.  Only this module and `reader` touch the buffer."""

from gateway.formats.markers import EndTokens


class Malformed(Exception):
    """The text does not fit the grammar that is being read."""


class TextBuffer:
    """The text that has come and is not yet taken, with the text that is recorded.

    limit: the most characters that a recording may hold; a longer one raises Malformed.
    """

    __slots__ = (
        "_base",
        "_buffer",
        "_cut",
        "_eof",
        "_held",
        "_kept_parts",
        "_lost",
        "_pos",
        "_recorded_parts",
        "_recorded_size",
        "before_call",
        "dropped",
        "ends",
        "followed",
        "kept_size",
        "limit",
    )  # fmt: skip

    def __init__(self, limit: int = 8 << 20) -> None:
        self._buffer, self._pos, self._base, self._eof, self._cut = "", 0, 0, False, False
        self.limit, self._recorded_size = limit, 0
        self._recorded_parts: list[str] | None = None
        self._kept_parts: list[str] | None = None  # the text since `begin_keeping`
        self.kept_size = 0  # characters of that text
        self.followed = False  # set by the caller: the turn continues outside of this text
        self.before_call = False  # set by the caller: it continues with a tool call
        self._held = ""  # text that may consist of end tokens
        self.ends: EndTokens | None = None  # tokens to remove at the end of the turn
        self.dropped = False  # an incomplete marker at the end was dropped
        self._lost = ""  # that marker

    @property
    def offset(self) -> int:
        """The number of characters taken so far."""
        return self._base + self._pos

    def feed(self, text: str) -> None:
        """Append text, without a tail that may consist of end tokens."""
        if self.ends and (self._held or not self.ends.is_absent_from(text)):
            text = self._held + text
            begin = self.ends.begin(text)
            text, self._held = text[:begin], text[begin:]
        self._buffer, self._base, self._pos = self._buffer[self._pos :] + text, self._base + self._pos, 0

    def pass_through(self, text: str) -> None:
        """Count text that passed by a PassThrough."""
        self._base += len(text)

    def close(self, cut: bool = False) -> None:
        """Mark the end of the text.

        cut: the model did not end the text itself, so the beginning of a marker at its end is dropped.
        """
        if self.ends and not self.ends.is_complete(self._held):
            self.dropped = cut
            self._buffer += "" if cut else self._held
        self._held, self._eof, self._cut = "", True, cut

    @property
    def received_characters(self) -> int:
        """The number of characters received so far."""
        return self._base + len(self._buffer) + len(self._held)

    @property
    def cut(self) -> bool:
        """Return True if the text has ended, but not by the model itself."""
        return self._cut

    @property
    def ended(self) -> bool:
        """Return True if all of the text has been taken."""
        return self._eof and self._pos == len(self._buffer)

    def left(self) -> str:
        """Take all text received so far, at once."""
        return self._take(len(self._buffer)) + self._held

    def begin_recording(self, begun: str = "") -> None:
        """Record the text that is taken from here on, so that it can be given back behind `begun`."""
        self._recorded_parts, self._recorded_size = [begun], 0

    @property
    def is_recording(self) -> bool:
        """Return True while a recording is going on."""
        return self._recorded_parts is not None

    @property
    def recorded(self) -> str:
        """The text taken since `begin_recording`."""
        return "".join(self._recorded_parts or ())

    def end_recording(self) -> str:
        """Return the text taken since `begin_recording`, and stop recording."""
        parts, self._recorded_parts = self._recorded_parts or [], None
        return "".join(parts)

    def begin_keeping(self, begun: str) -> None:
        """Keep the text taken from here on, beside a recording and without a limit.  `kept_size`: its characters."""
        self._kept_parts, self.kept_size = [begun], len(begun)

    def end_keeping(self) -> str:
        """Return the text taken since `begin_keeping`, and stop keeping it."""
        parts, self._kept_parts, self.kept_size = self._kept_parts or [], None, 0
        return "".join(parts)

    @property
    def _may_pass_through(self) -> bool:
        """Return True if nothing is held and nothing is recorded, so that new text may pass through."""
        return (
            self._pos == len(self._buffer)
            and not self._held
            and self._recorded_parts is None
            and self._kept_parts is None
        )

    def restore(self) -> str:
        """Return the incomplete marker that was dropped at the end: it is text."""
        lost, self._lost = self._lost, ""
        self.dropped &= not lost
        return lost

    def _drop(self) -> str:
        lost = self._buffer[self._pos :]
        self._lost += lost
        self.dropped |= bool(lost)
        self._pos = len(self._buffer)
        return ""

    def _take(self, end: int) -> str:
        taken, self._pos = self._buffer[self._pos : end], end
        if self._kept_parts is not None:
            self._kept_parts.append(taken)
            self.kept_size += len(taken)
        if self._recorded_parts is not None:
            self._recorded_parts.append(taken)
            self._recorded_size += len(taken)
            if self._recorded_size > self.limit:
                self._malformed()
        return taken

    def _malformed(self) -> str:
        raise Malformed
