"""Remember the duration of each test, to run the long ones first."""

import json
from collections import Counter
from pathlib import Path

from support.paths import TESTS
from support.tiers import named_tests

FILE = Path(__file__).with_name("durations.json")
_LEAST = 0.02  # seconds; shorter tests get no line


def function_of(nodeid: str) -> str:
    """Return the id of a test without its parameters, relative to tests/."""
    return nodeid.partition("[")[0].removeprefix("tests/")


def exists(function: str) -> bool:
    """Return True if there is such a test function or class; a renamed one is gone."""
    path, name = function.split("::")[:2]
    file = TESTS / path
    return file.is_file() and name in named_tests(file)


class Durations:
    """Seconds by test function, over all its parameters."""

    def __init__(self, file: Path = FILE) -> None:
        self._file = file
        self._known: dict[str, float] = json.loads(file.read_text()) if file.exists() else {}
        self._measured: Counter[str] = Counter()

    def longest_first(self, nodeids: list[str]) -> list[int]:
        """Return the places of tests in the order to run them: files by their time, each file in its own order."""
        files: Counter[str] = Counter()
        for function in dict.fromkeys(map(function_of, nodeids)):  # all processes of a run need the same order
            files[function.partition("::")[0]] += self.seconds(function)
        ranks = {file: rank for rank, (file, _) in enumerate(files.most_common())}
        return sorted(range(len(nodeids)), key=lambda at: ranks[function_of(nodeids[at]).partition("::")[0]])

    def seconds(self, nodeid: str) -> float:
        """Return how long the function of a test took, over all its parameters."""
        return self._known.get(function_of(nodeid), _LEAST)

    def add(self, nodeid: str, seconds: float) -> None:
        """Add the duration of a test."""
        self._measured[function_of(nodeid)] += seconds

    def write(self, *, replace: bool = True) -> None:
        """Write the durations of the tests that ran; replace: update known ones, too."""
        known = {name: seconds for name, seconds in self._known.items() if exists(name)}
        both = {**known, **self._measured} if replace else {**self._measured, **known}
        lines = {name: round(seconds, 2) for name, seconds in sorted(both.items()) if seconds >= _LEAST}
        self._file.write_text(json.dumps(lines, indent=1) + "\n")
