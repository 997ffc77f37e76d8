"""Replay the recordings that `gateway replay --test` made into tests, with several chunkings."""

import pytest

from gateway.recording import read
from gateway.replay.command import golden
from gateway.replay.driving import ReplayOptions, replayed
from gateway.replay.meaning import meaning
from gateway.replay.script import every, whole
from support.paths import TESTS

FILES = sorted((TESTS / "replays").glob("*.jsonl"))


@pytest.mark.parametrize("cut", [None, every(1), every(7), whole], ids=["recorded", "1", "7", "whole"])
@pytest.mark.parametrize("file", FILES, ids=[file.stem for file in FILES])
async def test_replay_means_what_its_golden_says(file, cut):
    assert meaning(await replayed(read(file.read_bytes()), ReplayOptions(cut=cut))) == golden(file)
