"""Check the import rules: pure code stays pure, imports go upwards only, and no modules import each other in a circle."""

import ast
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path

import gateway

ROOT = Path(gateway.__file__).parent
IMPURE = {
    "asyncio", "anyio", "socket", "ssl", "httpx", "httptools", "aiohttp", "fastapi", "starlette", "sse_starlette",
    "uvicorn", "os", "time", "random", "secrets", "logging", "subprocess", "threading", "uuid", "datetime",
}  # fmt: skip
# Bottom to top.  A module may import modules of its own layer and of the rows above it here; the longest prefix decides.
ROWS = [
    ["errors"],
    ["warnings"],
    ["code_texts", "lazy_module"],
    ["events"],
    ["request"],
    ["sse", "backends", "formats", "routing"],
    ["config"],
    ["api", "transforms", "recording"],
    ["pipeline", "builtin_tools"],
    ["installation"],
    ["doctor", "launch", "store", "demo"],
    ["server", "server/ids", "server/child_process", "server/worker_thread"],
    ["server/http"],
    ["server/observability"],
    ["server/upstream", "server/fetch", "server/limits", "server/conversations"],
    ["server/tools", "server/middleware"],
    ["server/relay"],
    ["server/jobs"],
    ["server/batches"],
    ["server/handler"],
    ["server/websocket", "server/admin"],
    ["server/routes"],
    ["server/app"],
    ["server/process"],
    ["replay"],
    ["cli"],
    ["__main__"],
]
RANK = {layer: i for i, row in enumerate(ROWS) for layer in row}
EDGE = {"installation", "server", "store", "demo", "replay", "cli", "__main__"}


def module_name(path):
    """Return `server/http/paths` for its file, and `server/http` for the file of the package."""
    return str(path.relative_to(ROOT).with_suffix("")).removesuffix("__init__").rstrip("/")


@cache
def modules():
    """Return the files of all modules by their names, without the package itself."""
    return {name: path for path in ROOT.rglob("*.py") if (name := module_name(path))}


@cache
def imports(path):
    """Return the dotted names that a module imports, also those for type checking."""
    names = []
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names += [f"{node.module}.{alias.name}" for alias in node.names]
    return names


def imported_modules(path):
    """Yield the names of the gateway's modules that a module imports."""
    for name in imports(path):
        top, *rest = name.split(".")
        while top == "gateway" and rest and "/".join(rest) not in modules():
            rest.pop()
        if top == "gateway" and rest:
            yield "/".join(rest)


def layer_of(name):
    parts = name.split("/")
    return next((layer for end in (2, 1) if (layer := "/".join(parts[:end])) in RANK), None)


def test_layer_exists_for_every_module():
    assert {layer_of(name) for name in modules()} == RANK.keys()
    assert {name for name in modules() if layer_of(name) == "server"} == {"server"}


def test_layer_imports_only_layers_of_earlier_rows():
    for name, path in modules().items():
        layer = layer_of(name)
        for other in {layer_of(imported) for imported in imported_modules(path)} - {layer}:
            assert RANK[other] < RANK[layer], f"{name}: {layer} may not import {other}"


def test_layer_has_no_circle_of_imports():
    TopologicalSorter({name: {*imported_modules(path)} - {name} for name, path in modules().items()}).prepare()


def test_layer_that_is_pure_does_no_io():
    for name, path in modules().items():
        if name.split("/")[0] not in EDGE:
            assert not IMPURE & {imported.partition(".")[0] for imported in imports(path)}, name
