"""Write the parameters of a call between tags as the members of one JSON object."""

from gateway.formats.argument_types import escape_json_string
from gateway.formats.reader import TextReader, TextSink

_LONGEST = 256  # characters of a member that is held


class Parameters:
    """Pass on members piece by piece; the last one is held until the next key, which may repeat it.

    If a parameter comes several times in a row, only its last value is sent.  A member that is longer than `_LONGEST`
    is sent at once.  A later repetition is then sent as a second member; JSON parsers use the last one.
    """

    def __init__(self, put: TextSink, read: TextReader) -> None:
        self._put, self._read = put, read
        self._before = "{"  # the text before the next key; "" if the object is complete
        self._key = ""
        self._waiting: list[str] | None = None  # the held member with the text before its key; None if none is held
        self._size = 0

    @property
    def empty(self) -> bool:
        """Return True if no member has begun."""
        return self._before == "{"

    def begin(self, key: str) -> None:
        """Begin the member of a key."""
        if self._waiting and key == self._key:
            self._waiting, self._read.was_repaired = self._waiting[:1], True
        else:
            self.flush()
            self._waiting = [f'{self._before}"{escape_json_string(key)}": ']
            self._key, self._before = key, ", "
        self._size = 0

    def put(self, json: str) -> None:
        """Add to the value of the member."""
        if self._waiting is None:
            self._put(json)
            return
        self._waiting.append(json)
        self._size += len(json)
        if self._size > _LONGEST:
            self.flush()

    def whole(self, json: str) -> None:
        """Pass on the whole object."""
        self._before = ""
        self._put(json)

    def flush(self) -> None:
        """Pass on the held member."""
        if self._waiting:
            self._put("".join(self._waiting))
        self._waiting = None

    def end(self) -> None:
        """Close the object."""
        self.flush()
        if self._before:
            self._put("{}" if self.empty else "}")
