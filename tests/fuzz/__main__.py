"""Fuzz the targets, print a line for each and the sum.  Status 1: an input was found that should not be possible.

python -m fuzz [TARGET …] [--seconds N | --runs N] [--jobs N] [--seed N] [--found FOLDER] [--no-counts]
"""

import argparse
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from fuzz.run import FOUND, run
from fuzz.targets import NAMES, PLANTED
from support.terminal import say

_ROW = "{:<12} {:>12} {:>10} {:>8} {:>8}  {}"
_SHOWN = 400  # bytes of an input


def main():
    parser = argparse.ArgumentParser(prog="fuzz")
    parser.add_argument("targets", nargs="*", metavar="TARGET", help=", ".join(NAMES))
    enough = parser.add_mutually_exclusive_group()
    enough.add_argument("--seconds", type=int, default=60, help="for each target")
    enough.add_argument("--runs", type=int, help="inputs for each target")
    parser.add_argument("--jobs", type=int, default=1, help="targets at a time")
    parser.add_argument("--seed", type=int, default=0, help="the same inputs again; 0: others each time")
    parser.add_argument("--no-counts", action="store_true", help="without limits of items, parts and values of a body")
    parser.add_argument("--found", type=Path, default=FOUND, help="where such inputs go")
    options = parser.parse_args()
    names = options.targets or NAMES
    if unknown := {*names} - {*NAMES, PLANTED}:
        parser.error(f"no such target: {', '.join(sorted(unknown))}")
    limits = f"-runs={options.runs}" if options.runs else f"-max_total_time={options.seconds}", f"-seed={options.seed}"

    def fuzzed(name):
        return run(name, *limits, found=options.found, counts=not options.no_counts)

    say(_ROW.format("target", "inputs", "inputs/s", "edges", "MB", "result"))
    with ThreadPoolExecutor(options.jobs) as pool:
        results = [report(result) for result in pool.map(fuzzed, names)]
    say(_ROW.format("all", f"{sum(result.inputs for result in results):,}", "", "", "", ""))
    failed = [result for result in results if result.failure]
    for result in failed:
        say(f"\nFAIL {result.target}\n{result.failure}")
        if result.file:
            say(f"input {result.file.read_bytes()[:_SHOWN]!r}")
            say(f"again: PYTHONPATH=tests python -m fuzz.one {result.target} {result.file}")
    sys.exit(bool(failed))


def report(result):
    outcome = "FAIL" if result.failure else "ok"
    say(_ROW.format(result.target, f"{result.inputs:,}", f"{result.speed:,}", result.edges, result.megabytes, outcome))
    return result


if __name__ == "__main__":
    main()
