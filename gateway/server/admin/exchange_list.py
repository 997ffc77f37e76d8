"""List the requests of all workers for the inspector, with filters."""

from collections.abc import Collection, Container, Iterable, Mapping
from datetime import UTC, datetime

from msgspec import Struct
from msgspec.structs import asdict

from gateway.errors import BadRequest
from gateway.recording import ExchangeSummary
from gateway.server.admin.overview_model import WorkersView

_LIMIT, _MAX = 100, 1000  # requests on a page


class ExchangeRow(ExchangeSummary, frozen=True):
    """A request in the list.  kept: this worker has its entries or a recording, so the inspector can show it."""

    kept: bool = False


class ExchangePage(Struct, frozen=True):
    """A page of the list.

    total: all requests that are known; matching: those that fit the filters.
    keys, models: the values of the known requests, for filters.
    unreadable: the number of recordings that are skipped.
    """

    exchanges: list[ExchangeRow]
    total: int
    matching: int
    keys: list[str]
    models: list[str]
    workers: WorkersView
    unreadable: int = 0


class ExchangeFilter(Struct, frozen=True):
    """The conditions for a listed request; an empty value fits all.

    q: a part of its prompt, its id, an error, a tool, a model or a key, in any case.
    status: `live`, a number, a class like `4xx`, or `error`; model: a part of its name.
    warning: the code of a warning, or `any`; since, before: bounds of its start in ISO 8601, the latter exclusive.
    """

    q: str = ""
    key: str = ""
    endpoint: str = ""
    status: str = ""
    model: str = ""
    backend: str = ""
    warning: str = ""
    since: str = ""
    before: str = ""
    limit: int = _LIMIT

    def fits(self, one: ExchangeSummary) -> bool:
        """Return True if a request fits all filters."""
        return (
            self.model in one.model
            and self.key in ("", one.key)
            and self.endpoint in ("", one.endpoint)
            and self.backend in ("", one.backend)
            and (not self.status or self.status in _states(one))
            and (not self.warning or self.warning in _codes(one))
            and self.since <= one.started
            and (not self.before or (one.started < self.before and not one.live))
            and (not self.q or any(self.q in text.lower() for text in _texts(one)))
        )


def exchange_filter(query: Mapping[str, str]) -> ExchangeFilter:
    """Return the filter of a query.  Raises BadRequest."""
    names = ("key", "endpoint", "status", "model", "backend")
    return ExchangeFilter(
        **{name: query.get(name, "") for name in names},
        q=query.get("q", "").strip().lower(),
        warning=query.get("warning") or query.get("code", ""),
        since=_time(query, "since"),
        before=_time(query, "before"),
        limit=_limit(query.get("limit", "")),
    )


def exchange_page(
    several: Iterable[ExchangeSummary],
    wanted: ExchangeFilter,
    kept: Container[tuple[str, str]],
    workers: WorkersView,
    unreadable: int = 0,
) -> ExchangePage:
    """Return the running requests, then the finished ones, each the newest first.

    several: of recordings and of all workers, which win over recordings if they come later.
    kept: id and start of the requests whose entries this worker has or can read.
    """
    known = sorted({(one.id, one.started): one for one in several}.values(), key=lambda one: one.started, reverse=True)
    found = sorted(filter(wanted.fits, known), key=lambda one: not one.live)
    return ExchangePage(
        [ExchangeRow(**asdict(one), kept=(one.id, one.started) in kept) for one in found[: wanted.limit]],
        total=len(known),
        matching=len(found),
        keys=_values(one.key for one in known),
        models=_values(one.model for one in known),
        workers=workers,
        unreadable=unreadable,
    )


def _states(one: ExchangeSummary) -> Collection[str]:
    if one.status is None:
        return ("live",)
    return str(one.status), f"{one.status // 100}xx", "error" if one.status >= 400 else ""


def _codes(one: ExchangeSummary) -> Collection[str]:
    return {entry.partition(":")[0] for entry in one.ledger} | ({"any"} if one.ledger else set())


def _texts(one: ExchangeSummary) -> Iterable[str]:
    return one.prompt, one.id, one.error or "", one.model, one.key, *one.tools_called


def _values(several: Iterable[str]) -> list[str]:
    return sorted({*filter(None, several)})


def _time(query: Mapping[str, str], name: str) -> str:
    """Return a time as summaries have it, "" for none."""
    if not (text := query.get(name, "")):
        return ""
    try:
        time = datetime.fromisoformat(text.replace(" ", "+"))  # a plus sign that was not escaped
    except ValueError:
        raise BadRequest(f"'{name}' must be a time like 2026-01-31T12:00:00+00:00.", param=name) from None
    return time.astimezone(UTC).isoformat(timespec="milliseconds")


def _limit(text: str) -> int:
    if not text:
        return _LIMIT
    if not (text.isascii() and text.isdecimal() and 1 <= int(text[:9]) <= _MAX):
        raise BadRequest(f"'limit' must be a number from 1 to {_MAX}.", param="limit")
    return int(text)
