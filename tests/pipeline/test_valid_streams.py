"""Test that no valid stream gets worse: the official SDK makes the same of it with the gateway and without it."""

import json

import pytest

from support.pipeline import DONE, payloads, sse
from support.sampling import examples
from support.turns import asked, make_turn
from support.valid_streams import TOOLS, folded, stream


def behind_the_gateway(chunks, n, format):
    """Return the chunks that a client gets of these."""
    turn = make_turn(asked(tools=TOOLS, **({"n": n} if n > 1 else {})), format=format)
    turn.start()
    turn.answered("text/event-stream")
    data = b"".join([turn.feed(piece) for piece in [*map(sse, chunks), DONE]])
    return payloads(data + b"".join(action.data for action in turn.close() if hasattr(action, "data")))


@pytest.mark.parametrize("format", ["native", "hermes_json", "auto"])
@pytest.mark.parametrize("block", range(4))
def test_valid_stream_means_the_same_behind_the_gateway(block, format):
    for seed in range(block * 10_000, block * 10_000 + examples(40)):
        chunks, n = stream(seed)
        assert folded(behind_the_gateway(chunks, n, format)) == folded(chunks), (seed, json.dumps(chunks))
