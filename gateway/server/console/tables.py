"""The document at a terminal.  Whatever is anybody's word is shown as it is, and tells the terminal nothing."""

from collections.abc import Iterable, Sequence
from time import localtime, strftime

from rich.box import SIMPLE_HEAD
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from gateway.server.console.document import BackendView, ModelView, Overview, format_duration
from gateway.server.telemetry.sight import RequestSnapshot

_ERRORS = 5
_REQUESTS = 20
_NUMBERS = frozenset(
    ("in flight", "waiting", "tokens/s", "requests/s", "context", "when", "first", "took", "in", "out")
)
TableRow = Sequence[str | Text]


def render_tables(seen: Overview, root: str, problem: str = "") -> RenderableType:
    """problem: why it is not as it is now."""
    requests = "Recent requests" if seen.workers.heard == seen.workers.configured else "Recent requests of some workers"
    return Group(
        _head(seen, root),
        *([Text(strip_control_characters(problem), "bold red")] if problem else []),
        _table("Backends", ("name", "kind", "health", "in flight", "waiting", "tokens/s", "requests/s", "last failure"),
               (_server(seen, one) for one in seen.backends)),
        _table("Models", ("name", "context", "in flight", "tokens/s", "requests/s", "backend: format"),
               map(_model, seen.models)),
        _table("Recent errors", ("when", "status", "error", "model", "backend", "request"),
               (_error(seen, one) for one in seen.errors[:_ERRORS])),
        _table(requests, ("when", "status", "model", "backend", "format", "first", "took", "in", "out", "request"),
               (_request(seen, one) for one in seen.requests[:_REQUESTS])),
    )  # fmt: skip


def strip_control_characters(text: str) -> str:
    """Without what a terminal would obey."""
    return "".join(one if one.isprintable() else "\N{REPLACEMENT CHARACTER}" for one in text)


def _head(seen: Overview, root: str) -> Text:
    pace, time = seen.pace, strftime("%H:%M:%S", localtime(seen.time))
    return Text.assemble(
        (f"gateway {strip_control_characters(seen.version)}", "bold"),
        f" at {strip_control_characters(root)}, {time}: {pace.in_flight} in flight, ",
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
        one.name, one.kind, _health(one), f"{one.pace.in_flight}{of_all}", f"{one.queued}",
        f"{one.pace.tokens_per_second:.0f}", f"{one.pace.requests_per_second:.1f}", failed,
    )  # fmt: skip


def _health(one: BackendView) -> Text:
    if one.problem:
        return Text(strip_control_characters(one.problem), "red")
    if one.healthy:
        return Text("healthy", "green")
    return Text(f"{one.circuit}, {format_duration(one.back_in_seconds)}", "yellow")


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
        return Text("live", "cyan")
    return Text(f"{one.status}", "green" if one.status < 400 else "red")


def _ago(seen: Overview, one: RequestSnapshot) -> str:
    return format_duration(max(0.0, seen.time - one.arrived))
