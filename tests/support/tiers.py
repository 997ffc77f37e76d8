"""Derive the tier of each test from its dependencies.

unit    pure code: no socket, process, store file or sleep
edge    the gateway in this process, SQLite, scripted backends over loopback
system  other processes, PostgreSQL, Redis, llama.cpp, real clients, faults, soak

`tier_of` follows the names that a test function uses, through helpers and fixtures, to the modules that they come from.
`USES` names those that need a tier above unit; the longest name in it counts.  Nothing is imported for this, so that a run of one tier loads only its
modules.
"""

import ast
from collections.abc import Iterator
from enum import IntEnum
from functools import cache
from pathlib import Path
from typing import NamedTuple

from support.paths import TESTS


class Tier(IntEnum):
    """The tier of a test."""

    unit = 0
    edge = 1
    system = 2


# A dotted name, or the beginning of one → the tier of a test that uses it.
USES = {
    "alembic": Tier.edge,
    "asyncio.create_subprocess_exec": Tier.system,
    "asyncio.open_connection": Tier.edge,
    "asyncio.start_server": Tier.edge,
    "bench": Tier.system,
    "bench.request_sorts": Tier.unit,
    "conformance.parts": Tier.system,
    "faults": Tier.system,
    "fuzz.run": Tier.system,
    "gateway.demo.demo_model_file": Tier.system,
    "gateway.demo.child_server": Tier.system,
    "gateway.demo.start_demo": Tier.system,
    "gateway.cli.replay": Tier.edge,
    "gateway.replay.runner": Tier.edge,
    "gateway.server.app": Tier.edge,
    "gateway.server.admin.inspector.ReplayRunner": Tier.system,
    "gateway.server.fetch.ssrf_guard.resolved": Tier.edge,
    "gateway.server.fetch.pdf_reader.Pdfs": Tier.edge,
    "gateway.server.observability.recorder.RecordingWriter": Tier.system,
    "gateway.server.process.dependencies.check_dependency": Tier.edge,
    "gateway.server.process.dependencies.redis_problem": Tier.edge,
    "gateway.server.process.dependencies.store_problem": Tier.edge,
    "gateway.server.upstream.backend_check.check_backend": Tier.edge,
    "gateway.store.Database": Tier.edge,
    "gateway.store.sqlite_driver.connect": Tier.edge,
    "http.server": Tier.edge,
    "httpx.AsyncClient": Tier.edge,
    "httpx.Client": Tier.edge,
    "httpx.get": Tier.edge,
    "multiprocessing": Tier.system,
    "openai.AsyncOpenAI": Tier.system,
    "openai.OpenAI": Tier.system,
    "os.fork": Tier.system,
    "psutil": Tier.system,
    "pty": Tier.system,
    "runpy": Tier.system,
    "schemathesis": Tier.system,
    "soak": Tier.system,
    "socket": Tier.edge,
    "sqlalchemy.create_engine": Tier.edge,
    "sqlite3": Tier.edge,
    "stalls": Tier.system,
    "starlette.testclient": Tier.edge,
    "subprocess": Tier.system,
    "support.wait.idle": Tier.edge,
    "support.wait.until": Tier.edge,
    "support.wait.until_blocking": Tier.edge,
    "uvicorn": Tier.edge,
    "wire": Tier.system,
}

Place = tuple[Path, str]  # a module of the tests, and a name in it


@cache
def tier_of(file: Path, function: str) -> Tier:
    """Return the tier of a test function by its dependencies, fixtures included."""
    tier, seen, todo = Tier.unit, {(file, function)}, [(file, function)]
    while todo:
        uses = _uses_of(*todo.pop())
        tier = max(tier, uses.tier)
        todo += uses.places - seen
        seen |= uses.places
    return tier


def named_tests(file: Path) -> list[str]:
    """Return the names of the test functions and classes of a module."""
    return [name for name in _module(file).names if name.startswith(("test_", "Test"))]


def imports_of(file: Path) -> set[str]:
    """Return the dotted names that a module imports."""
    return {*_module(file).imports.values()}


class Uses(NamedTuple):
    """The dependencies of a definition."""

    tier: Tier  # of names outside of the tests
    places: frozenset[Place]


@cache
def _uses_of(file: Path, name: str) -> Uses:
    """Return the direct dependencies of a definition."""
    tier, places, module = Tier.unit, set(), _module(file)
    for used in module.names.get(name, ()):
        head, _, rest = used.partition(".")
        if head in module.names:
            places.add((file, head))
        elif head in module.imports:
            dotted = f"{module.imports[head]}.{rest}" if rest else module.imports[head]
            tier = max(tier, _tier_of_name(dotted))
            places.add(_in_tests(dotted))
        else:
            places |= {(fixtures, used) for fixtures in _FIXTURES if used in _module(fixtures).names}
    return Uses(tier, frozenset(places - {None}))


@cache
def _tier_of_name(dotted: str) -> Tier:
    parts = dotted.split(".")
    known = (".".join(parts[:count]) for count in range(len(parts), 0, -1))
    return next((USES[name] for name in known if name in USES), Tier.unit)


@cache
def _in_tests(dotted: str) -> Place | None:
    """Return the module of the tests, and the name in it, of a dotted name."""
    parts = dotted.split(".")
    if not (TESTS / parts[0]).is_dir():
        return None
    for count in range(len(parts) - 1, 0, -1):
        base = TESTS.joinpath(*parts[:count])
        for file in (base.with_suffix(".py"), base / "__init__.py"):
            if file.is_file():
                return file, parts[count]
    return None


class Module(NamedTuple):
    """The names in a module."""

    names: dict[str, set[str]]  # a name that the module binds → the dotted names that its definition uses
    imports: dict[str, str]  # a name → its dotted name


@cache
def _module(file: Path) -> Module:
    names: dict[str, set[str]] = {}
    imports: dict[str, str] = {}
    for node in _statements(ast.parse(file.read_bytes()).body):
        found = _Names()
        found.visit(node)
        imports |= found.imports
        for name in {node.name} if isinstance(node, _DEFINITIONS) else found.stored:
            names.setdefault(name, set()).update(found.used)
    return Module(names, imports)


def _statements(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    """Yield the statements of a module, those below an `if` included."""
    for node in body:
        if isinstance(node, ast.If):
            yield from _statements([*node.body, *node.orelse])
        else:
            yield node


_DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)


class _Names(ast.NodeVisitor):
    """Collect the names in a statement: dotted ones that it uses, those that it stores, and its imports."""

    def __init__(self) -> None:
        self.used: set[str] = set()
        self.stored: set[str] = set()
        self.imports: dict[str, str] = {}

    def visit_Name(self, node: ast.Name) -> None:
        """Collect a name."""
        (self.stored if isinstance(node.ctx, ast.Store) else self.used).add(node.id)

    def visit_Attribute(self, node: ast.Attribute) -> None:
        """Collect a dotted name."""
        parts, one = [node.attr], node.value
        while isinstance(one, ast.Attribute):
            parts.append(one.attr)
            one = one.value
        if isinstance(one, ast.Name):
            self.used.add(".".join([one.id, *reversed(parts)]))
        else:
            self.visit(one)

    def visit_arg(self, node: ast.arg) -> None:
        """Collect an argument."""
        self.used.add(node.arg)  # may be a fixture
        self.generic_visit(node)

    def visit_Import(self, node: ast.Import) -> None:
        """Collect imports."""
        for one in node.names:
            top = one.name.partition(".")[0]
            self.imports[one.asname or top] = one.name if one.asname else top

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        """Collect imports."""
        self.imports |= {one.asname or one.name: f"{node.module}.{one.name}" for one in node.names}


_FIXTURES = (TESTS / "conftest.py", TESTS / "support" / "services.py")
