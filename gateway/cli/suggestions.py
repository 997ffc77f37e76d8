"""Suggest the right name for a wrong one on the command line."""

from collections.abc import Collection

from gateway.config.explanation import closest
from gateway.formats import format_names


def unknown_format(name: str) -> str:
    """Return the error of an unknown format, with the name that is most like it."""
    nearest = closest(name, format_names())
    hint = f"did you mean {nearest!r}? " if nearest else ""
    return f"unknown format {name!r}; {hint}`gateway formats` lists all formats"


def unknown_check(name: str, known: Collection[str]) -> str:
    """Return the error of an unknown check of the doctor."""
    if "," in name:
        return f"unknown check {name!r}; repeat --only for each check."
    nearest = closest(name, known)
    hint = f"did you mean {nearest!r}? " if nearest else ""
    return f"unknown check {name!r}; {hint}one of: {', '.join(known)}."
