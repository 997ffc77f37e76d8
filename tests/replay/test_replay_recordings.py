"""Replay each recorded response of a real server through a gateway and compare it with its golden."""

import json

import pytest

from gateway.recording import ResponseDataEntry
from gateway.replay.runner import outcome_of, replayed
from support.recorded_servers import EXCHANGES, SERVERS, golden_file
from support.recordings import recording_of

GOLDENS = {name: one for server in SERVERS for name, one in json.loads(golden_file(server).read_text()).items()}
NAMES = [name for name, exchange in EXCHANGES.items() if exchange.answers and not exchange.like]


@pytest.mark.parametrize("name", NAMES)
async def test_replay_of_a_recorded_response_equals_its_golden(name):
    golden, again = GOLDENS[name], await replayed(recording_of(name))
    if "choices" not in golden:
        assert outcome_of(again).problem == golden["problem"]["code"]
        return
    response = json.loads(b"".join(entry.data for entry in again.entries if isinstance(entry, ResponseDataEntry)))
    for choice in (*response["choices"], *golden["choices"]):
        for call in choice.get("message", {}).get("tool_calls") or ():
            call.pop("id")
    assert response["choices"] == golden["choices"]
    assert (
        response["usage"] == golden["usage"] or "estimated:usage" in golden["ledger"]
    )  # by the length of the question
