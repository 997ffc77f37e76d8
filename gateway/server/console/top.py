"""Asks a gateway for its overview and shows it at a terminal, again and again or once."""

import os
import select
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial

import httpx
from msgspec import MsgspecError, json
from rich.console import Console
from rich.live import Live

from gateway.server.console.document import Overview
from gateway.server.console.tables import render_tables

_PATH = "/admin/overview"
_SECONDS = 10.0  # for an answer
_WIDE = 160  # columns, where it is no terminal that says how many it has
ReadKey = Callable[[float], str]  # waits for a key for so many seconds; "" if there was none

_FORBIDDEN = "The gateway at {} takes a key of the scope admin, in --key or GATEWAY_KEY: HTTP {}."


class OverviewUnavailable(Exception):
    """The overview is not available; the text says why.  mine: the caller can change that."""

    def __init__(self, message: str, *, mine: bool = False) -> None:
        super().__init__(message)
        self.mine = mine


class OverviewClient:
    """The one that is looked at."""

    def __init__(self, root: str, key: str | None, transport: httpx.BaseTransport | None = None) -> None:
        self.root = root.rstrip("/").removesuffix("/v1")
        headers = {b"authorization": f"Bearer {key.strip()}".encode()} if key else {}
        self._http = httpx.Client(headers=headers, timeout=_SECONDS, trust_env=False, transport=transport)

    def ask(self) -> Overview:
        """Raises Unseen."""
        try:
            answer = self._http.get(self.root + _PATH)
        except (httpx.InvalidURL, httpx.UnsupportedProtocol):
            raise OverviewUnavailable(
                f"{self.root!r} is no URL of a gateway, like http://127.0.0.1:8900.", mine=True
            ) from None
        except httpx.LocalProtocolError:
            raise OverviewUnavailable("That is no key: it has control characters.", mine=True) from None
        except httpx.HTTPError as error:
            raise OverviewUnavailable(
                f"No gateway answers at {self.root}: {str(error) or type(error).__name__}."
            ) from None
        if answer.status_code in (401, 403):
            raise OverviewUnavailable(_FORBIDDEN.format(self.root, answer.status_code), mine=True)
        try:
            answer.raise_for_status()
            return json.decode(answer.content, type=Overview)
        except (httpx.HTTPStatusError, MsgspecError):
            raise OverviewUnavailable(
                f"What answers at {self.root} is no gateway that can be looked at: HTTP {answer.status_code}."
            ) from None

    def close(self) -> None:
        self._http.close()


def show_once(gateway: OverviewClient, console: Console) -> None:
    """Once; raises Unseen."""
    console.print(render_tables(gateway.ask(), gateway.root))


def watch(gateway: OverviewClient, console: Console, press: ReadKey, seconds: float) -> None:
    """Until `q` is pressed; raises Unseen where it is so from the beginning, while later it waits for better times."""
    seen, problem = gateway.ask(), ""
    with Live(console=console, screen=True, auto_refresh=False) as live:
        while True:
            live.update(render_tables(seen, gateway.root, problem), refresh=True)
            if press(seconds) in ("q", "Q"):
                return
            try:
                seen, problem = gateway.ask(), ""
            except OverviewUnavailable as error:
                problem = str(error)


def make_console() -> Console:
    console = Console()
    return console if console.is_terminal else Console(width=_WIDE)


@contextmanager
def keyboard() -> Iterator[ReadKey]:
    """Keys are heard as they are pressed, until the block is over; where that is not to be had, none is."""
    try:
        import termios  # noqa: PLC0415 - Windows has none
        import tty  # noqa: PLC0415

        file = sys.stdin.fileno()
        before = termios.tcgetattr(file)
    except (ImportError, OSError, ValueError, termios.error):
        yield _wait
        return
    tty.setcbreak(file)
    try:
        yield partial(_pressed, file)
    finally:
        termios.tcsetattr(file, termios.TCSADRAIN, before)


def _pressed(file: int, seconds: float) -> str:
    """A terminal that is gone is as good as a `q`."""
    if not select.select([file], [], [], seconds)[0]:
        return ""
    return os.read(file, 1).decode(errors="replace") or "q"


def _wait(seconds: float) -> str:
    time.sleep(seconds)
    return ""
