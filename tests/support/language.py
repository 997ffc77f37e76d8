"""Lint the language of the code, the docs and the configuration files: banned turns, and docstrings that begin with a pronoun.

    python -m support.language        prints file:line: what is wrong; part of `make lint`
    python -m support.language --counts        prints the number of faults of each package instead

Of Python, it reads comments and strings alone.  A turn may be broken over lines.
"""

import ast
import io
import re
import sys
import tokenize
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from support.paths import ROOT

PLACES = (
    "gateway",
    "docs",
    "config",
    ".github",
    "examples",
    "deploy/pypi.md",
    "bench/README.md",
    "tests/README.md",
    "README.md",
    "CONTRIBUTING.md",
    "CHANGELOG.md",
    "SECURITY.md",
)
SUFFIXES = {".py", ".md", ".yaml", ".yml", ".toml", ".html", ".js", ".jinja"}
TURNS = ("whoever", "who has", "is none", "as ever", "of which", "nobody", "told of")
PRONOUNS = {
    *("who", "whoever", "what", "whatever", "whether", "nobody", "somebody", "those", "that", "it", "this", "they"),
    *("which", "where", "how", "when"),
}
# Small, or at the beginning of a sentence: `is None` is Python's.
_TURN = re.compile("|".join(rf"\b[{t[0]}{t[0].upper()}]{t[1:]}\b".replace(" ", r"\s+") for t in TURNS))
# Marks of comments, quotations and lists, which stand between the lines of a sentence.
_MARGIN = re.compile(r"^[ \t]*(?:#+:?|//|\*|>|[{]#)(?=\s)", re.MULTILINE)
_EXPRESSION = re.compile(r"[{][{%].*?[%}][}]")  # of a template, whose `is none` is Jinja's
_NOT_LINE_END = re.compile(r"[^\n]")
_WORD = re.compile(r"\W*(\w+)")
_TEXTS = {tokenize.COMMENT, tokenize.STRING, getattr(tokenize, "FSTRING_MIDDLE", tokenize.STRING)}  # newer than 3.11


def violations(source: str, suffix: str) -> Iterator[tuple[int, str]]:
    """Yield the line and the fault of all turns and docstrings in the text of a file that are not plain English."""
    python = suffix == ".py"
    text = _texts(source) if python else _EXPRESSION.sub(_blank, source) if suffix == ".html" else source
    text = _MARGIN.sub(_blank, text)
    for turn in _TURN.finditer(text):
        yield text.count("\n", 0, turn.start()) + 1, f"banned turn: {' '.join(turn[0].split())}"
    if python:
        yield from _docstrings(source)


def _texts(source: str) -> str:
    """Return a module with spaces in place of all that is neither a comment nor a string, in the same lines."""
    starts = [0]
    for line in source.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    blank, parts, end = _NOT_LINE_END.sub(" ", source), [], 0
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type in _TEXTS:
            start, stop = (starts[row - 1] + column for row, column in (token.start, token.end))
            parts += blank[end:start], source[start:stop]
            end = stop
    return "".join((*parts, blank[end:]))


def _blank(match: re.Match[str]) -> str:
    return _NOT_LINE_END.sub(" ", match[0])


def _docstrings(source: str) -> Iterator[tuple[int, str]]:
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            word = _WORD.match(ast.get_docstring(node) or "")
            if word and word[1].lower() in PRONOUNS:
                yield node.body[0].lineno, f"docstring begins with a pronoun: {word[1]}"


def files() -> Iterator[Path]:
    """Yield all files that are checked."""
    for place in PLACES:
        path = ROOT / place
        found = sorted(path.rglob("*")) if path.is_dir() else [path]
        yield from (file for file in found if file.suffix in SUFFIXES and file.is_file())


def main(arguments: list[str]) -> int:
    found = [
        (str(path.relative_to(ROOT)), line, fault)
        for path in files()
        for line, fault in sorted(violations(path.read_text("utf-8"), path.suffix))
    ]
    if "--counts" in arguments:
        counts = Counter(file.rpartition("/")[0] if file.startswith("gateway/") else file for file, _, _ in found)
        lines = [f"{count:4} {place}\n" for place, count in sorted(counts.items())]
    else:
        lines = [f"{file}:{line}: {fault}\n" for file, line, fault in found]
    sys.stdout.writelines(lines)
    return bool(found)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
