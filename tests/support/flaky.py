"""Run tiers repeatedly in random order, and name the tests whose outcomes differ.

    make flaky ARGS="--tiers unit,edge --runs 20"
    make flaky ARGS="--tiers unit,edge,smoke --runs 5 --load 4"

--one-core pins each run to one core; --load N keeps N processes busy beside it; --pause N stops the event loop of each
test once, for N seconds.  Results are in build/flaky, one file a
run.  An existing file is not repeated, so an interrupted call can continue.  Status 1: a test failed in some run.
"""

import argparse
import json
import os
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from support.paths import ROOT
from support.terminal import say

FOLDER = ROOT / "build" / "flaky"


def main() -> int:
    """Run the command."""
    options = _parser().parse_args()
    name = f"{options.tiers.replace(',', '+')}{'-one-core' * options.one_core}-load{options.load}"
    folder = options.folder / (f"{name}-pause{options.pause:g}" if options.pause else name)
    folder.mkdir(parents=True, exist_ok=True)
    results = []
    for number in range(1, options.runs + 1):
        file = folder / f"{number}.json"
        if not file.exists():
            began = time.monotonic()
            with _busy(options.load):
                run(file, options, number)
            say(f"run {number}: {time.monotonic() - began:.0f} s, {counted(json.loads(file.read_text()))}")
        results.append(json.loads(file.read_text()))
    differing = differences(results)
    for test, outcomes in sorted(differing.items()):
        say(f"{test}: {outcomes}")
    failed = [test for result in results for test, outcome in result.items() if outcome == "failed"]
    say(f"{len(results)} runs, {len(differing)} tests differed, {len(set(failed))} failed")
    return bool(failed or differing)


def run(file: Path, options: argparse.Namespace, seed: int) -> None:
    """Run the tiers once, and write the outcomes to the file."""
    workers = 1 if options.one_core else 8 if options.pause else 2  # a test that pauses needs no core
    command = [sys.executable, "-m", "pytest", "-q", "--tiers", options.tiers, "--shuffle", str(seed)]
    command += ["--outcomes-file", str(file.with_suffix(".new")), "-n", str(workers), "--dist", "worksteal"]
    if options.pause:
        command += ["--pause", str(options.pause)]
    if options.one_core:
        command = ["taskset", "--cpu-list", "0", *command]
    with file.with_suffix(".log").open("wb") as log:
        subprocess.run(command, check=False, cwd=ROOT, stdout=log, stderr=subprocess.STDOUT)
    file.with_suffix(".new").rename(file)


def differences(results: list[dict[str, str]]) -> dict[str, dict[str, list[int]]]:
    """Return the tests whose outcomes differ: test → outcome → numbers of runs; "": a missing test."""
    found: dict[str, dict[str, list[int]]] = defaultdict(lambda: defaultdict(list))
    for test in {test for result in results for test in result}:
        for number, result in enumerate(results, 1):
            found[test][result.get(test, "")].append(number)
    return {test: {**outcomes} for test, outcomes in found.items() if len(outcomes) > 1}


def counted(result: dict[str, str]) -> str:
    """Return the number of each outcome."""
    outcomes = [*result.values()]
    return ", ".join(f"{outcomes.count(one)} {one}" for one in sorted(set(outcomes)))


@contextmanager
def _busy(count: int) -> Iterator[None]:
    if not count:
        yield
        return
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "tests")}
    command = [sys.executable, "-m", "support.load", str(count)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, env=environment) as process:
        try:
            yield
        finally:
            process.communicate()


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="make flaky", description=__doc__.splitlines()[0])
    parser.add_argument("--tiers", default="unit,edge")
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--load", type=int, default=0, help="busy processes beside the tests")
    parser.add_argument("--one-core", action="store_true")
    parser.add_argument("--pause", type=float, default=0, help="seconds for which each test stops once")
    parser.add_argument("--folder", type=Path, default=FOLDER)
    return parser


if __name__ == "__main__":
    sys.exit(main())
