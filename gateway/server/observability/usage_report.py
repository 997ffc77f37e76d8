"""Report the usage of the store, for `gateway usage` and GET /admin/usage."""

from collections.abc import Iterable, Sequence
from datetime import date
from typing import Any, get_args

from msgspec import Struct

from gateway.errors import BadRequest
from gateway.store.records import UsageColumn, UsageSums

NOT_KEPT = "The store keeps no usage. Set store.url in the configuration, and leave store.usage at true."
_DAYS = 30  # of a report whose first day is not given
_COLUMNS: tuple[UsageColumn, ...] = get_args(UsageColumn)
_EPOCH = date(1970, 1, 1).toordinal()


class UsageQuery(Struct, frozen=True):
    """The usage that an operator wants: from one day to another (UTC), both included, by these columns."""

    since: date
    until: date
    by: tuple[UsageColumn, ...]

    @property
    def days(self) -> tuple[int, int]:
        """The first and the last day, in days since 1970-01-01."""
        return self.since.toordinal() - _EPOCH, self.until.toordinal() - _EPOCH


def parse_query(since: str | None, until: str | None, by: Sequence[str], today: date) -> UsageQuery:
    """Return the query of these parameters: by default the last 30 days, by key.  Raises BadRequest."""
    last = _day("until", until) if until is not None else today
    first = _day("since", since) if since is not None else date.fromordinal(max(1, last.toordinal() - _DAYS + 1))
    if first > last:
        raise BadRequest(f"'since' ({first}) is after 'until' ({last}).", code="invalid_value", param="since")
    return UsageQuery(first, last, tuple(dict.fromkeys(map(_column, by))) or ("key",))


def usage_report(query: UsageQuery, rows: Iterable[tuple[Sequence[Any], UsageSums]]) -> dict[str, Any]:
    """Return the report as JSON.  rows: values of the columns, and their sums."""
    data, total = [], UsageSums()
    for values, sums in rows:
        total.add(sums)
        shown = {name: shown_value(name, value) for name, value in zip(query.by, values, strict=True)}
        data.append(shown | _amounts(sums))
    head = {"object": "usage", "since": str(query.since), "until": str(query.until), "by": query.by}
    return {**head, "data": data, "total": _amounts(total)}


def _day(name: str, text: str) -> date:
    try:
        return date.fromisoformat(text)
    except ValueError:
        message = f"'{name}' should be a date like 2026-01-31, not '{text}'."
        raise BadRequest(message, code="invalid_value", param=name) from None


def _column(text: str) -> UsageColumn:
    for column in _COLUMNS:
        if text == column:
            return column
    raise BadRequest(f"'by' should be day, key or model, not '{text}'.", code="invalid_value", param="by")


def shown_value(name: UsageColumn, value: Any) -> str | None:  # noqa: ANN401 - a number of a day, or a name
    """Return the value of a column for people: a date, or a name; None for a request without a key."""
    if name == "day":
        return str(date.fromordinal(value + _EPOCH))
    return value or None


def _amounts(sums: UsageSums) -> dict[str, float]:
    return {
        "requests": sums.requests,
        "input_tokens": sums.input_tokens,
        "cached_tokens": sums.cached_tokens,
        "output_tokens": sums.output_tokens,
        "seconds": sums.milliseconds / 1000,
    }
