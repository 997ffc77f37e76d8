"""What was not passed as it came.  One list of `code:subject` per request; a subject is a field, never a value."""

from typing import Literal

Code = Literal[
    "forwarded", "renamed", "translated", "emulated", "synthesised", "repaired", "estimated", "truncated",
    "unenforced", "dropped",
]  # fmt: skip


class Ledger:
    """Entries in the order in which they were first made."""

    def __init__(self) -> None:
        self._entries: dict[str, None] = {}
        self._told = 0

    def note(self, code: Code, subject: str) -> None:
        self._entries[f"{code}:{subject}"] = None

    def entries(self) -> list[str]:
        return list(self._entries)

    def known(self) -> str:
        """All entries so far, as one comma list: for the head of an answer, whatever a failed one was told."""
        self._told = 0
        return self.untold()

    def untold(self) -> str:
        """The entries made since the last call, as one comma list; "" if there are none."""
        new = self.entries()[self._told :]
        self._told += len(new)
        return ", ".join(new)
