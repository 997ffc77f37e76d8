"""A program on the Claude Agent SDK, in its own environment, in front of a gateway over a scripted backend."""

import json
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from claude_environment import environment
from program import ran
from words import FORMAT

from support.app import listening
from support.upstream import Upstream

(PYTHON,) = sys.argv[1:]
ASK = str(Path(__file__).with_name("ask.py"))
ENDED = ["result", "success", False, None]


class Program:
    """The program with its folders and its gateway."""

    def __init__(self, folder: Path, url: str) -> None:
        self.folder, home = folder / "work", folder / "home"
        self.folder.mkdir()
        home.mkdir()
        self._environment = environment(home, url) | {"CLAUDE_CODE_MAX_RETRIES": "0", "ENABLE_TOOL_SEARCH": "false"}

    async def ask(self, *questions: str, **options: Any) -> list[list[Any]]:
        """Return its lines for all questions."""
        command = (PYTHON, ASK, json.dumps({"model": "m", **options}), *questions)
        _, out, errors = await ran(*command, folder=self.folder, environment=self._environment)
        assert out, errors
        return [json.loads(line) for line in out.splitlines()]


@asynccontextmanager
async def program(*scripts: list[Any], **settings: Any) -> AsyncIterator[tuple[Program, Upstream]]:
    async with listening(*scripts, **{"model": FORMAT, **settings}) as site:
        with TemporaryDirectory() as folder:
            yield Program(Path(folder), str(site.client.base_url)), site.upstream
