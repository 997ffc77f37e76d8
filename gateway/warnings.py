"""Collect the warnings of one request: a list of `code:subject`.  A subject is a field, never a value.

If a field holds text that its format cannot read, the format's name follows: `unread:tool_calls=pythonic`.
If a code has more than 48 entries, the first 16 are listed by name and the others counted: `forwarded:+40`.
"""

import re
from collections import Counter
from collections.abc import Collection, Iterable
from typing import Literal

WarningCode = Literal[
    "forwarded", "renamed", "translated", "emulated", "synthesised", "repaired", "estimated", "truncated",
    "unenforced", "dropped", "unread", "invalid",
]  # fmt: skip
_UNFIT = re.compile(r"[^!-+\--~]+")  # all but visible ASCII, and the comma, which separates the entries in a header
_LONGEST = 64  # characters of a subject
_HEADER = 4096  # characters of a list in a header, so that every client accepts it
_FEW, _NAMED = 48, 16  # up to 48 entries of a code are listed by name; of more, the first 16
_MAX = 1024  # entries that are kept, besides the first one of each further code


def safe_name(name: str) -> str:
    """Return a client's or backend's own name in a form that fits a header."""
    return _UNFIT.sub("?", name)[:_LONGEST]


class Warnings:
    """The warnings of one request, in the order in which they were first added."""

    __slots__ = ("_entries", "_header_due", "_late", "_sent")

    def __init__(self) -> None:
        self._entries: dict[str, None] = {}
        self._sent = 0
        self._header_due = False  # the header will have all entries so far
        self._late: set[WarningCode] = set()  # codes that were added after the limit was reached

    def add(self, code: WarningCode, name: str) -> None:
        """Add a warning; beyond the limit, only the first one of a code.

        name: of a field, which a client may have invented.
        """
        if len(self._entries) < _MAX or self._is_new(code):
            self._entries[f"{code}:{safe_name(name)}"] = None

    def _is_new(self, code: WarningCode) -> bool:
        """Return True if no entry has this code.  Called beyond the limit; True at most once for each code."""
        if code in self._late:
            return False
        self._late.add(code)
        return code not in map(_code, self._entries)

    def savepoint(self) -> int:
        """Return the current position, for `rollback`."""
        return len(self._entries)

    def rollback(self, mark: int) -> None:
        """Remove the entries since a savepoint, because they concern an attempt whose output is discarded."""
        if mark == len(self._entries):
            return
        self._entries = dict.fromkeys(self.entries()[:mark])
        self._sent = min(self._sent, mark)

    def take(self, mark: int, prefix: str) -> tuple[str, ...]:
        """Remove the entries since a savepoint that begin with a prefix, and return them for `put`."""
        entries = self.entries()
        taken = tuple(entry for entry in entries[mark:] if entry.startswith(prefix))
        if taken:
            self._sent -= sum(entry in taken for entry in entries[: self._sent])
            self._entries = dict.fromkeys(entry for entry in entries if entry not in taken)
        return taken

    def discard(self, mark: int, names: Collection[str]) -> None:
        """Remove the entries since a savepoint about these fields and their members."""
        entries = self.entries()
        unwanted = {one for one in entries[mark:] if one.partition(":")[2].partition(".")[0] in names}
        if unwanted:
            self._sent -= sum(entry in unwanted for entry in entries[: self._sent])
            self._entries = dict.fromkeys(entry for entry in entries if entry not in unwanted)

    def put(self, entries: Iterable[str]) -> None:
        """Add entries that `take` returned."""
        self._entries |= dict.fromkeys(entries)

    def entries(self) -> list[str]:
        """Return all entries as `code:subject`."""
        return list(self._entries)

    def codes(self) -> dict[str, int]:
        """Return the number of entries of each code."""
        return dict(Counter(map(_code, self._entries))) if self._entries else {}

    def expect_header(self) -> None:
        """Leave the entries to the header until `header_value` makes it: a stream may be encoded whole before that."""
        self._header_due = True

    def header_value(self) -> str:
        """Return all warnings so far as one comma-separated list, also those of failed attempts, for the headers."""
        self._header_due, self._sent = False, 0
        return self.take_unsent()

    def take_unsent(self) -> str:
        """Return the entries added since the last call, as one comma-separated list; "" if there are none.

        An entry that the header will have is not among them.
        """
        before = self._sent
        if self._header_due or before == len(self._entries):
            return ""
        self._sent = len(self._entries)
        return ", ".join(self.entries()[before:] if self._sent <= _FEW else self.listed(before))

    def listed(self, start: int = 0) -> list[str]:
        """Return the entries from this position on, with those of frequent codes counted."""
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
    """Return a comma-separated list, cut between two entries to the length of a header."""
    return entries[:_HEADER].rpartition(", ")[0] + ", ..." if len(entries) > _HEADER else entries


def _code(entry: str) -> str:
    return entry.partition(":")[0]
