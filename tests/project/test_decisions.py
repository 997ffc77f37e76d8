"""Check that each decision has its four headings, and that the list of the decisions names it."""

import re

import pytest

from support.paths import ROOT

FOLDER = ROOT / "docs/decisions"
DECISIONS = sorted(FOLDER.glob("[0-9]*.md"))
HEADINGS = ["Context", "Decision", "Figures", "Consequences"]


@pytest.mark.parametrize("path", DECISIONS, ids=lambda path: path.stem)
def test_decision_has_four_headings_with_text_under_each(path):
    parts = re.split(r"^## (.+)\n", path.read_text("utf-8"), flags=re.MULTILINE)
    assert parts[1::2] == HEADINGS
    assert all(part.strip() for part in parts[2::2])


def test_list_names_each_decision_by_number_title_and_file():
    titles = [path.read_text("utf-8").partition("\n")[0].removeprefix("# ").partition(". ") for path in DECISIONS]
    rows = [
        f"| {int(number):03} | [{title}]({path.name}) |"
        for path, (number, _, title) in zip(DECISIONS, titles, strict=True)
    ]
    lines = (FOLDER / "README.md").read_text("utf-8").splitlines()
    assert [line for line in lines if re.match(r"\| \d", line)] == rows
    assert [path.name[:3] for path in DECISIONS] == [f"{number:03}" for number in range(1, len(DECISIONS) + 1)]
