"""Show the overview of a gateway in a terminal, once or repeatedly.

Control characters are removed from all text, since clients and backends choose it.
"""

import os
import select
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from time import localtime, strftime

import httpx
from msgspec import MsgspecError, json
from rich.box import SIMPLE_HEAD
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from gateway.server.admin.overview_model import BackendView, ModelView, Overview, format_duration
from gateway.server.observability.snapshot import RequestSnapshot
from gateway.server.upstream.failure_text import cause_text, end_sentence

_ERRORS = 5
_REQUESTS = 20
_NUMBERS = frozenset(
    ("running", "queued", "tokens/s", "requests/s", "context", "began", "first token", "duration", "in", "out")
)
_STATES = {"healthy": "green", "degraded": "yellow", "unreachable": "red"}
TableRow = Sequence[str | Text]
_PATH = "/admin/overview"
_SECONDS = 10.0  # for a response
_WIDE = 160  # columns, if the output is no terminal
ReadKey = Callable[[float], str]  # seconds → the key that was pressed meanwhile, or ""
_FORBIDDEN = "The gateway at {} requires an API key with the scope admin (--key or GATEWAY_KEY): HTTP {}."


def render_tables(seen: Overview, root: str, problem: str = "") -> RenderableType:
    """Return the overview as tables.  problem: why the overview is out of date."""
    requests = "Last requests" if seen.workers.heard == seen.workers.configured else "Last requests of some workers"
    return Group(
        _head(seen, root),
        *([Text(strip_control_characters(problem), "bold red")] if problem else []),
        _table("Backends", ("backend", "kind", "state", "running", "queued", "tokens/s", "requests/s", "last failure"),
               (_server(seen, one) for one in seen.backends)),
        _table("Models", ("model", "context", "running", "tokens/s", "requests/s", "backend: format"),
               map(_model, seen.models)),
        _table("Last errors", ("began", "status", "error", "model", "backend", "request"),
               (_error(seen, one) for one in seen.errors[:_ERRORS])),
        _table(requests,
               ("began", "status", "model", "backend", "format", "first token", "duration", "in", "out", "request"),
               (_request(seen, one) for one in seen.requests[:_REQUESTS])),
    )  # fmt: skip


def strip_control_characters(text: str) -> str:
    """Replace all characters that could control the terminal."""
    return "".join(one if one.isprintable() else "\N{REPLACEMENT CHARACTER}" for one in text)


def _head(seen: Overview, root: str) -> Text:
    pace, time = seen.pace, strftime("%H:%M:%S", localtime(seen.time))
    return Text.assemble(
        (f"gateway {strip_control_characters(seen.version)}", "bold"),
        f" at {strip_control_characters(root)}, {time}: {pace.in_flight} running, ",
        f"{pace.requests_per_second:.1f} requests/s, {pace.tokens_per_second:.0f} tokens/s",
    )


def _table(title: str, columns: Sequence[str], rows: Iterable[TableRow]) -> Table:
    table = Table(title=title, title_justify="left", title_style="bold", box=SIMPLE_HEAD, pad_edge=False)
    for column in columns:
        table.add_column(column, justify="right" if column in _NUMBERS else "left", overflow="fold")
    for row in rows:
        table.add_row(*(one if isinstance(one, Text) else Text(strip_control_characters(one)) for one in row))
    return table


def _server(seen: Overview, one: BackendView) -> TableRow:
    of_all = f" of {one.concurrent}" if one.concurrent else ""
    failure = one.last_failure
    failed = (
        f"{failure.status} {failure.code or ''} {format_duration(seen.time - failure.time)} ago" if failure else "–"
    )
    return (
        one.name, one.kind, _state(one), f"{one.pace.in_flight}{of_all}", f"{one.queued}",
        f"{one.pace.tokens_per_second:.0f}", f"{one.pace.requests_per_second:.1f}", failed,
    )  # fmt: skip


def _state(one: BackendView) -> Text:
    text = f"{one.state}: {one.cause}" if one.cause else one.state
    return Text(strip_control_characters(text), _STATES.get(one.state, ""))


def _model(one: ModelView) -> TableRow:
    return (
        one.id, f"{one.context_length or '–'}", f"{one.pace.in_flight}", f"{one.pace.tokens_per_second:.0f}",
        f"{one.pace.requests_per_second:.1f}", ", ".join(f"{place.backend}: {place.format}" for place in one.places),
    )  # fmt: skip


def _error(seen: Overview, one: RequestSnapshot) -> TableRow:
    return _ago(seen, one), f"{one.status}", one.error or "–", one.model or "–", one.backend or "–", one.id


def _request(seen: Overview, one: RequestSnapshot) -> TableRow:
    first = "–" if one.first_content is None else format_duration(one.first_content)
    return (
        _ago(seen, one), _status(one), one.model or "–", one.backend or "–", one.format or "–", first,
        format_duration(one.duration), f"{one.input_tokens}", f"{one.output_tokens}", one.id,
    )  # fmt: skip


def _status(one: RequestSnapshot) -> Text:
    if one.status is None:
        return Text("running", "cyan")
    return Text(f"{one.status}", "green" if one.status < 400 else "red")


def _ago(seen: Overview, one: RequestSnapshot) -> str:
    return f"{format_duration(max(0.0, seen.time - one.arrived))} ago"


class OverviewUnavailable(Exception):
    """The overview is not available; the text says why.  mine: the caller can change that."""

    def __init__(self, message: str, *, mine: bool = False) -> None:
        super().__init__(message)
        self.mine = mine


class OverviewClient:
    """An HTTP client for the overview of one gateway."""

    def __init__(self, root: str, key: str | None, transport: httpx.BaseTransport | None = None) -> None:
        self.root = root.rstrip("/").removesuffix("/v1")
        headers = {b"authorization": f"Bearer {key.strip()}".encode()} if key else {}
        self._http = httpx.Client(headers=headers, timeout=_SECONDS, trust_env=False, transport=transport)

    def ask(self) -> Overview:
        """Fetch the overview.  Raises OverviewUnavailable."""
        try:
            answer = self._http.get(self.root + _PATH)
        except (httpx.InvalidURL, httpx.UnsupportedProtocol):
            raise OverviewUnavailable(
                f"{self.root!r} is not the URL of a gateway, like http://127.0.0.1:8900.", mine=True
            ) from None
        except httpx.LocalProtocolError:
            raise OverviewUnavailable("The API key contains control characters.", mine=True) from None
        except httpx.TimeoutException:
            raise OverviewUnavailable(f"No gateway responds at {self.root} within {_SECONDS:g} s.") from None
        except httpx.HTTPError as error:
            cause = end_sentence(cause_text(error, server="gateway", program="it"))
            raise OverviewUnavailable(f"No gateway responds at {self.root}: {cause}") from None
        if answer.status_code in (401, 403):
            raise OverviewUnavailable(_FORBIDDEN.format(self.root, answer.status_code), mine=True)
        try:
            answer.raise_for_status()
            return json.decode(answer.content, type=Overview)
        except (httpx.HTTPStatusError, MsgspecError):
            raise OverviewUnavailable(
                f"The server at {self.root} is not a gateway with an overview: HTTP {answer.status_code}."
            ) from None

    def close(self) -> None:
        """Close the connections."""
        self._http.close()


def show_once(gateway: OverviewClient, console: Console) -> None:
    """Print the overview once.  Raises OverviewUnavailable."""
    console.print(render_tables(gateway.ask(), gateway.root))


def watch(gateway: OverviewClient, console: Console, press: ReadKey, seconds: float) -> None:
    """Show the overview until `q` is pressed.

    Raises OverviewUnavailable if the first fetch fails.  Later failures are shown with the last overview.
    """
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
    """Return a console that has a width even if the output is no terminal."""
    console = Console()
    return console if console.is_terminal else Console(width=_WIDE)


@contextmanager
def keyboard() -> Iterator[ReadKey]:
    """Read single keys within the block; without a terminal the function only waits and returns ""."""
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
    """Wait for a key.  The end of the input counts as `q`: the terminal is gone."""
    if not select.select([file], [], [], seconds)[0]:
        return ""
    return os.read(file, 1).decode(errors="replace") or "q"


def _wait(seconds: float) -> str:
    time.sleep(seconds)
    return ""
