"""docs/conformance.md is what its results say, and these are of what there is now."""

import json
import os
import subprocess

import pytest

from conformance import page
from conformance.parts import LINE, PYTEST, ROOT, recordings
from wire.cases import CASES

RESULTS = page.read()


def test_the_page_is_its_results():
    assert page.FILE.read_text("utf-8") == page.page(RESULTS), "make conformance ARGS=recordings"


def test_the_recordings_still_come_to_the_same():
    now = recordings()["servers"]
    assert RESULTS["recordings"]["servers"] == now, "make conformance ARGS=recordings"
    assert all(right == all for server in now.values() for right, all in server["told"].values())


def test_the_wire_has_the_servers_and_cases_that_there_are(tmp_path):
    file = tmp_path / "outcomes.json"
    collect = [
        *PYTEST,
        "--collect-only",
        "-p",
        "conformance.plugin",
        "--outcomes",
        str(file),
        "tests/project/test_wire.py",
    ]
    subprocess.run(
        collect, cwd=ROOT, env={**os.environ, "PYTHONPATH": "tests"}, check=True, stdout=subprocess.DEVNULL, timeout=100
    )
    now = json.loads(file.read_text("utf-8"))
    assert {len([*page.cases(server)]) for server in now.values()} == {len(CASES)}
    assert without_outcomes(RESULTS["wire"]["servers"]) == without_outcomes(now), "make conformance ARGS=wire"


def without_outcomes(servers):
    return {
        name: {**row, "features": {feature: sorted(cases) for feature, cases in row["features"].items()}}
        for name, row in servers.items()
    }


@pytest.mark.parametrize(
    ("outcomes", "cell"),
    [
        ({}, "–"),
        ({"a": "holds", "b": "holds: dropped:verbosity"}, "2/2"),
        ({"a": "holds", "b": "holds: emulated:n, estimated:usage"}, "2/2, 1 emulated"),
        (
            {"a": "holds", "b": "listed: dropped:top_k", "c": "refused: no: never", "d": "fails"},
            "1/4, 1 fails, 1 listed, 1 refused",
        ),
    ],
)
def test_a_cell_says_what_becomes_of_all_cases(outcomes, cell):
    assert page.cell(outcomes) == cell


def test_what_is_told_is_said_once_by_its_code():
    features = {
        "Text": {"a_text": "holds: dropped:b, estimated:usage", "a_word": "listed: dropped:a", "one_more": "left"},
        "Ranks": {"texts_have_ranks": "refused: no endpoint: none", "a_rank": "holds: dropped:b"},
    }
    assert list(page.details({"features": features})) == [
        "- dropped: `a` (Text); `b` (Text, Ranks)",
        "- estimated: `usage` (Text)",
        "- left: Text (one more)",
        "- refused: Ranks (texts have ranks): “no endpoint: none”",
    ]


def test_what_fails_is_told():
    live = {"servers": {"vllm": {"features": {"Text": {"a_text": "holds", "a_word": "fails"}}}}}
    results = {
        "wire": {"servers": {}},
        "engines": live,
        "clients": {"clients": {"sdk 1": {"native": {"whole · think": "ok", "stream · think": "FAIL"}}}},
        "recordings": {"servers": {"vllm": {"told": {"answers": [3, 3], "calls": [1, 2]}}}},
    }
    assert list(page.failures(results)) == [
        "engines · vllm · a_word",
        "clients · sdk 1 · native · stream · think",
        "recordings · vllm · calls",
    ]


def test_lines_of_clients_are_told_from_what_stands_around_them():
    lines = [
        "ok   sdk 1 · native · whole · think",
        "FAIL sdk 1 · native · loop",
        "     at · a line",
        "12 passed, 1 failed",
    ]
    assert [match and match.groups() for match in map(LINE.match, lines)] == [
        ("ok", "sdk 1 · native · whole · think"),
        ("FAIL", "sdk 1 · native · loop"),
        None,
        None,
    ]
