"""Messages of a WebSocket: what they mean is told, never raised."""

import json

from fuzz.mutation import mutated
from fuzz.requests import asks, check_refusal, refusing, words
from fuzz.target import Target, begun
from gateway.api.body import decode_body
from gateway.server.websocket.messages import CreateMessage, InvalidMessage, parse_message


@refusing
def check(given):
    """What it asks with is read by others, who may refuse it."""
    said = parse_message(given.choose(0, (given.content, given.text)))
    if isinstance(said, InvalidMessage):
        check_refusal(said.problem)
    elif isinstance(said, CreateMessage):
        assert decode_body(said.body)["stream"] is True


def seeds():
    for body in asks("/v1/responses"):
        yield begun(
            json.dumps(
                {"type": "response.create", "stream_id": "a", "previous_response_id": "resp_1", **json.loads(body)}
            )
        )
    yield begun('{"type": "response.steer", "event": {}}', 1)
    yield begun('{"type": "response.processed"}', 1)


TARGETS = {"websocket": Target(check, seeds, words, mutated)}
