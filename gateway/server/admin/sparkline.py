"""Draw sparklines: the data of SVG paths in a box of 300 by 48, one step for each value."""

from collections.abc import Iterator, Sequence

_WIDTH, _HEIGHT, _ROOM = 300.0, 48.0, 4.0  # room above the highest value
Values = Sequence[float | None]
_Point = tuple[float, float]


def line_path(values: Values, top: float) -> str:
    """Return a line with gaps where there is no value.  top: the value at the upper edge."""
    return " ".join(f"M{_joined(run if len(run) > 1 else _dash(*run))}" for run in _runs(values, top))


def area_path(values: Values, top: float) -> str:
    """Return the areas below the line."""
    return " ".join(
        f"M{_point((run[0][0], _HEIGHT))} {_joined(run)} {_point((run[-1][0], _HEIGHT))}z" for run in _runs(values, top)
    )


def bars_path(values: Values, top: float) -> str:
    """Return a bar for each value above zero."""
    return " ".join(
        f"M{_point(point)}V{_HEIGHT:g}" for run in _runs([one or None for one in values], top) for point in run
    )


def _runs(values: Values, top: float) -> Iterator[list[_Point]]:
    """Yield the points of neighboring values."""
    run: list[_Point] = []
    step = _WIDTH / max(1, len(values) - 1)
    for number, value in enumerate(values):
        if value is not None:
            run.append((number * step, _HEIGHT - (_HEIGHT - _ROOM) * value / (top or 1)))
        elif run:
            yield run
            run = []
    if run:
        yield run


def _dash(point: _Point) -> list[_Point]:
    """Return a short line that ends at a point without neighbors."""
    return [(max(0.0, point[0] - 4), point[1]), point]


def _point(point: _Point) -> str:
    return f"{point[0]:.0f},{point[1]:.1f}"


def _joined(run: Sequence[_Point]) -> str:
    return " ".join(map(_point, run))
