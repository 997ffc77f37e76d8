"""Replay the recordings that `gateway replay --test` made into tests, with several chunkings."""

import pytest

from gateway.cli.replay import load_golden
from gateway.recording import parse_recording
from gateway.replay.mock_backend import join_chunks, split_every
from gateway.replay.runner import ReplayOptions, outcome_of, replayed
from support.paths import TESTS

FILES = sorted((TESTS / "replays").glob("*.jsonl"))


@pytest.mark.parametrize(
    "cut", [None, split_every(1), split_every(7), join_chunks], ids=["recorded", "1", "7", "whole"]
)
@pytest.mark.parametrize("file", FILES, ids=[file.stem for file in FILES])
async def test_replay_means_what_its_golden_says(file, cut):
    assert outcome_of(await replayed(parse_recording(file.read_bytes()), ReplayOptions(cut=cut))) == load_golden(file)
