"""Update the tables in docs/explanation/performance.md: a run replaces the text between two marks."""

from pathlib import Path

DOCS = Path(__file__).parents[1] / "docs/explanation"
_DOCUMENT = DOCS / "performance.md"


def put(name: str, text: str) -> None:
    """Replace the text between the marks with this name."""
    _DOCUMENT.write_text(replaced(_DOCUMENT.read_text(), name, text))


def replaced(document: str, name: str, text: str) -> str:
    """Return the document with the new text between the marks.  Raises ValueError without them."""
    begin, end = f"<!-- {name} -->\n", f"<!-- end of {name} -->"
    before, _, rest = document.partition(begin)
    _, found, after = rest.partition(end)
    if not found:
        raise ValueError(f"no {begin.strip()} … {end}")
    return f"{before}{begin}{text}\n{end}{after}"
