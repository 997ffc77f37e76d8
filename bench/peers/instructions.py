"""`python -m bench.peers.instructions`: count the instructions of requests and lines, in the gateway and in smg.

Both run under callgrind, in front of the mock, and get the same traffic in the same run.  The counts do not depend on
the load of the machine.  They are within 2 % from start to start, smg's paced line within 8 %, so the median of three
starts counts.  The gateway stores no usage: it writes once a second, and a second has fifty times fewer requests than
without callgrind.  It needs valgrind, and takes some seven minutes.
"""

import argparse
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import date
from pathlib import Path
from statistics import median

from msgspec import Struct
from msgspec.structs import replace

from bench import document, traffic
from bench.figures import aligned
from bench.instructions import summary
from bench.peers.programs import GATEWAY_NAME, PEERS, SMG, Peer, prepare
from bench.processes import NotReady, machine
from bench.rounds import Server, Track, Wrong, say
from bench.traffic import RESPONSES, Traffic

_TOOL = "env PYTHONHASHSEED=0 valgrind --tool=callgrind --callgrind-out-file={folder}/{port}.callgrind "
_START_SECONDS, _DUMP_SECONDS = 180.0, 60.0
_IDLE_SECONDS = 2.0
_WARM = 2
_STARTS = 3


class Unit(Struct, frozen=True):
    """A request or a line of its response.

    most: the limit for the gateway, as a multiple of smg's count for the unit `of`; "": the same.
    """

    name: str
    traffic: Traffic
    most: float
    of: str = ""


_BURST = Traffic("mock", "m=plain,n=200", streams=1, requests=20)
UNITS = (
    Unit("whole answer", Traffic("mock", "m=plain,n=50", 1, 40, stream=False), 1.0),
    Unit("stream of one token", Traffic("mock", "m=plain,n=1", 1, 40), 1.2),
    Unit("… on a new connection", Traffic("mock", "m=plain,n=1", 1, 40, own=True), 1.2),
    Unit("burst line", _BURST, 0.85),
    Unit("paced line, start included", Traffic("mock", "m=plain,n=100,p=50", 8, 8, ramp_ms=50), 1.35),
    Unit("delta of a response", replace(_BURST, path=RESPONSES), 1.1, "burst line"),
)
_OWN = frozenset({RESPONSES})  # paths at which smg does other work

Counts = dict[str, float]  # by the name of the unit


class Row(Struct, frozen=True):
    """A unit with its instructions."""

    unit: Unit
    ours: float
    theirs: float

    @property
    def ratio(self) -> float:
        """The instructions of the gateway as a multiple of smg's."""
        return self.ours / self.theirs

    def cells(self) -> tuple[str, ...]:
        """Return the row of the table."""
        verdict = "ok" if self.ratio <= self.unit.most else "over"
        wanted = f"≤ {self.unit.most:g}" + (f" × smg's {self.unit.of}" if self.unit.of else "")
        return self.unit.name, f"{self.ours:,.0f}", f"{self.theirs:,.0f}", f"{self.ratio:.2f}", wanted, verdict


def rows(ours: Counts, theirs: Counts) -> list[Row]:
    """Return the units that both have."""
    return [Row(unit, ours[unit.name], theirs[unit.of or unit.name]) for unit in UNITS]


_HEAD = ("instructions", GATEWAY_NAME, SMG, "ratio", "wanted", "reached")


def markdown(found: Sequence[Row], versions: str) -> str:
    """Return the table for a document."""
    cells = (_HEAD, ("---", "---:", "---:", "---:", "---", "---"), *(row.cells() for row in found))
    table = "\n".join("| " + " | ".join(row) + " |" for row in cells)
    return f"{date.today().isoformat()}; {machine()}; {versions}.\n\n{table}"


def main() -> int:
    """Count, and print the table.  Returns 1 if a program could not be measured."""
    parser = argparse.ArgumentParser(prog="python -m bench.peers.instructions", description=__doc__)
    parser.add_argument("--write", action="store_true", help="put it into docs/explanation/performance.md")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # ends all processes as at Ctrl-C
    peers = {peer.name: peer for peer in PEERS}
    try:
        versions = ", ".join(f"{name} {prepare(peers[name])}" for name in (GATEWAY_NAME, SMG))
        found = rows(_counts(peers[GATEWAY_NAME], frozenset()), _counts(peers[SMG], _OWN))
    except (NotReady, Wrong, OSError, subprocess.SubprocessError) as problem:
        print(f"\n{problem}", file=sys.stderr)
        return 1
    say("")
    print(aligned([_HEAD, *(row.cells() for row in found)], "lrrrll"))
    if options.write:
        document.put("instructions", markdown(found, versions))
    return 0


def _counts(peer: Peer, without: frozenset[str]) -> Counts:
    """Return the instructions of each unit, the medians of several starts.  without: paths that are left out."""
    starts = [_counts_of_start(peer, without) for _ in range(_STARTS)]
    return {name: median(start[name] for start in starts) for name in starts[0]}


def _counts_of_start(peer: Peer, without: frozenset[str]) -> Counts:
    with tempfile.TemporaryDirectory(prefix="bench-") as folder, _started(peer, Path(folder)) as (server, counter):
        found = {}
        for unit in (unit for unit in UNITS if unit.traffic.path not in without):
            say(f"{peer.name}: {unit.name}")
            found[unit.name] = _count(unit.traffic, server, counter)
        return found


@contextmanager
def _started(peer: Peer, folder: Path) -> Iterator[tuple[Server, "Counter"]]:
    say(f"starting {peer.name}")
    track = Track(folder, "", "")
    config = peer.program.config.replace('url: "{store}"', 'url: "{store}", usage: false')
    program = replace(peer.program, command=_TOOL + peer.program.command, config=config, seconds=_START_SECONDS)
    with track.mock() as mock, track.started(program, mock) as server:
        yield server, Counter(server.pid, folder / f"{server.port}.callgrind")


def _count(load: Traffic, server: Server, counter: "Counter") -> float:
    """Return the instructions of a request, or of a line if it is a stream of many."""
    for _ in range(_WARM):  # Python specializes its instructions
        traffic.run(load, server.port)
    time.sleep(_IDLE_SECONDS)
    counter.count()
    time.sleep(_IDLE_SECONDS)
    idle = counter.count() / _IDLE_SECONDS
    begun = time.monotonic()
    report = traffic.run(load, server.port)
    count = counter.count() - idle * (time.monotonic() - begun)
    if report.ok < load.requests or report.failures:
        raise Wrong(f"{report.ok} of {load.requests} ended well; {report.err}")
    return count / (report.lines if report.lines > 10 * report.ok else report.ok)


class Counter:
    """The instructions of a program under callgrind."""

    def __init__(self, pid: int, out: Path) -> None:
        self._pid, self._out, self._dumps = pid, out, 0

    def count(self) -> int:
        """Return the instructions since the last call, of all threads."""
        command = ["callgrind_control", "--dump", str(self._pid)]
        subprocess.run(command, check=True, capture_output=True, timeout=_DUMP_SECONDS)
        self._dumps += 1
        return summary(self._out.with_suffix(f".callgrind.{self._dumps}"))


if __name__ == "__main__":
    sys.exit(main())
