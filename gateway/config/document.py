"""Read a YAML text as plain data, and keep the line of each value.  This module knows no configuration keys.

`${VAR}`, `${VAR:-default}` and `${file:PATH}` are replaced inside string scalars, after parsing: no value can change
the structure.  `$${` stands for a plain `${`.  As in a shell, the default also applies to a variable that is set but
empty.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

from ruamel.yaml import YAML, MappingNode, Node, ScalarNode, SequenceNode
from ruamel.yaml.error import MarkedYAMLError, StringMark
from ruamel.yaml.reader import ReaderError

from gateway.config.errors import ConfigFault, KeyPath, UnreadableFile, dotted_path

_TAG = "tag:yaml.org,2002:"
_TYPED = {_TAG + name for name in ("bool", "float", "int", "null")}
_SORTS = {"bool": "true or false", "int": "a whole number", "float": "a number", "null": "empty"}
_PLAIN = {_TAG + name for name in ("str", "timestamp", "merge")}  # a date stays a text: no key needs a date
_VARIABLE = re.compile(r"\$\$\{|\$\{(?:([A-Za-z_][A-Za-z0-9_]*)(?::-([^}]{0,4000}))?\}|file:([^}]{1,4000})\})?")
_MAX = 100_000  # values; aliases of aliases can expand to any number
_DIRECTIVE = re.compile(r"^\ufeff?%YAML(?! 1\.2\s)", re.M)
_WRONG = "should be ${NAME} or ${NAME:-default} for a variable, ${file:PATH} for a file, or $${ for a literal ${"
_STAR = "put a text that begins with * in quotes"
_COLON = "a colon where no key can be; check the indentation, or put a text with a colon in quotes"
# Patterns of the parser's own texts, each with the explanation of the match and the line where the construct begins.
_EXPLANATIONS: tuple[tuple[str, Callable[[re.Match[str], int], str]], ...] = (
    (r"behind \$$", lambda _, __: 'a variable between brackets; put it in quotes, like "${NAME}"'),
    (r"found character '\\t'", lambda _, __: "a tab; indent with spaces"),
    (r"character '(.)' that cannot start", lambda found, _: f"a text cannot begin with {found[1]}; put it in quotes"),
    (r"scanning an alias", lambda _, __: f"* stands for an alias; {_STAR}"),
    (r"undefined alias '(.+)'", lambda found, _: f"the alias *{found[1]} is unknown; {_STAR}"),
    (r"mapping values are not allowed", lambda _, __: _COLON),
    (r"could not find expected ':'", lambda _, line: f"line {line} has no colon; write `key: value`"),
    (r"scanning a quoted scalar", lambda _, line: f"the quote that opens in line {line} is not closed"),
    (r"parsing a flow", lambda _, line: f"the bracket that opens in line {line} is not closed, or a comma is missing"),
    (r"expected <block end>", lambda _, line: f"the indentation does not match the lines from line {line} on"),
    (r"another document", lambda _, __: "a second document begins; remove the line ---"),
    (r"expected '<document start>'", lambda _, __: "the text goes on after its end; write `key: value` lines only"),
)  # fmt: skip

FileReader = Callable[[str], str]  # reads the file of `${file:PATH}`; raises UnreadableFile


@dataclass(slots=True)
class ConfigDocument:
    """A configuration as it was read: its data, the line of each path, and the faults so far."""

    file: str
    data: object = field(default_factory=dict)
    lines: dict[KeyPath, int] = field(default_factory=dict)
    written: dict[KeyPath, str] = field(default_factory=dict)  # the original texts with a variable or a file
    flags: dict[KeyPath, str] = field(default_factory=dict)  # paths that the command line set → the flag
    faults: list[ConfigFault] = field(default_factory=list)

    def add_error(self, path: KeyPath, text: str, line: int | None = None) -> None:
        """Add a fault at a path, with the line of the nearest part of the path that has one."""
        if path in self.flags:
            self.faults.append(ConfigFault(self.flags[path], None, "", text))
            return
        lines = (self.lines[path[:size]] for size in range(len(path), -1, -1) if path[:size] in self.lines)
        self.faults.append(ConfigFault(self.file, line or next(lines, None), dotted_path(path), text))


def no_files(path: str) -> str:
    """Raise UnreadableFile: a text without a file of its own names no other files."""
    raise UnreadableFile(f"{path} cannot be read: files are not available here")


def read_document(text: str, file: str, env: Mapping[str, str], files: FileReader = no_files) -> ConfigDocument:
    """Read a YAML text as a ConfigDocument.

    Syntax errors, duplicate keys, unset variables and unreadable files are among its faults.
    """
    document = ConfigDocument(file)
    if _DIRECTIVE.search(text):
        document.add_error((), "the file is read as YAML 1.2; remove the %YAML line")
        return document
    yaml = YAML(typ="safe", pure=True)
    yaml.composer.warn_double_anchors = False  # the last anchor of a name counts, as YAML defines it
    try:
        root = yaml.compose(text)
        value = _NodeReader(document, yaml, env, files).value(root, ()) if root else None
    except ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        document.add_error((), f"not YAML: the character {error.character:#x} is not allowed", line)
    except MarkedYAMLError as error:
        place, message = _explained(error)
        document.add_error((), f"not YAML: {message}", place)
    except RecursionError:
        document.add_error((), "nested too deeply")
    except _TooManyValues:
        document.add_error((), f"aliases expand to more than {_MAX} values")
    else:
        document.data = {} if value is None else value
    return document


class _TooManyValues(Exception):
    """The document has more values than allowed."""


class _NodeReader:
    """Convert nodes to data, depth first; the lines and faults go to the document."""

    def __init__(self, document: ConfigDocument, yaml: YAML, env: Mapping[str, str], files: FileReader) -> None:
        self._document = document
        self._yaml = yaml
        self._env = env
        self._files = files
        self._open: list[Node] = []
        self._seen = 0

    def value(self, node: Node, path: KeyPath) -> object:
        """Return the data of a node.  Raises _TooManyValues."""
        self._seen += 1
        if self._seen > _MAX:
            raise _TooManyValues
        self._document.lines.setdefault(path, node.start_mark.line + 1)
        if node in self._open:
            self._document.add_error(path, "an alias refers to a value that contains it")
            return None
        self._open.append(node)
        try:
            if isinstance(node, MappingNode):
                return self._mapping(node, path)
            if isinstance(node, SequenceNode):
                return [self.value(item, (*path, index)) for index, item in enumerate(node.value)]
            return self._scalar(node, path)
        finally:
            self._open.pop()

    def _mapping(self, node: MappingNode, path: KeyPath) -> dict[str, object]:
        """Convert the mapping's own keys first, so that they override merged ones."""
        found: dict[str, object] = {}
        merged: list[tuple[Node, int]] = []
        for key, value in node.value:
            line = key.start_mark.line + 1
            if key.tag == _TAG + "merge":
                merged.append((value, line))
            elif not isinstance(key, ScalarNode):
                self._document.add_error(path, "a key should be a string", line)
            elif key.value in found:
                first = self._document.lines[(*path, key.value)]
                self._document.add_error((*path, key.value), f"duplicate key, first in line {first}", line)
            else:
                self._document.lines.setdefault((*path, key.value), line)
                found[key.value] = self.value(value, (*path, key.value))
        for source, line in merged:
            self._merge(source, path, line, found)
        return found

    def _merge(self, source: Node, path: KeyPath, line: int, found: dict[str, object]) -> None:
        for node in source.value if isinstance(source, SequenceNode) else [source]:
            value = self.value(node, path)
            if not isinstance(value, dict):
                self._document.add_error((*path, "<<"), "should be an alias of a mapping", line)
                continue
            for key, item in value.items():
                found.setdefault(key, item)

    def _scalar(self, node: Node, path: KeyPath) -> object:
        if node.tag in _TYPED:
            try:
                value = self._yaml.constructor.construct_object(node)
                str(value)  # raises ValueError for a number with too many digits to be a setting
                return value
            except (ValueError, LookupError):  # LookupError: `!!bool maybe` and `!!int ""`
                self._document.add_error(path, f"should be {_SORTS[node.tag.removeprefix(_TAG)]}")
                return None
        if node.tag not in _PLAIN:
            self._document.add_error(path, f"the tag {node.tag} is not supported")
            return None
        return self._replaced(node.value, path)

    def _replaced(self, text: str, path: KeyPath) -> str:
        pieces = list(self._pieces(text, path))
        if len(pieces) > 1:
            self._document.written[path] = text
        return "".join(pieces)

    def _pieces(self, text: str, path: KeyPath) -> Iterator[str]:
        end = 0
        for match in _VARIABLE.finditer(text):
            yield text[end : match.start()]
            yield self._read(match[3], path) if match[3] else self._variable(match, path)
            end = match.end()
        yield text[end:]

    def _variable(self, match: re.Match[str], path: KeyPath) -> str:
        name, default, _ = match.groups()
        if name is None:
            if match[0] == "${":
                self._document.add_error(path, _WRONG)
            return "${"
        if default is not None:
            return self._env.get(name) or default
        if name not in self._env:
            self._document.add_error(path, f"the variable {name} is not set; set it, or write ${{{name}:-default}}")
        return self._env.get(name, "")

    def _read(self, file: str, path: KeyPath) -> str:
        try:
            return self._files(file)
        except UnreadableFile as error:
            self._document.add_error(path, f"the file {error}")
            return ""


def _explained(error: MarkedYAMLError) -> tuple[int | None, str]:
    """Return the line of a syntax error, and its explanation."""
    mark, begin = error.problem_mark or error.context_mark, error.context_mark or error.problem_mark
    text = ", ".join(part for part in (error.context, error.problem, _behind_dollar(mark)) if part)
    found = ((re.search(pattern, text), explain) for pattern, explain in _EXPLANATIONS)
    explanation = next((explain(match, begin.line + 1) for match, explain in found if match and begin), text)
    return mark and mark.line + 1, explanation


def _behind_dollar(mark: object) -> str:
    """Return `behind $` for an error at the brace of a variable, which ends a text without quotes between brackets."""
    is_brace = isinstance(mark, StringMark) and mark.buffer[mark.pointer - 1 : mark.pointer + 1] == "${"
    return "behind $" if is_brace else ""
