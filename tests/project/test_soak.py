"""Run a small soak of two equal rounds: the second one leaves nothing behind."""

from soak.run import Soak, rounds

GROWTH = 12.0  # MB that the second round may leave


def test_soak_second_round_leaves_no_more_than_the_first():
    first, second = rounds(Soak(seconds=3, streams=40, workers=2, pause=0.05, ramp=1), 2)
    assert first.load.ended.total() > 20 and second.load.ended.total() > 20
    assert len(second.load.ended) > 4, "faults and clients of all sorts were among them"
    assert [*first.wrong(), *second.wrong()] == []
    assert second.after.memory - first.after.memory < GROWTH
