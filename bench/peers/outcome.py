"""Summarize a race: rows with a value per program, the limits of the gateway, and the results."""

from collections.abc import Iterator, Sequence
from datetime import date
from statistics import median

from msgspec import Struct

from bench.figures import aligned, number
from bench.peers.heats import ADDED, CPU, IDLE, LATENCY, START, TWO, WANTS, Want
from bench.peers.programs import GATEWAY_NAME, TWO_WORKERS
from bench.peers.race import DIRECT, Race, Values
from bench.processes import machine

_LAST = (ADDED, START, IDLE, TWO)


class Line(Struct, frozen=True):
    """One row: the median per program, and the limit for the gateway."""

    name: str
    unit: str
    values: dict[str, float]
    wanted: str = ""
    verdict: str = ""


class Outcome(Struct, frozen=True):
    """The summary of a race."""

    date: str
    machine: str
    versions: dict[str, str]
    lines: list[Line]
    notes: list[str]

    @property
    def columns(self) -> list[str]:
        """The measured programs, in the order of the table."""
        return [name for name in (*self.versions, DIRECT) if name != TWO_WORKERS]


def outcome(race: Race) -> Outcome:
    """Return the summary of a race."""
    medians = {title: _medians(values) for title, values in race.rows.items()}
    derived = _derived(medians)
    units = {**race.units, ADDED: "ms", TWO: "×"}
    lines = [_line(title, units[title], {**medians, **derived}) for title in (*race.rows, *derived)]
    return Outcome(date.today().isoformat(), machine(), race.versions, sorted(lines, key=_place), race.notes)


def _medians(values: Values) -> dict[str, float]:
    return {name: median(each) for name, each in values.items()}


def _derived(medians: dict[str, dict[str, float]]) -> dict[str, dict[str, float]]:
    """Return the rows that are computed from others."""
    latency, cpu = medians.get(LATENCY, {}), medians.get(CPU, {})
    rows = {}
    if DIRECT in latency:
        rows[ADDED] = {name: value - latency[DIRECT] for name, value in latency.items() if name != DIRECT}
    if TWO_WORKERS in cpu and GATEWAY_NAME in cpu:
        rows[TWO] = {GATEWAY_NAME: cpu[TWO_WORKERS] / cpu[GATEWAY_NAME]}
    return rows


def _line(title: str, unit: str, medians: dict[str, dict[str, float]]) -> Line:
    values = {name: value for name, value in medians[title].items() if name != TWO_WORKERS}
    want = WANTS.get(title)
    if want is None:
        return Line(title, unit, values)
    return Line(title, unit, values, str(want), _verdict(values, want, medians.get(want.row, values)))


def _verdict(values: dict[str, float], want: Want, others: dict[str, float]) -> str:
    """Return "ok" or "over", with the factor if the limit is one."""
    if GATEWAY_NAME not in values or (want.of and want.of not in others):
        return "not measured"
    reached = values[GATEWAY_NAME] / (others[want.of] if want.of else 1)
    verdict = "ok" if reached <= want.most else "over"
    return f"{verdict}: {reached:.2f} ×" if want.of else verdict


def _place(line: Line) -> int:
    """Return the sort key of a row: scenarios keep their order, the other rows follow."""
    return _LAST.index(line.name) if line.name in _LAST else -1


def text(found: Outcome) -> str:
    """Return the table for a terminal, with date, machine, versions and notes."""
    rows = [("", "unit", *found.columns, "wanted", ""), *_cells(found)]
    versions = ", ".join(f"{name} {version}" for name, version in found.versions.items() if name != TWO_WORKERS)
    table = aligned(rows, "ll" + "r" * len(found.columns) + "ll")
    return "\n".join([table, "", f"{found.date}, {found.machine}", versions, *found.notes])


def markdown(found: Outcome) -> str:
    """Return the summary for a document."""
    rows: Sequence[tuple[str, ...]] = [
        ("", "unit", *found.columns, "wanted", "reached"),
        ("---", "---", *["---:"] * len(found.columns), "---", "---"),
        *_cells(found),
    ]
    versions = ", ".join(f"{name} {version}" for name, version in found.versions.items() if name != TWO_WORKERS)
    lines = [f"{found.date}; {found.machine}; {versions}.", "", *("| " + " | ".join(row) + " |" for row in rows)]
    return "\n".join([*lines, *(["", *(f"- {note.splitlines()[0]}" for note in found.notes)] if found.notes else [])])


def _cells(found: Outcome) -> Iterator[tuple[str, ...]]:
    for line in found.lines:
        values = (number(line.values[name]) if name in line.values else "" for name in found.columns)
        yield (line.name, line.unit, *values, line.wanted, line.verdict)
