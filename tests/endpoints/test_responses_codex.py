"""A turn of Codex CLI over the real small model, as it was recorded: it runs a command and tells what came of it.

recordings/codex.json has its two requests, and for each what the model was asked, what it answered, and what Codex got.
Texts are our own or shortened, ids and times made equal, and of the conversation before there is one example left.
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


def told(text):
    """The events, of their responses only what changes; ids are numbered."""
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
        assert site.asked == exchange["asked"]
    assert told(answer.text) == exchange["told"]
