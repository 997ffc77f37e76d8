"""`python -m bench.peers`: compare the gateway with other programs on this machine, as one table."""

import argparse
import signal
import sys
import tempfile
from pathlib import Path

import msgspec

from bench import document
from bench.peers import plot
from bench.peers.heats import heats
from bench.peers.outcome import Outcome, markdown, outcome, text
from bench.peers.programs import PEERS
from bench.peers.race import Race
from bench.processes import NotReady, raise_file_limit
from bench.rounds import Track

_NAMES = [peer.name for peer in PEERS]


def main() -> int:
    """Run the comparison.  Returns 0 if it ran, even without some programs; 1 if the mock did not start."""
    options = _options()
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # ends all processes as at Ctrl-C
    raise_file_limit()
    peers = [peer for peer in PEERS if peer.name in (options.peer or _NAMES)]
    chosen = [heat for heat in heats(options.quick) if options.only in heat.scenario.name]
    try:
        with tempfile.TemporaryDirectory(prefix="bench-") as folder:
            race = Race(Track(Path(folder), "", ""))
            race.run(peers, chosen, options.rounds or (1 if options.quick else 3))
    except NotReady as problem:
        print(f"\n{problem}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("\nstopped", file=sys.stderr)
        return 130
    found = outcome(race)
    print(text(found))
    if options.write:
        _write(found)
    return 0


def _write(found: Outcome) -> None:
    """Write the run, its table and its picture into docs."""
    plot.RUN.write_bytes(msgspec.json.format(msgspec.json.encode(found), indent=1) + b"\n")
    document.put("peers", markdown(found))
    plot.draw(found)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.peers", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="one short round")
    parser.add_argument("--rounds", type=int, default=0, help="how often; the median is shown (3, quick: 1)")
    parser.add_argument("--peer", action="append", choices=_NAMES, help="only these")
    parser.add_argument("--only", default="", metavar="TEXT", help="only the scenarios with this in their name")
    parser.add_argument("--write", action="store_true", help="put it into docs/explanation/performance.md")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
