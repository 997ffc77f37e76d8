"""Arrange the usage of the store for the page `/usage`."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import date, timedelta
from typing import Any

from msgspec import Struct

from gateway.config.models import PriceSettings
from gateway.errors import BadRequest
from gateway.server.observability.usage import UsageQuery, parse_query, shown_value
from gateway.store.records import UsageColumn, UsageSums

PERIODS = (7, 30, 90)  # days that the page offers
_PERIOD = 30
_ROWS = 200  # of the table; the last one sums the rest
_MILLION = 1_000_000


class UsageLine(Struct):
    """A row of the table.  cost: None without a price; share: of the largest output of a row, in percent."""

    name: str
    sums: UsageSums
    cost: float | None = None
    share: int = 0

    def add(self, sums: UsageSums, price: PriceSettings | None) -> None:
        """Add the use of a model."""
        self.sums.add(sums)
        if price:
            self.cost = (self.cost or 0) + _cost(sums, price)


class UsageTable(Struct, frozen=True):
    """The page.  priced: a model has a price; unpriced: the used models without one."""

    query: UsageQuery
    days: int
    lines: list[UsageLine]
    total: UsageLine
    priced: bool
    unpriced: list[str]


def parse_page_query(days: str | None, by: str | None, today: date) -> tuple[int, UsageQuery]:
    """Return the number of days until today, and the query, of the parameters of the page.  Raises BadRequest."""
    if days is not None and days not in map(str, PERIODS):
        message = f"'days' should be {', '.join(map(str, PERIODS[:-1]))} or {PERIODS[-1]}, not '{days}'."
        raise BadRequest(message, code="invalid_value", param="days")
    period = int(days or _PERIOD)
    since = today - timedelta(days=period - 1)
    return period, parse_query(str(since), str(today), [by] if by else (), today)


def columns_of(query: UsageQuery) -> tuple[UsageColumn, ...]:
    """Return the columns to read: the one of the page, and the model, which has the price."""
    return tuple(dict.fromkeys((*query.by, "model")))


def usage_table(
    days: int,
    query: UsageQuery,
    rows: Iterable[tuple[Sequence[Any], UsageSums]],
    prices: Mapping[str, PriceSettings],
) -> UsageTable:
    """Return the page.  rows: values of `columns_of` the query and their sums; prices: by model."""
    (column,) = query.by
    lines: dict[str, UsageLine] = {}
    total, models = UsageLine("Total", UsageSums()), set[str]()
    for values, sums in rows:
        name, price = shown_value(column, values[0]) or "–", prices.get(values[-1])
        line = lines.setdefault(name, UsageLine(name, UsageSums()))
        for one in line, total:
            one.add(sums, price)
        if not price:
            models.add(values[-1] or "–")
    return UsageTable(query, days, _sorted(column, lines.values()), total, bool(prices), sorted(models))


def _sorted(column: UsageColumn, lines: Iterable[UsageLine]) -> list[UsageLine]:
    """Return the rows, days from the newest on, others by their output; many are cut, with one for the rest."""
    top = max((line.sums.output_tokens for line in lines), default=0) or 1
    for line in lines:
        line.share = round(100 * line.sums.output_tokens / top)
    if column == "day":
        return sorted(lines, key=lambda line: line.name, reverse=True)
    ordered = sorted(lines, key=lambda line: (-line.sums.output_tokens, line.name))
    kept, rest = ordered[:_ROWS], ordered[_ROWS:]
    return [*kept, *([_summed(rest)] if rest else [])]


def _summed(lines: Sequence[UsageLine]) -> UsageLine:
    line = UsageLine(f"{len(lines):,} more", UsageSums())
    for one in lines:
        line.sums.add(one.sums)
        if one.cost is not None:
            line.cost = (line.cost or 0) + one.cost
    return line


def _cost(sums: UsageSums, price: PriceSettings) -> float:
    fresh = sums.input_tokens - sums.cached_tokens
    return (fresh * price.input + sums.cached_tokens * price.of_cached + sums.output_tokens * price.output) / _MILLION
