"""docs/performance.md, whose tables are those of the last run: what stands between two marks is put in anew."""

from pathlib import Path

DOCS = Path(__file__).parents[1] / "docs"
_DOCUMENT = DOCS / "performance.md"


def put(name: str, text: str) -> None:
    """Puts a text between the marks of this name."""
    _DOCUMENT.write_text(replaced(_DOCUMENT.read_text(), name, text))


def replaced(document: str, name: str, text: str) -> str:
    """The document with this between the marks; ValueError without them."""
    begin, end = f"<!-- {name} -->\n", f"<!-- end of {name} -->"
    before, _, rest = document.partition(begin)
    _, found, after = rest.partition(end)
    if not found:
        raise ValueError(f"no {begin.strip()} … {end}")
    return f"{before}{begin}{text}\n{end}{after}"
