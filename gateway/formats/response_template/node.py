"""A mapping inside a response template, with the collection of its faults."""

from collections.abc import Mapping
from typing import Any

from gateway.formats.response_template.pattern import (
    PatternPart,
    PatternPiece,
    PatternTexts,
    UnsupportedPattern,
    parse_pattern,
)

NodePath = tuple[str, ...]
FIELD = (
    "open", "open_pattern", "close", "close_pattern", "content", "content_args", "repeats", "join", "optional",
    "transform", "transform_each",
)  # fmt: skip


class TemplateNode:
    """A mapping at a path of the template, with the keys that it may have.

    faults: the faults of the whole template.
    """

    def __init__(self, data: object, path: NodePath, keys: tuple[str, ...], faults: list[tuple[NodePath, str]]) -> None:
        self.path, self.faults = path, faults
        self.data: Mapping[str, Any] = data if isinstance(data, Mapping) else {}
        if not isinstance(data, Mapping):
            self.add_error("should be a mapping")
        for key in self.data:
            if key not in keys:
                self.add_error(f"unknown key; one of: {', '.join(keys)}", str(key))

    def add_error(self, text: str, *steps: str) -> None:
        """Add a fault at this path, or at the path `steps` below it."""
        self.faults.append(((*self.path, *steps), text))

    def inside(self, key: str, keys: tuple[str, ...]) -> "TemplateNode":
        """Return the mapping under a key; an empty one if the key is missing."""
        found = self.data.get(key)
        return TemplateNode({} if found is None else found, (*self.path, key), keys, self.faults)

    def has(self, key: str) -> bool:
        """Return True if the key, or a pattern for it, is present."""
        return key in self.data or f"{key}_pattern" in self.data

    def pattern(self, key: str) -> tuple[PatternPiece, ...]:
        """Return the pieces of a pattern; none if it is missing or faulty."""
        value = self.data.get(key)
        if not isinstance(value, str) or not value:
            self.add_error("should be a pattern, as a string", key)
            return ()
        try:
            return parse_pattern(value)
        except UnsupportedPattern as error:
            self.add_error(str(error), key)
            return ()

    def pieces(self, key: str) -> tuple[PatternPiece, ...]:
        """Return the pieces of `key`: a text, one of several texts, or its pattern."""
        if f"{key}_pattern" in self.data:
            if key in self.data:
                self.add_error(f"excludes {key}; remove one of them", f"{key}_pattern")
            return self.pattern(f"{key}_pattern")
        found = self.data.get(key)
        texts = [found] if isinstance(found, str) else found
        if isinstance(texts, list) and texts and all(isinstance(text, str) and text.strip() for text in texts):
            return (PatternTexts(tuple(text.strip() for text in texts)),)
        if key in self.data:
            self.add_error("should be a string, or a list of strings, with more than white space", key)
        return ()

    def texts(self, key: str) -> tuple[str, ...]:
        """Return the literal texts under a key that allows nothing else."""
        found: list[str] = []
        for piece in self.pieces(key):
            if isinstance(piece, PatternPart):
                self.add_error("should be literal text", f"{key}_pattern")
                return ()
            found += filter(None, piece.options)
        return tuple(found)
