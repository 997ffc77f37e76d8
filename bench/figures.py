"""Figures and the one table of them."""

from collections.abc import Iterable
from statistics import median

from msgspec import Struct


class Figure(Struct, frozen=True):
    """One row: the values of all rounds, what the direct way gives, and the most that is wanted."""

    group: str
    name: str
    unit: str
    values: tuple[float, ...]
    direct: tuple[float, ...] = ()
    wanted: float | None = None

    @property
    def value(self) -> float:
        return median(self.values)

    @property
    def verdict(self) -> str:
        if self.wanted is None:
            return ""
        return "ok" if self.value <= self.wanted else "over"

    def as_json(self) -> dict[str, object]:
        row: dict[str, object] = {"group": self.group, "name": self.name, "unit": self.unit, "value": self.value}
        row |= {"values": self.values, "direct": median(self.direct) if self.direct else None}
        return row | {"wanted": self.wanted, "verdict": self.verdict}


def table(figures: Iterable[Figure]) -> str:
    """The rows under one head, with a line between groups."""
    rows = [("figure", "unit", "measured", "direct", "wanted", "")]
    last = ""
    for figure in figures:
        if figure.group != last:
            rows.append(("",) * 6)
        last = figure.group
        rows.append(_cells(figure))
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join(_line(row, widths).rstrip() for row in rows)


def _cells(figure: Figure) -> tuple[str, str, str, str, str, str]:
    direct = _number(median(figure.direct)) if figure.direct else ""
    wanted = f"≤ {figure.wanted:g}" if figure.wanted is not None else ""
    return figure.name, figure.unit, _number(figure.value), direct, wanted, figure.verdict


def _line(row: tuple[str, ...], widths: list[int]) -> str:
    name, unit, *numbers, verdict = row
    cells = [name.ljust(widths[0]), unit.ljust(widths[1])]
    cells += [number.rjust(width) for number, width in zip(numbers, widths[2:5], strict=True)]
    return "  ".join([*cells, verdict])


def _number(value: float) -> str:
    if value >= 1000:
        return f"{value:,.0f}"
    return f"{value:.3g}" if value >= 100 else f"{value:.2f}"
