"""Define the errors of a configuration: one ConfigFault per place, all of them in one ConfigError."""

from collections.abc import Sequence

from msgspec import Struct

KeyPath = tuple[str | int, ...]


class ConfigFault(Struct, frozen=True):
    """One fault: its place, and a text that names the right value."""

    file: str
    line: int | None
    key: str
    text: str

    def __str__(self) -> str:
        place = self.file if self.line is None else f"{self.file}:{self.line}"
        return ": ".join(part for part in (place, self.key, self.text) if part)


class UnreadableFile(Exception):
    """A file that cannot be read; the text says why."""


class ConfigError(Exception):
    """A configuration with faults; the text has one line per fault."""

    def __init__(self, faults: Sequence[ConfigFault]) -> None:
        super().__init__("\n".join(map(str, faults)))
        self.faults = tuple(faults)


def dotted_path(path: KeyPath) -> str:
    """Return `("models", "qwen", "backends", 0)` as `models.qwen.backends[0]`."""
    return "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in path).removeprefix(".")
