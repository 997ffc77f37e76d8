"""Replay a recorded turn of Codex CLI over a small model: it runs a command and reports the result.

recordings/codex.json has its two requests: each with the body for the backend, the answer, and the events for Codex.
Texts are shortened, ids and times are made equal, and only one example of the earlier conversation is left.
"""

import json
import re

import pytest

from support.app import listening
from support.paths import TESTS
from support.upstream import END, head

TURN = json.loads((TESTS / "recordings" / "codex.json").read_text("utf-8"))


def script(answer):
    return [head(), *(f"data: {line}\n\n".encode() for line in answer), END]


def shortened_events(text):
    """Return the events with numbered ids; their responses have only the fields that change."""
    ids = {}
    known = re.sub(r"\b(resp|msg|fc|call)_\w{24}\b", lambda id: ids.setdefault(id[0], f"{id[1]}_{len(ids)}"), text)
    *events, last = [line.removeprefix("data: ") for line in known.splitlines() if line.startswith("data: ")]
    assert last == "[DONE]"
    return [shortened(json.loads(event)) for event in events]


def shortened(event):
    if "response" in event:
        event["response"] = {name: event["response"][name] for name in ("id", "status", "output", "usage")}
    return event


@pytest.mark.parametrize("exchange", TURN, ids=["calls", "tells"])
async def test_codex_exchange_matches_the_recording(exchange):
    model = {"format": "hermes_json", "upstream_model": "smollm2", "aliases": ["hermes"]}
    async with listening(script(exchange["answer"]), model=model, backend={"kind": "llamacpp"}) as site:
        answer = await site.client.post("/v1/responses", json=exchange["request"])
        assert site.upstream_body == exchange["asked"]
    assert shortened_events(answer.text) == exchange["told"]
