"""Test what keeps the tests fast and steady: rules, cuts, durations, the comparison of runs, and mutants."""

import ast
import gc
import json
import logging
import os
import subprocess
import sys
import threading
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace

import pytest
from greenlet import greenlet

from support import check, flaky, mutants, process_state, sampling
from support.coverage_greenlets import WeakKeys
from support.durations import Durations, exists, function_of
from support.paths import ROOT, TESTS
from support.rules import retired_names, violations


@pytest.mark.parametrize(
    ("line", "fault"),
    [
        ("await asyncio.sleep(0.1)", "sleeps"),
        ("time.sleep(delay)", "sleeps"),
        ("socket.create_server(('127.0.0.1', 8900))", "binds a fixed port"),
        ("asyncio.start_server(act, '127.0.0.1', 8900)", "binds a fixed port"),
        ("time.time()", "reads a wall clock"),
        ("@pytest.mark.parametrize('name', {'a', 'b'})\ndef test_it(name): pass", "has the order of a set"),
        ("pytest.mark.parametrize('name', set(NAMES))", "has the order of a set"),
    ],
)
def test_rules_find_what_is_unsteady(line, fault):
    source = f"async def f():\n    {line}" if line.startswith("await") else line
    ((_, found),) = violations(source)
    assert found.startswith(fault)


@pytest.mark.parametrize(
    "line",
    [
        "await_ = asyncio.sleep(0)",
        "time.sleep(1)  # steady: it is what is tested",
        "socket.create_server(('127.0.0.1', 0))",
        "time.monotonic()",
        "pytest.mark.parametrize('name', sorted({'a', 'b'}))",
        "parametrize()",
    ],
)
def test_rules_allow_what_is_steady(line):
    assert [*violations(line)] == []


@pytest.mark.parametrize(
    "line",
    [
        "said = 1",
        "(a, *told), b = pair",
        "self.asked = []",
        "for heard in lines: pass",
        "def says(text): pass",
        "async def tells(): pass",
        "lambda asks: asks",
        "import words as spoken",
        "self._said = []",
        "HEARD_FIRST = 1",
        "class Told: pass",
        "def merge_spoken(events): pass",
    ],
)
def test_rules_find_a_retired_name(line):
    ((number, fault),) = retired_names(line)
    assert number == 1 and fault.startswith("names a thing")


@pytest.mark.parametrize(
    "line",
    ["extra.asked", "ExtraField(asked=True)", "unasked = {'said': 1}", "import said", "def test_it_asks_once(): pass"],
)
def test_rules_allow_names_of_others(line):
    assert [*retired_names(line)] == []


def test_rules_allow_a_public_name():
    source = "class Extra:\n    asked: bool\n    asked_of: int"
    assert [line for line, _ in retired_names(source, {"asked"})] == [3]


# Cuts and examples


@pytest.fixture
def run_of():
    """Return a function that configures another run; this one's configuration comes back."""
    before = sampling._Run.thorough, sampling._Run.seed
    yield lambda thorough, seed: sampling.configure(thorough=thorough, seed=seed)
    sampling.configure(thorough=before[0], seed=before[1])


def test_cuts_are_everywhere_in_a_thorough_run(run_of):
    run_of(True, 5)
    assert [*sampling.places(30)] == [*range(30)]
    assert sampling.examples(300) == 300


def test_cuts_are_a_spread_that_moves_with_the_seed(run_of):
    spreads = set()
    for seed in range(40):
        run_of(False, seed)
        found = [*sampling.places(1000)]
        assert len(found) in (11, 12) and {b - a for a, b in pairwise(found)} == {84}
        spreads.add(found[0])
    assert len(spreads) > 10


def test_cuts_of_a_row_that_once_failed_are_everywhere(run_of):
    run_of(False, 3)
    assert [*sampling.places(150, everywhere=True)] == [*range(150)]
    assert len(sampling.places(400, everywhere=True)) in (133, 134)
    assert [*sampling.places(7)] == [*range(7)]


def test_test_leaves_the_settings_of_its_process():
    log, before = (
        logging.getLogger("gateway"),
        (gc.get_threshold(), threading.excepthook, logging.getLogger("gateway").level),
    )
    with process_state.keep():
        gc.set_threshold(200_000)
        threading.excepthook = print
        log.setLevel(logging.DEBUG)
        log.addHandler(handler := logging.NullHandler())
    assert (gc.get_threshold(), threading.excepthook, log.level) == before and handler not in log.handlers


def test_seed_of_a_run_is_the_day_unless_it_is_named():
    assert sampling.seed_or_day(0) == 0 and sampling.seed_or_day(7) == 7
    assert sampling.seed_or_day(None) > 700_000  # days


def test_one_cut_of_several_moves_with_the_seed(run_of):
    found = set()
    for seed in range(40):
        run_of(False, seed)
        found.add(sampling.one_of(range(0, 12, 4), "a text"))
    assert found == {0, 4, 8}


# Durations


def test_durations_put_the_longest_files_first(tmp_path):
    file = tmp_path / "durations.json"
    durations = Durations(file)
    for nodeid, seconds in (("tests/a/test_a.py::test_x[1]", 1.0), ("tests/a/test_a.py::test_x[2]", 2.0)):
        durations.add(nodeid, seconds)
    durations.add("tests/b/test_b.py::test_y", 9.0)
    durations.add("tests/b/test_b.py::test_z", 0.001)
    durations.write()
    assert json.loads(file.read_text()) == {"a/test_a.py::test_x": 3.0, "b/test_b.py::test_y": 9.0}
    nodeids = ["tests/a/test_a.py::test_x[1]", "tests/a/test_a.py::test_w", "tests/b/test_b.py::test_y"]
    known = Durations(file)
    assert known.longest_first(nodeids) == [2, 0, 1]
    assert known.seconds("tests/a/test_a.py::test_x[2]") == 3.0


def test_durations_of_a_thorough_run_replace_none_and_drop_those_of_renamed_tests(tmp_path):
    here = "project/test_steadiness.py::test_durations_put_the_longest_files_first"
    file = tmp_path / "durations.json"
    file.write_text(json.dumps({here: 9.0, "project/test_steadiness.py::test_that_is_gone": 1.0}))
    durations = Durations(file)
    durations.add(f"tests/{here}", 99.0)
    durations.add("tests/c/test_c.py::test_v", 5.0)
    durations.write(replace=False)
    assert json.loads(file.read_text()) == {"c/test_c.py::test_v": 5.0, here: 9.0}


def test_durations_are_of_tests_that_exist():
    known = json.loads((TESTS / "support" / "durations.json").read_text())
    gone = [one for one in known if not exists(one)]
    assert not gone, "make test ARGS=--write-durations"


def test_function_of_a_test_leaves_out_its_parameters():
    assert function_of("tests/a/test_a.py::test_x[a::b]") == "a/test_a.py::test_x"


# Coverage


def test_coverage_dictionary_runs_no_code_when_a_greenlet_dies():
    keys, one, other = WeakKeys(), greenlet(print), SimpleNamespace
    keys[one], keys[other] = 1, 2
    assert (keys[one], keys[other]) == (1, 2)
    assert [ref.__callback__ is None for ref in keys.data] == [True, False]


def test_coverage_uses_this_dictionary_in_each_process(tmp_path):
    program = "import weakref; print(weakref.WeakKeyDictionary.__module__)"
    names = {"COVERAGE_PROCESS_CONFIG", "COVERAGE_PROCESS_START", "COVERAGE_FILE"}
    env = {name: value for name, value in os.environ.items() if name not in names}
    env |= {"COVERAGE_PROCESS_START": str(ROOT / "pyproject.toml"), "COVERAGE_FILE": str(tmp_path / "data")}
    done = subprocess.run([sys.executable, "-c", program], env=env, capture_output=True, text=True, check=True)
    wanted = "tests.support.coverage_greenlets" if sys.version_info < (3, 12) else "weakref"
    assert (done.stdout, done.stderr) == (f"{wanted}\n", "")


# Repeated runs


def test_differences_between_runs_are_named():
    runs = [{"a": "passed", "b": "passed"}, {"a": "passed", "b": "failed"}, {"a": "passed"}]
    assert flaky.differences(runs) == {"b": {"passed": [1], "failed": [2], "": [3]}}
    assert flaky.counted(runs[1]) == "1 failed, 1 passed"


# Mutants


@pytest.mark.parametrize(
    ("source", "what", "changed"),
    [
        ("a == b", "Eq -> NotEq", "a != b"),
        ("a and b", "And -> Or", "a or b"),
        ("x = a + 1", "Add -> Sub", "x = a - 1"),
        ("if a:\n    b()", "not the condition", "if not a:\n    b()"),
        ("x = True", "True -> False", "x = False"),
        ("x = 7", "7 -> 8", "x = 8"),
        ("def f():\n    return x", "return None", "def f():\n    return None"),
        ("f(x)", "leave out f(x)", "None"),
    ],
)
def test_mutant_differs_in_one_place(source, what, changed):
    found = [
        mutants.Mutant("f.py", 1, number, change[0])
        for number, node in enumerate(ast.walk(ast.parse(source)))
        for change in mutants.changes(node)
    ]
    (mutant,) = [one for one in found if one.what == what]
    assert mutants.mutated(source, mutant) == changed


def test_mutants_report_names_what_make_test_misses(capsys):
    assert mutants.report({"a": "noticed by make test", "b": "survived 3 + 0 tests"}) == 0
    assert mutants.report({"a": "noticed by make test", "b": "system tests alone"}) == 1
    assert "2 mutants: 1 noticed by make test" in capsys.readouterr().out


# make check


def test_check_finds_the_tests_that_import_a_module():
    found = check.tests_of(ROOT / "gateway" / "sse.py")
    assert TESTS / "test_sse.py" in found
    assert check.tests_of(TESTS / "test_sse.py") == [TESTS / "test_sse.py"]
    assert check.tests_of(ROOT / "gateway" / "store" / "sqlite_or_other.py") == sorted(
        (TESTS / "store").glob("test_*.py")
    )


def test_check_leaves_out_what_exceeds_the_budget(monkeypatch):
    times = {Path("a"): 1.0, Path("b"): 20.0, Path("c"): 2.0}
    monkeypatch.setattr(check, "seconds", times.get)
    assert check.within_budget([*times]) == ([Path("a"), Path("c")], [Path("b")])


def test_check_needs_a_file_that_is_there(capsys):
    assert check.main(["gateway/nowhere.py"]) == 2
    assert "names a module that is there" in capsys.readouterr().out
