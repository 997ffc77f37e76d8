"""Format figures as one table."""

from collections.abc import Iterable, Sequence
from statistics import median

from msgspec import Struct


class Figure(Struct, frozen=True):
    """One row: the values of all rounds, the values without the gateway, and the upper limit."""

    group: str
    name: str
    unit: str
    values: tuple[float, ...]
    direct: tuple[float, ...] = ()
    wanted: float | None = None

    @property
    def value(self) -> float:
        """The median of the rounds."""
        return median(self.values)

    @property
    def verdict(self) -> str:
        """The result: "ok" or "over", or "" without a limit."""
        if self.wanted is None:
            return ""
        return "ok" if self.value <= self.wanted else "over"

    def as_json(self) -> dict[str, object]:
        """Return the row as data."""
        row: dict[str, object] = {"group": self.group, "name": self.name, "unit": self.unit, "value": self.value}
        row |= {"values": self.values, "direct": median(self.direct) if self.direct else None}
        return row | {"wanted": self.wanted, "verdict": self.verdict}


def table(figures: Iterable[Figure]) -> str:
    """Return the rows under one header, with a line between groups."""
    rows = [("figure", "unit", "measured", "direct", "wanted", "")]
    last = ""
    for figure in figures:
        if figure.group != last:
            rows.append(("",) * 6)
        last = figure.group
        rows.append(_cells(figure))
    return aligned(rows, "llrrrl")


def aligned(rows: Sequence[Sequence[str]], sides: str) -> str:
    """Return the cells in columns; sides: l or r for each."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join(_line(row, widths, sides).rstrip() for row in rows)


def _cells(figure: Figure) -> tuple[str, str, str, str, str, str]:
    direct = number(median(figure.direct)) if figure.direct else ""
    wanted = f"≤ {figure.wanted:g}" if figure.wanted is not None else ""
    return figure.name, figure.unit, number(figure.value), direct, wanted, figure.verdict


def _line(row: Sequence[str], widths: Sequence[int], sides: str) -> str:
    cells = zip(row, widths, sides, strict=True)
    return "  ".join(cell.ljust(width) if side == "l" else cell.rjust(width) for cell, width, side in cells)


def number(value: float) -> str:
    """Return a number with its significant digits."""
    if value >= 1000:
        return f"{value:,.0f}"
    return f"{value:.3g}" if value >= 100 else f"{value:.2f}"
