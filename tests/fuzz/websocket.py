"""Messages of a WebSocket: what they mean is told, never raised."""

import json

from fuzz.mutation import mutated
from fuzz.requests import check_refusal, refusing, request_bodies, words
from fuzz.target import Target, begun
from gateway.api.body import decode_body
from gateway.server.websocket.messages import CreateMessage, InvalidMessage, parse_message


@refusing
def check(given):
    """What it asks with is read by others, who may refuse it."""
    message = parse_message(given.choose(0, (given.content, given.text)))
    if isinstance(message, InvalidMessage):
        check_refusal(message.problem)
    elif isinstance(message, CreateMessage):
        assert decode_body(message.body)["stream"] is True


def seeds():
    for body in request_bodies("/v1/responses"):
        yield begun(
            json.dumps(
                {"type": "response.create", "stream_id": "a", "previous_response_id": "resp_1", **json.loads(body)}
            )
        )
    yield begun('{"type": "response.steer", "event": {}}', 1)
    yield begun('{"type": "response.processed"}', 1)


TARGETS = {"websocket": Target(check, seeds, words, mutated)}
