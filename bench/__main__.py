"""`python -m bench`: print the cost of the gateway on this machine as one table."""

import argparse
import json
import os
import platform
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from datetime import date
from pathlib import Path

from msgspec import Struct

from bench import core, document, formats, growth, instructions, passed, paths, recorded, requests, store
from bench.figures import Figure, table
from bench.processes import NotReady, machine, raise_file_limit
from bench.rounds import GATEWAY, Track, Wrong, measure
from bench.scenarios import scenarios

_GROUPS = (
    *("whole", "burst", "paced", "first", "streams", "offered", "responses", "arguments"),
    *("core", "formats", "store"),
)
_GROWTH, _INSTRUCTIONS, _REQUESTS = "growth", "instructions", "requests"  # these and the next run only on request
_PATHS, _PASSED = "paths", "passed"
_COUNTS = {_INSTRUCTIONS: instructions.figures, _REQUESTS: requests.figures, _PATHS: paths.figures}


class Found(Struct):
    """The figures, the failures, and the times when the machine was busy."""

    figures: list[Figure] = []
    growths: list[growth.Growth] = []
    problems: list[str] = []
    doubts: list[str] = []


def main() -> int:
    """Run the benchmarks.  Returns 0 if all were measured, else 1; `over` in the table is no failure."""
    options = _options()
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # ends all processes as at Ctrl-C
    raise_file_limit()
    groups = options.only or _GROUPS
    try:
        found = _measure(groups, options)
    except (NotReady, Wrong, OSError, subprocess.SubprocessError) as problem:
        print(f"\n{problem}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("\nstopped", file=sys.stderr)
        return 130
    _print(found, options)
    if found.growths and options.write:
        document.put("growth", f"{date.today().isoformat()}, {machine()}.\n\n{growth.markdown(found.growths)}")
    return 1 if found.problems else 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    names = (*_GROUPS, _GROWTH, _INSTRUCTIONS, _REQUESTS, _PATHS, _PASSED)
    parser.add_argument("--quick", action="store_true", help="one short round")
    parser.add_argument("--only", action="append", metavar="NAME", choices=names, help=", ".join(names))
    parser.add_argument("--json", action="store_true", help="all values instead of the table")
    parser.add_argument("--rounds", type=int, default=0, help="how often; the median is shown (3, quick: 1)")
    parser.add_argument("--gateway", default=GATEWAY, metavar="COMMAND", help=f"what to measure (default: {GATEWAY})")
    parser.add_argument("--store", default="", metavar="URL", help="where it stores (default: an SQLite file)")
    parser.add_argument(
        "--write", action="store_true", help="put what growth finds into docs/explanation/performance.md"
    )
    return parser.parse_args()


def _measure(groups: Sequence[str], options: argparse.Namespace) -> Found:
    chosen = [scenario for scenario in scenarios(options.quick) if scenario.group in groups]
    found = Found()
    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        track = Track(Path(folder), options.gateway, options.store)
        if chosen:
            rounds = max(1, options.rounds or (1 if options.quick else 3))
            for result in measure(chosen, rounds, track):
                found.figures += result.figures()
                found.problems += result.problems()
                found.doubts += result.doubts()
        found.growths += growth.growths(options.quick, track) if _GROWTH in groups else ()
        found.figures += passed.figures(options.quick, track) if _PASSED in groups else ()
    for name, module in (("core", core), ("core", recorded), ("formats", formats), ("store", store)):
        if name in groups:
            found.figures += module.figures(options.quick)
    for name, figures in _COUNTS.items():
        if name in groups:
            found.figures += figures()
    return found


def _print(found: Found, options: argparse.Namespace) -> None:
    load = os.getloadavg()[0]
    where = f"Python {platform.python_version()}, {os.cpu_count()} cores, load {load:.1f}"
    if options.json:
        output: dict[str, object] = {"figures": [figure.as_json() for figure in found.figures]}
        output |= {"growth": [each.as_json() for each in found.growths]}
        output |= {"problems": found.problems, "doubts": found.doubts}
        print(json.dumps({"machine": where, **output}, indent=1, ensure_ascii=False))
        return
    tables = [
        *([table(found.figures)] if found.figures else []),
        *([growth.table(found.growths)] if found.growths else []),
    ]
    print("\n".join(["\n\n".join(tables), "", f"{where}. What the rows mean: bench/README.md"]))
    print("\n".join([*found.problems, *found.doubts]))


if __name__ == "__main__":
    sys.exit(main())
