"""Test that a real llama.cpp takes every field that a client may send."""

import io

import httpx
import pytest

from gateway import demo
from support.backend_requests import FIELDS, outcomes


@pytest.mark.timeout(600)
def test_upstream_request_bodies_are_taken_by_a_real_llamacpp():
    """The server refuses only a format that it does not know."""
    bodies = {
        name: kinds["llamacpp"]["body"] for name, kinds in outcomes(FIELDS).items() if "body" in kinds["llamacpp"]
    }
    with demo.start_demo("--threads", "1", out=io.StringIO()) as url:
        answers = {  # one connection each: the server closes a connection after a stream without a notice
            name: httpx.post(
                f"{url}/v1/chat/completions", json={**body, "model": demo.MODEL, "max_tokens": 1}, timeout=60
            )
            for name, body in bodies.items()
        }
    refused = {name: answer.status_code for name, answer in answers.items() if answer.status_code != 200}
    assert [(status, "structural_tag" in name) for name, status in refused.items()] == [(400, True)], refused
