"""Test that a chunk and a request pass no more functions and files than today."""

import pytest

from bench import paths

pytestmark = pytest.mark.edge  # the bench serves the gateway by itself
CEILINGS = {
    "a chunk of chat, functions": 9,
    "a chunk of chat, files": 8,
    "a chunk of chat, changes of file": 7,
    "a chunk of responses, functions": 16,
    "a chunk of responses, files": 9,
    "a chunk of responses, changes of file": 8,
    "a whole request, files": 45,
}


def test_path_of_a_chunk_and_of_a_request_does_not_grow():
    found = {figure.name: figure.value for figure in paths.figures()}
    assert found.keys() == CEILINGS.keys()
    assert {name: value for name, value in found.items() if value > CEILINGS[name]} == {}
