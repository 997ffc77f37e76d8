"""The files that a configuration is made of."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from gateway.formats.response_template import WrongTemplate, compile, found_in


class Unreadable(Exception):
    """A file that cannot be read; the text says why."""


def read_text(file: Path) -> str:
    """What a file holds, or Unreadable."""
    try:
        return file.read_text("utf-8-sig")
    except OSError as error:
        raise Unreadable(f"cannot be read: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise Unreadable(f"is not UTF-8 at byte {error.start}") from None


def response_template(folder: Path, given: object) -> tuple[object, Sequence[tuple[tuple[str, ...], str]]]:
    """The template that is given, or the one of the file whose path is, and what is wrong in it."""
    if not isinstance(given, Mapping | str):
        return {}, [((), "should be a template, or the path of a file that has one")]
    try:
        template = found_in(_json(folder / given)) if isinstance(given, str) else given
        compile(template)
    except Unreadable as error:
        return {}, [((), f"{folder / str(given)} {error}")]
    except WrongTemplate as error:
        return {}, error.faults
    return template, ()


def _json(file: Path) -> Any:  # noqa: ANN401 - whatever JSON is there
    text = read_text(file)
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        raise Unreadable(f"is not JSON: {error.msg} in line {error.lineno}") from None
    except RecursionError:
        raise Unreadable("is nested too deeply") from None
