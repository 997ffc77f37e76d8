"""What the documentation has people paste."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
CLIENTS_PAGE = "docs/reference/clients.md"
ADDRESS = "http://127.0.0.1:8900"
_MARKS = re.compile(r"^## (?P<section>[^\n]+)$|^```(?P<language>\w+)\n(?P<code>.*?)^```$", re.MULTILINE | re.DOTALL)


class Block(NamedTuple):
    section: str
    language: str
    code: str


def blocks(page: str) -> Iterator[Block]:
    """All of a page, those that are one below the other in a section in one: they are one program."""
    found: dict[tuple[str, str], str] = {}
    section = ""
    for mark in _MARKS.finditer((ROOT / page).read_text("utf-8")):
        section = mark["section"] or section
        if mark["language"]:
            key = section, mark["language"]
            found[key] = found.get(key, "") + mark["code"]
    return (Block(*key, code) for key, code in found.items())


def pasted(page: str, section: str, language: str, url: str) -> str:
    """The code of a section, for the gateway at another address; `url` ends with /v1."""
    (code,) = (block.code for block in blocks(page) if (block.section, block.language) == (section, language))
    assert ADDRESS in code, code
    return code.replace(ADDRESS, url.removesuffix("/v1"))
