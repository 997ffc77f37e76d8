"""The table of outcomes: on the terminal, and as docs/reference/faults.md."""

from functools import partial

from faults import clients, life, matrix, rows, tools
from faults.ways import MESSAGES, PASSED, WAYS
from support.paths import ROOT

FILE = ROOT / "docs/reference/faults.md"
HEAD = """\
# Faults and their outcomes

`make faults` writes this page. It runs every row in every way of asking, over real sockets, and fails if a cell is not as it
has to be. The same rows are tests (`tests/project/test_faults.py`). There is one backend and no second attempt.

A cell shows the client's outcome: a status and the code of its error, or `200` and all of the backend's output. With
`200, error` and a code, the client gets the output so far, then the error, then a proper end of the body. The
outcome of the connection to the backend follows: `kept` for the next request, or closed so long after it was not needed any
more, or nothing if the backend closed it.

Each cell is also over in time, and a good answer follows over the same gateway. It leaves nothing behind: no task, no
descriptor, and in memory no object of the gateway and of its libraries. It also leaves no text or other data of such an
object, not even for the collector of cycles.

The code of a response that failed in the background, or in a WebSocket after content, is one of the few that the API has
for a `response`."""
SECTIONS = {
    "The backend": (rows.ROWS, matrix.cells, ""),
    "The backend, for a message": (
        rows.MESSAGES,
        partial(matrix.cells, ways=MESSAGES),
        "Errors of the Messages API have a type instead of a code.",
    ),
    "The backend, for an endpoint that is passed on": (
        rows.PASSED,
        partial(matrix.cells, ways=PASSED),
        "The request and the response are passed on in pieces. A stream of events ends in an event with the error.",
    ),
    "The client": (
        clients.ROWS,
        clients.cells,
        "A client that closes only its sending side counts as gone, as it does for nginx, Envoy and Go's server. From\n"
        "here it looks like one that has died. One that does not read holds its backend back.",
    ),
    "Tools that run at the gateway": (
        tools.ROWS,
        tools.cells,
        "Servers of tools (MCP), a service that searches, and approvals. The backend is well: its model continues, and the client has\n"
        "its answer. `told`: the model got the reason why its call failed, or a note that its result was cut. `asked`: the client\n"
        "was asked to approve it. A client that leaves takes its call with it, which was cancelled so long after that. Objects\n"
        "of the SDK for a session with a failing server wait for the collector of cycles.",
    ),
    "The gateway": (life.ROWS, life.cells, ""),
}


async def section(title, on_line=lambda _: None):
    """The lines of its table, each said as soon as it is there, and the names of the rows that are not as they have to be."""
    all, cells, about = SECTIONS[title]
    lines, wrong = [], []
    ways = {"message": MESSAGES, "passed on": PASSED}.get(all[0].name.partition(":")[0], WAYS)
    for row in all:
        found = await cells(row)
        lines.append(line(row.name, found, ways))
        on_line(lines[-1])
        wrong += [f"{row.name} · {name}: {cell}" for name, cell in found.items() if bad(cell)]
    return [f"## {title}", "", *filter(None, [about and f"{about}\n"]), *header(ways), *lines, ""], wrong


def bad(cell):
    return cell.wrong or (cell.seconds or 0) > matrix.AT_ONCE


def header(ways=WAYS):
    return [f"| | {' | '.join(way.name for way in ways)} |", f"|---|{'---|' * len(ways)}"]


def line(name, found, ways=WAYS):
    return f"| {name} | {' | '.join(str(found.get(way.name, '–')) for way in ways)} |"


def names():
    return [row.name for all, *_ in SECTIONS.values() for row in all]
