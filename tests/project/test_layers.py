"""Check the import rules: pure code stays pure, and imports go upwards only."""

import ast
from pathlib import Path

import gateway

ROOT = Path(gateway.__file__).parent
IMPURE = {
    "asyncio", "anyio", "socket", "ssl", "httpx", "httptools", "aiohttp", "fastapi", "starlette", "sse_starlette",
    "uvicorn", "os", "time", "random", "secrets", "logging", "subprocess", "threading", "uuid", "datetime",
}  # fmt: skip
ROWS = [
    ["errors"],
    ["events"],
    ["request", "ledger", "config", "tarpit"],
    ["framing", "backends", "formats", "endpoints", "alignment", "shortening", "documents", "images", "routing"],
    ["calls", "pieces", "recollection", "recording", "unread"],
    ["structured_call"],
    ["structured_calls"],
    ["choice", "translate", "compaction", "hosted"],
    ["normaliser"],
    ["upstream"],
    ["fan"],
    ["turn", "services", "doctor"],
    ["empty_turn"],
    ["demo", "store"],
    ["server"],
    ["replay"],
    ["cli"],
    ["__main__"],
]
EDGE = {"server", "store", "demo", "replay", "cli", "__main__"}


def imports(path):
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            yield from (f"{base}.{alias.name}" if base == "gateway" else base for alias in node.names)


def layer_of(path):
    return path.relative_to(ROOT).parts[0].removesuffix(".py")


def modules():
    return [path for path in ROOT.rglob("*.py") if layer_of(path) != "__init__"]


def test_layer_exists_for_every_module():
    assert {layer_of(path) for path in modules()} == {layer for row in ROWS for layer in row}


def test_layer_imports_only_layers_of_earlier_rows():
    rank = {layer: i for i, row in enumerate(ROWS) for layer in row}
    for path in modules():
        layer = layer_of(path)
        for name in imports(path):
            top, _, rest = name.partition(".")
            other = rest.split(".")[0]
            if top == "gateway" and other not in (layer, "__version__"):
                assert rank[other] < rank[layer], f"{path}: {layer} may not import {other}"


def test_layer_that_is_pure_does_no_io():
    for path in modules():
        if layer_of(path) not in EDGE:
            assert not IMPURE & {name.partition(".")[0] for name in imports(path)}, path
