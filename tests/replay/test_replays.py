"""Replay the recordings that `gateway replay --test` made into tests, with several chunkings."""

import pytest

from gateway.recording import parse_recording
from gateway.replay.command import load_golden
from gateway.replay.driving import ReplayOptions, replayed
from gateway.replay.meaning import outcome_of
from gateway.replay.script import join_chunks, split_every
from support.paths import TESTS

FILES = sorted((TESTS / "replays").glob("*.jsonl"))


@pytest.mark.parametrize(
    "cut", [None, split_every(1), split_every(7), join_chunks], ids=["recorded", "1", "7", "whole"]
)
@pytest.mark.parametrize("file", FILES, ids=[file.stem for file in FILES])
async def test_replay_means_what_its_golden_says(file, cut):
    assert outcome_of(await replayed(parse_recording(file.read_bytes()), ReplayOptions(cut=cut))) == load_golden(file)
