"""`python -m bench`: what the gateway costs on this machine, as one table."""

import argparse
import json
import os
import platform
import resource
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

from bench import core, formats, store
from bench.figures import Figure, table
from bench.processes import NotReady
from bench.rounds import GATEWAY, Track, Wrong, measure
from bench.scenarios import scenarios

_GROUPS = ("whole", "burst", "paced", "first", "streams", "responses", "arguments", "core", "formats", "store")
_FILES = 8192  # 1000 streams have two sockets each in the gateway


def main() -> int:
    """0: measured; 1: something failed, and what it was; `over` in the table is no failure."""
    options = _options()
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # so that all is ended as at Ctrl-C
    _raise_file_limit()
    groups = options.only or _GROUPS
    try:
        figures, problems, doubts = _measure(groups, options)
    except (NotReady, Wrong, subprocess.SubprocessError) as problem:
        print(f"\n{problem}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("\nstopped", file=sys.stderr)
        return 130
    _print(figures, problems, doubts, options)
    return 1 if problems else 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="one short round")
    parser.add_argument("--only", action="append", metavar="NAME", choices=_GROUPS, help=", ".join(_GROUPS))
    parser.add_argument("--json", action="store_true", help="all values instead of the table")
    parser.add_argument("--rounds", type=int, default=0, help="how often; the median is shown (3, quick: 1)")
    parser.add_argument("--gateway", default=GATEWAY, metavar="COMMAND", help=f"what to measure (default: {GATEWAY})")
    parser.add_argument("--store", default="", metavar="URL", help="where it stores (default: an SQLite file)")
    return parser.parse_args()


def _raise_file_limit() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard == resource.RLIM_INFINITY or hard > soft:
        most = _FILES if hard == resource.RLIM_INFINITY else min(_FILES, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, most), hard))


def _measure(groups: tuple[str, ...], options: argparse.Namespace) -> tuple[list[Figure], list[str], list[str]]:
    chosen = [scenario for scenario in scenarios(options.quick) if scenario.group in groups]
    figures: list[Figure] = []
    problems: list[str] = []
    doubts: list[str] = []
    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        track = Track(Path(folder), options.gateway, options.store)
        if chosen:
            rounds = max(1, options.rounds or (1 if options.quick else 3))
            for result in measure(chosen, rounds, track):
                figures += result.figures()
                problems += result.problems()
                doubts += result.doubts()
    if "core" in groups:
        figures += core.figures(options.quick)
    if "formats" in groups:
        figures += formats.figures(options.quick)
    if "store" in groups:
        figures += store.figures(options.quick)
    return figures, problems, doubts


def _print(figures: list[Figure], problems: list[str], doubts: list[str], options: argparse.Namespace) -> None:
    load = os.getloadavg()[0]
    machine = f"Python {platform.python_version()}, {os.cpu_count()} cores, load {load:.1f}"
    if options.json:
        found = {"figures": [figure.as_json() for figure in figures], "problems": problems, "doubts": doubts}
        print(json.dumps({"machine": machine, **found}, indent=1, ensure_ascii=False))
        return
    print("\n".join([table(figures), "", f"{machine}. What the rows mean: bench/README.md", *problems, *doubts]))


if __name__ == "__main__":
    sys.exit(main())
