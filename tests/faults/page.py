"""The table of outcomes: on the terminal, and as docs/faults.md."""

from faults import clients, life, matrix, rows, tools
from faults.ways import WAYS
from support.paths import ROOT

FILE = ROOT / "docs/faults.md"
HEAD = """\
# What goes wrong, and what comes of it

Made by `make faults`, which runs every row in every way of asking, over real sockets, and fails where a cell is not as
it has to be; the same rows are tests (`tests/project/test_faults.py`). There is one backend and no second attempt.

A cell says what the client has: a status and the code of its error; `200`, and all that the backend had said; or
`200, error` and a code: all that had come before, then the error, then a proper end of the body. Behind it is what became
of the connection to the backend: `kept` for the next request, or closed so long after it was not needed any more;
nothing where the backend closed it. Each cell has also been seen to be over in time, to be followed by a good answer
over the same gateway, and to leave nothing behind: no task, no descriptor, and in memory no object of the gateway and of
what it is made with, nor a text or another piece of data that such an object holds, not even for the collector of cycles.

The code of a response that failed in the background, or in a WebSocket after content, is one of the few that the API has
for a `response`."""
SECTIONS = {
    "The backend": (rows.ROWS, matrix.cells, ""),
    "The client": (
        clients.ROWS,
        clients.cells,
        "A client that closes only its sending side counts as gone, as it does for nginx, Envoy and Go's server: from here\n"
        "it looks like one that has died. One that does not read holds its backend back.",
    ),
    "Tools that run at the gateway": (
        tools.ROWS,
        tools.cells,
        "Servers of tools (MCP), a service that searches, and approvals. The backend is well: its model goes on, and the client has\n"
        "its answer. `told`: the model was told why its call came to nothing, or that its result was cut; `asked`: the client was\n"
        "asked to approve it. A client that leaves takes its call with it, which was broken off so long after that. What the SDK\n"
        "makes of a session with a server that fails waits for the collector of cycles.",
    ),
    "The gateway": (life.ROWS, life.cells, ""),
}


async def section(title, said=lambda _: None):
    """The lines of its table, each said as soon as it is there, and the names of the rows that are not as they have to be."""
    all, cells, about = SECTIONS[title]
    lines, wrong = [], []
    for row in all:
        found = await cells(row)
        lines.append(line(row.name, found))
        said(lines[-1])
        wrong += [f"{row.name} · {name}: {cell}" for name, cell in found.items() if bad(cell)]
    return [f"## {title}", "", *filter(None, [about and f"{about}\n"]), *HEADER, *lines, ""], wrong


def bad(cell):
    return cell.wrong or (cell.seconds or 0) > matrix.AT_ONCE


HEADER = [f"| | {' | '.join(way.name for way in WAYS)} |", f"|---|{'---|' * len(WAYS)}"]


def line(name, found):
    return f"| {name} | {' | '.join(str(found.get(way.name, '–')) for way in WAYS)} |"


def names():
    return [row.name for all, *_ in SECTIONS.values() for row in all]
