"""Compile the two C programs and the gateway's bytecode if they are older than their sources."""

import subprocess
from compileall import compile_dir
from pathlib import Path

import gateway as package

_HERE = Path(__file__).parent
_BUILD = _HERE / "build"
_FLAGS = ("-O2", "-Wall", "-Wextra")


def mock() -> Path:
    """Return the path of the mock upstream."""
    return _program("mock", "mock.c", "answers.c", "answers.h")


def load() -> Path:
    """Return the path of the load generator."""
    return _program("load", "load.c")


def gateway() -> None:
    """Compile the gateway's bytecode, as pip does; otherwise each start compiles it if it cannot write bytecode."""
    compile_dir(Path(package.__file__).parent, quiet=1)


def _program(name: str, *sources: str) -> Path:
    program = _BUILD / name
    paths = [_HERE / source for source in sources]
    if not program.exists() or program.stat().st_mtime < max(path.stat().st_mtime for path in paths):
        _BUILD.mkdir(exist_ok=True)
        units = [path for path in paths if path.suffix == ".c"]
        subprocess.run(["gcc", *_FLAGS, "-o", program, *units], check=True, timeout=120)
    return program
