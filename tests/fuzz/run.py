"""Runs atheris on a target, each time in a process of its own, and reads what came of it."""

import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

from msgspec import Struct

from fuzz.target import MOST
from fuzz.targets import find
from support.paths import TESTS

FOUND = Path(__file__).parent / "found"
_SECONDS = 30  # that the check of one input may take, at most; all of them are small
_LONGEST_WORD = 64  # bytes of one in a dictionary of libFuzzer
_STATISTIC = re.compile(r"^stat::(\w+):\s+(\d+)", re.MULTILINE)
_EDGES = re.compile(r"\bcov: (\d+)")
_WRITTEN = re.compile(r"Test unit written to (.+)")
_FAILURE = re.compile(r"=== Uncaught Python exception: ===\n(.*?)\n\n?==", re.DOTALL)


class Result(Struct, frozen=True):
    """inputs: how many were tried; speed: of these, in a second; edges: of our code that they took.

    failure: what went wrong, and file: the input that makes it go wrong; "" and None if nothing did.
    """

    target: str
    inputs: int
    speed: int
    edges: int
    megabytes: int
    failure: str = ""
    file: Path | None = None


def run(names: str, *limits: str, found: Path = FOUND, counts: bool = True) -> Result:
    """names: as `find` has them; limits: options of libFuzzer that say when it is enough.

    counts: the limits of items, parts and values of a body hold.
    """
    with tempfile.TemporaryDirectory() as temporary:
        folder, target = Path(temporary), find(names)
        corpus, words = _corpus(target, folder), _dictionary(target, folder)
        found.mkdir(parents=True, exist_ok=True)
        done = subprocess.run(
            [
                *(
                    sys.executable,
                    "-m",
                    "fuzz.one",
                    names,
                    corpus,
                    f"-dict={words}",
                    f"-artifact_prefix={found}/{names.partition(',')[0]}-",
                ),
                # No -rss_limit_mb: the peak that it goes by begins with that of the process that starts it.
                *(f"-timeout={_SECONDS}", "-rss_limit_mb=0", f"-max_len={MOST}", "-print_final_stats=1"),
                *limits,
            ],
            cwd=TESTS.parent,
            env=environment() | ({} if counts else {"FUZZ_COUNTS": "off"}),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            check=False,
        )
    return _result(names, done.returncode, done.stdout.decode("utf-8", "replace"))


def _result(name, status, output):
    counted = {word: int(count) for word, count in _STATISTIC.findall(output)}
    edges = [int(count) for count in _EDGES.findall(output)]
    written, failure = _WRITTEN.search(output), _FAILURE.search(output)
    return Result(
        name,
        counted.get("number_of_executed_units", 0),
        counted.get("average_exec_per_sec", 0),
        max(edges, default=0),
        counted.get("peak_rss_mb", 0),
        (failure[1] if failure else output[-2000:]) if status else "",
        Path(written[1]) if written else None,
    )


def _corpus(target, folder):
    corpus = folder / "corpus"
    corpus.mkdir()
    for number, seed in enumerate(target.seeds()):
        (corpus / f"{number:05}").write_bytes(seed)
    return corpus


def _dictionary(target, folder):
    words = (word.encode() for word in target.words())
    lines = ('"' + "".join(f"\\x{byte:02x}" for byte in word) + '"' for word in words if 0 < len(word) <= _LONGEST_WORD)
    file = folder / "words"
    file.write_text("\n".join(lines) + "\n")
    return file


def environment():
    """What it runs is not measured: that would take many times as long."""
    known = {name: value for name, value in os.environ.items() if not name.startswith("COVERAGE")}
    return {**known, "PYTHONPATH": os.pathsep.join((str(TESTS), str(TESTS.parent)))}
