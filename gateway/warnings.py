"""Collect the warnings of one request: a list of `code:subject`.  A subject is a field, never a value.

A field with text that its format cannot read has the name of the format behind it: `unread:tool_calls=pythonic`.
Where a code has more than 48 entries, the first 16 are told by name and the others counted: `forwarded:+40`.
"""

import re
from collections import Counter
from collections.abc import Iterable
from typing import Literal

from msgspec import Struct

WarningCode = Literal[
    "forwarded", "renamed", "translated", "emulated", "synthesised", "repaired", "estimated", "truncated",
    "unenforced", "dropped", "unread", "invalid",
]  # fmt: skip
_UNFIT = re.compile(r"[^!-+\--~]+")  # for a list in a header or a comment: all but visible ASCII without the comma
_LONGEST = 64  # characters of a subject
_HEADER = 4096  # characters of a list in a header, so that every client can take them
_FEW, _NAMED = 48, 16  # entries of a code that are all told by name, and those that are where there are more
_MOST = 1024  # entries that are kept, beside the first one of each further code


def safe_name(name: str) -> str:
    """Return a client's or backend's own name in a form that fits a header."""
    return _UNFIT.sub("?", name)[:_LONGEST]


class Warnings(Struct, eq=False):
    """Entries in the order in which they were first made."""

    _entries: dict[str, None] = {}
    _told: int = 0
    _late: set[WarningCode] = set()  # codes that came when there were too many entries

    def add(self, code: WarningCode, name: str) -> None:
        """Add a warning; beyond the limit, only the first one of a code.  name: of a field, perhaps a made-up one."""
        if len(self._entries) < _MOST or self._is_new(code):
            self._entries[f"{code}:{safe_name(name)}"] = None

    def _is_new(self, code: WarningCode) -> bool:
        """Return True if no entry has this code; asked once for each code."""
        if code in self._late:
            return False
        self._late.add(code)
        return code not in map(_code, self._entries)

    def savepoint(self) -> int:
        """This point, for `back`."""
        return len(self._entries)

    def rollback(self, mark: int) -> None:
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
        return dict(Counter(map(_code, self._entries))) if self._entries else {}

    def header_value(self) -> str:
        """Return all warnings so far as one comma-separated list, also those of failed attempts, for the headers."""
        self._told = 0
        return self.take_unsent()

    def take_unsent(self) -> str:
        """The entries made since the last call, as one comma list; "" if there are none."""
        before = self._told
        if before == len(self._entries):
            return ""
        self._told = len(self._entries)
        return ", ".join(self.entries()[before:] if self._told <= _FEW else self.listed(before))

    def listed(self, start: int = 0) -> list[str]:
        """Return the entries from this place on, as they are told."""
        entries = self.entries()
        all = Counter(map(_code, entries))
        codes = Counter(map(_code, entries[:start]))
        named: list[str] = []
        more: Counter[str] = Counter()
        for entry in entries[start:]:
            codes[code := _code(entry)] += 1
            if all[code] <= _FEW or codes[code] <= _NAMED:
                named.append(entry)
            else:
                more[code] += 1
        return [*named, *(f"{code}:+{count}" for code, count in more.items())]


def header_text(entries: str) -> str:
    """Return a comma-separated list, cut between two entries to what fits a header."""
    return entries[:_HEADER].rpartition(", ")[0] + ", ..." if len(entries) > _HEADER else entries


def _code(entry: str) -> str:
    return entry.partition(":")[0]
