"""Test the upstream request of every kind of server against the files in tests/backends/requests."""

import re

import pytest

from support.backend_requests import BY_FIELD, FIELDS, WHOLE, applied, cases, difference, golden, outcomes, written
from support.paths import ROOT

FILES = (*WHOLE, *BY_FIELD)
REGENERATE = "write the files anew: cd tests && python -m support.backend_requests"
PAGE = ROOT / "docs" / "backends.md"
NAMED = [(file, name) for file in FILES for name in cases(file)]


@pytest.mark.parametrize(("file", "name"), NAMED, ids=[f"{file.stem}: {name}"[:80] for file, name in NAMED])
def test_upstream_request_body_is_the_recorded_one(file, name):
    assert written(golden(file, name)) == written(cases(file)[name]), REGENERATE


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_upstream_request_file_is_written_as_regenerated(file):
    told = cases(file)
    assert file.read_text("utf-8") == written([*told.values()] if file in BY_FIELD else told) + "\n"


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_upstream_request_body_is_restored_from_its_difference(file):
    asked = [one["body"] for kinds in outcomes(file).values() for one in kinds.values() if "body" in one]
    for body in asked:
        assert applied(*difference(asked[0], body), asked[0]) == body


def test_upstream_request_cases_cover_every_field_with_a_verdict():
    """The page lists all fields of the API, and others that several kinds know."""
    tables = [part for part in PAGE.read_text("utf-8").split("\n## ") if part.startswith("Fields")]
    known = set(re.findall(r"^\| `([^`]+)`", "\n".join(tables), re.MULTILINE))
    asked = [case["asks"] for case in cases(FIELDS).values()]
    told = {name for fields in asked for name in fields} | {
        f"{name}.{member}"
        for fields in asked
        for name, value in fields.items()
        if isinstance(value, dict)
        for member in value
    }
    assert known - told == {"messages", "model"}  # every request has these
    assert len(known) > 80
