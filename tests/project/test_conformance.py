"""Check docs/reference/conformance.md against its stored results, and those against the present code."""

import json
import os
import subprocess

import pytest

from conformance import page
from conformance.parts import LINE, PYTEST, ROOT, recordings
from wire.cases import CASES

RESULTS = page.read()


def test_conformance_page_equals_its_results():
    assert page.FILE.read_text("utf-8") == page.page(RESULTS), "make regenerate"


def test_conformance_recordings_give_the_same_results():
    now = recordings()["servers"]
    assert RESULTS["recordings"]["servers"] == now, "make regenerate"
    assert all(right == all for server in now.values() for right, all in server["told"].values())


def test_conformance_wire_results_cover_all_backends_and_cases(tmp_path):
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
def test_conformance_cell_counts_the_outcomes(outcomes, cell):
    assert page.cell(outcomes) == cell


def test_conformance_details_name_each_code_once():
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


def test_conformance_failures_are_listed():
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


def test_conformance_client_lines_are_recognized():
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
