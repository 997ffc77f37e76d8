"""A reader of the tutorials: a home and a clone of their own, and the commands of the pages."""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from support.paths import ROOT
from support.wait import until_blocking

ADDRESS = "http://127.0.0.1:8900"  # of the pages; the reader gets a free port
SECONDS = 900  # for one command, with its downloads
_LISTENS = re.compile(r"listens on (?:http://)?127\.0\.0\.1(?: port |:)(\d+)")
_HONEST = 'curl() { command curl --fail-with-body "$@"; }\n'  # it fails if the status says so
_OWN = ("PYTHONPATH", "VIRTUAL_ENV", "MAKEFLAGS", "MAKELEVEL", "GATEWAY_KEY", "GATEWAY_URL", "GATEWAY_CONFIG")


def blocks(page: str, *languages: str) -> list[tuple[str, str]]:
    """Return the language and the text of the blocks of a tutorial in these languages."""
    text = (ROOT / "docs/tutorials" / f"{page}.md").read_text("utf-8")
    found = re.findall(r"^```(\w+)\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    return [(language, code) for language, code in found if language in languages]


def commands(page: str) -> list[str]:
    """Return the commands that a tutorial has the reader type."""
    return [line[2:] for _, code in blocks(page, "console") for line in code.splitlines() if line.startswith("$ ")]


class Reader:
    """A reader with an empty home and a clone.

    path: folders with further programs, such as clients.
    """

    def __init__(self, folder: Path, path: list[Path]) -> None:
        self.clone, self.home, self._logs = folder / "gateway", folder / "home", folder / "logs"
        self.home.mkdir()
        self._logs.mkdir()
        places = [self.home / "venv/bin", self.clone / ".venv/bin", *path]
        self.environment = {name: value for name, value in os.environ.items() if name not in _OWN}
        self.environment["PATH"] = ":".join([*map(str, places), os.environ["PATH"]])
        self.environment |= {"HOME": str(self.home), "NO_PROXY": "127.0.0.1"}
        self.run(f"git clone --quiet '{ROOT}' '{self.clone}'", folder=folder)

    def run(self, command: str, *, folder: Path | None = None, ends: tuple[int, ...] = (0,), **more: str) -> str:
        """Run a command in the shell, in the clone by default, and return its output.

        ends: the exit codes that are right; more: variables.
        """
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", _HONEST + command],
            cwd=folder or self.clone, env=self.environment | more, stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=SECONDS, check=False,
        )  # fmt: skip
        assert done.returncode in ends, f"{command}\nended with {done.returncode}:\n{done.stdout}"
        return done.stdout

    def install(self, package: str) -> None:
        """Install a package by pip into the reader's own environment."""
        if not (self.home / "venv").exists():
            self.run(f"'{sys.executable}' -m venv '{self.home}/venv'")
        self.run(f"pip install --quiet --disable-pip-version-check {package}")

    def try_programs(self, page: str, url: str) -> Iterator[str]:
        """Run the programs of a page for the gateway at `url`, and yield the output of each."""
        for language, pasted in blocks(page, "sh", "python"):
            assert ADDRESS in pasted, pasted
            code = pasted.replace(ADDRESS, url)
            file = self.home / f"program.{language}"
            file.write_text(code, "utf-8")
            output = self.run(code if language == "sh" else f"python '{file}'")
            assert output.strip(), code
            yield output

    @contextmanager
    def serving(
        self, command: str, *, folder: Path | None = None, pattern: re.Pattern[str] = _LISTENS, **more: str
    ) -> Iterator[str]:
        """Run a server within the block, and yield its address; pattern: the line that it prints, with the port."""
        log = self._logs / f"{len([*self._logs.iterdir()])}.txt"
        with log.open("w") as file:
            child = subprocess.Popen(
                ["bash", "-c", f"exec {command}"], cwd=folder or self.clone, env=self.environment | more,
                stdin=subprocess.DEVNULL, stdout=file, stderr=subprocess.STDOUT, start_new_session=True,
            )  # fmt: skip

            def ready() -> bool:
                assert child.poll() is None, f"{command} ended:\n{log.read_text()}"
                return bool(pattern.search(log.read_text()))

            try:
                until_blocking(ready, seconds=SECONDS, pause=0.1)
                yield f"http://127.0.0.1:{pattern.search(log.read_text())[1]}"
            finally:
                if child.poll() is None:
                    os.killpg(child.pid, signal.SIGINT)
                child.wait(60)
