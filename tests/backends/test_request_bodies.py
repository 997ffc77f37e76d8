"""Test the upstream request of every kind of server against the files in tests/backends/requests."""

import re

import pytest

from gateway.backends import KINDS
from support.backend_requests import (
    BY_FIELD,
    FIELDS,
    WHOLE,
    applied,
    cases,
    difference,
    golden,
    golden_file,
    outcomes,
    stored,
)
from support.paths import ROOT

FILES = (*WHOLE, *BY_FIELD)
PAGE = ROOT / "docs/reference/backends.md"
BY_KIND = [pytest.param(kind, file, id=f"{kind}: {file.stem}") for kind in KINDS for file in FILES]


@pytest.mark.parametrize(("kind", "file"), BY_KIND)
def test_upstream_request_bodies_are_the_stored_ones(kind, file):
    found = {name: golden(file, name, kind) for name in cases(file)}
    known = stored(kind).get(file.stem, {})
    differing = {name: found[name] for name in found if found[name] != known.get(name)}
    assert not differing and [*found] == [*known], "make regenerate"


def test_upstream_request_files_are_those_of_the_kinds():
    assert {file.stem for file in golden_file("any").parent.iterdir()} == {*KINDS}


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_upstream_request_body_is_restored_from_its_difference(file):
    bodies = [one["body"] for kinds in outcomes(file).values() for one in kinds.values() if "body" in one]
    for body in bodies:
        assert applied(*difference(bodies[0], body), bodies[0]) == body


def test_upstream_request_cases_cover_every_field_with_a_verdict():
    """The page lists all fields of the API, and others that several kinds know."""
    tables = [part for part in PAGE.read_text("utf-8").split("\n## ") if part.startswith("Fields")]
    known = set(re.findall(r"^\| `([^`]+)`", "\n".join(tables), re.MULTILINE))
    requests = [case["asks"] for case in cases(FIELDS).values()]
    names = {name for fields in requests for name in fields} | {
        f"{name}.{member}"
        for fields in requests
        for name, value in fields.items()
        if isinstance(value, dict)
        for member in value
    }
    assert known - names == {"messages", "model"}  # every request has these
    assert len(known) > 80
