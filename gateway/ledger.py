"""What was not passed as it came.  One list of `code:subject` per request; a subject is a field, never a value.

A field with text that its format cannot read has the name of the format behind it: `unread:tool_calls=pythonic`.
"""

import re
from collections import Counter
from collections.abc import Iterable
from typing import Literal

from msgspec import Struct

Code = Literal[
    "forwarded", "renamed", "translated", "emulated", "synthesised", "repaired", "estimated", "truncated",
    "unenforced", "dropped", "unread", "invalid",
]  # fmt: skip
_UNFIT = re.compile(r"[^!-+\--~]+")  # for a list in a header or a comment: all but visible ASCII without the comma
_LONGEST = 64  # characters of a subject


def subject(name: str) -> str:
    """A name that somebody else has made up, as it can be told."""
    return _UNFIT.sub("?", name)[:_LONGEST]


class Ledger(Struct, eq=False):
    """Entries in the order in which they were first made."""

    _entries: dict[str, None] = {}
    _told: int = 0

    def note(self, code: Code, name: str) -> None:
        """name: of a field, whoever has made it up."""
        self._entries[f"{code}:{subject(name)}"] = None

    def mark(self) -> int:
        """This point, for `back`."""
        return len(self._entries)

    def back(self, mark: int) -> None:
        """Forget what was noted since then: that was about something that came to nothing."""
        if mark == len(self._entries):
            return
        self._entries = dict.fromkeys(self.entries()[:mark])
        self._told = min(self._told, mark)

    def take(self, mark: int, prefix: str) -> tuple[str, ...]:
        """Forget the entries since a mark that begin with a prefix, and return them for `put`."""
        entries = self.entries()
        taken = tuple(entry for entry in entries[mark:] if entry.startswith(prefix))
        if taken:
            self._told -= sum(entry in taken for entry in entries[: self._told])
            self._entries = dict.fromkeys(entry for entry in entries if entry not in taken)
        return taken

    def put(self, entries: Iterable[str]) -> None:
        """Note what was taken."""
        self._entries |= dict.fromkeys(entries)

    def entries(self) -> list[str]:
        return list(self._entries)

    def codes(self) -> dict[str, int]:
        """How many entries have each of them."""
        return dict(Counter(entry.partition(":")[0] for entry in self._entries)) if self._entries else {}

    def known(self) -> str:
        """All entries so far, as one comma list: for the head of an answer, whatever a failed one was told."""
        self._told = 0
        return self.untold()

    def untold(self) -> str:
        """The entries made since the last call, as one comma list; "" if there are none."""
        if self._told == len(self._entries):
            return ""
        new = self.entries()[self._told :]
        self._told += len(new)
        return ", ".join(new)
