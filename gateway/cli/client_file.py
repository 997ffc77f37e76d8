"""Read and write the configuration file of a client."""

import shutil
from collections.abc import Mapping
from pathlib import Path

import typer

from gateway.launch import UnmergeableFile, member_of, merge_entries
from gateway.launch.client import FileFormat
from gateway.launch.rendering import render_diff


class LaunchError(Exception):
    """The client cannot be set up; the text says why.  code: the exit code."""

    def __init__(self, message: str, *, code: int = 2) -> None:
        super().__init__(message)
        self.code = code


class SettingsFile:
    """The configuration file of a client, with the entries that it shall have."""

    def __init__(self, path: Path, format: FileFormat, entries: str) -> None:
        self.path, self._format, self._entries = path, format, entries

    def complete(self) -> bool:
        """Return True if the file has all entries.  Raises LaunchError."""
        before, after = self._merged()
        return before == after

    def other_variables(self, member: str, variables: Mapping[str, str]) -> list[str]:
        """Return the environment variables to which a member of the file gives other values.  Raises LaunchError."""
        there = member_of(self._read(), member, self._format)
        return [name for name, value in variables.items() if there.get(name, value) != value]

    def write(self) -> None:
        """Merge the entries into the file, and print the changes; a copy keeps the text before.  Raises LaunchError."""
        before, after = self._merged()
        if after == before:
            typer.echo(f"{self.path} has all entries already.")
            return
        try:
            backup = _back_up(self.path) if before else None
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self.path.write_text(after, "utf-8")
        except OSError as error:
            raise LaunchError(f"{self.path} cannot be written: {error.strerror}.") from None
        typer.echo(render_diff(str(self.path), before, after, self._entries), nl=False)
        typer.echo(f"Written to {self.path}" + (f"; {backup} has the text before." if backup else "."))

    def _merged(self) -> tuple[str, str]:
        """Return the text of the file, and the text with the entries."""
        before = self._read()
        try:
            return before, merge_entries(before, self._entries, self._format)
        except UnmergeableFile as error:
            message = f"{self.path} {error}\nIt stays as it is. Add these entries by hand:\n{self._entries.rstrip()}"
            raise LaunchError(message) from None

    def _read(self) -> str:
        try:
            return self.path.read_text("utf-8") if self.path.exists() else ""
        except OSError as error:
            raise LaunchError(f"{self.path} cannot be read: {error.strerror}.") from None
        except UnicodeDecodeError as error:
            raise LaunchError(f"{self.path} is not UTF-8 at byte {error.start}.") from None


def _back_up(path: Path) -> Path:
    """Copy the file beside itself, and return the path of the copy, which replaces no other file."""
    backup, number = path.with_name(f"{path.name}.bak"), 1
    while backup.exists():
        number += 1
        backup = path.with_name(f"{path.name}.bak{number}")
    shutil.copy2(path, backup)
    return backup
