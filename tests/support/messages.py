"""Bodies for the tests of /v1/messages, and what parsing makes of them."""

import json
from itertools import count

import pytest

from gateway.api import messages
from gateway.api.body import decode_body
from gateway.api.responses import EncoderInputs, ParseSettings
from gateway.errors import BadRequest
from gateway.request import Request, StoredReasoning
from gateway.warnings import Warnings
from support.messages_events import check_same, checked, checked_whole
from support.responses import KEEP_ALIVE


def seal(thought):
    """Return a seal that `open_seal` reads."""
    return "sealed:" + json.dumps([thought.text, thought.blocks, thought.model, thought.digest])


def open_seal(sealed):
    if not sealed.startswith("sealed:"):
        return None
    text, blocks, model, digest = json.loads(sealed.removeprefix("sealed:"))
    return StoredReasoning(text, tuple(blocks), model, digest)


SETTINGS = ParseSettings(open=open_seal)
SERVES = ParseSettings(open=open_seal, runs=lambda definition: True)
REPAIRS = ParseSettings(open=open_seal, repair_dangling_calls=True)
TOOL = {"name": "f", "description": "d", "input_schema": {"type": "object", "properties": {}}}
IMAGE = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AAAA"}}
IMAGE_PART = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}


def text(content, **more):
    return {"type": "text", "text": content, **more}


def use(id="toolu_a", name="f", **input):
    return {"type": "tool_use", "id": id, "name": name, "input": input}


def result(id="toolu_a", content="3C", **more):
    return {"type": "tool_result", "tool_use_id": id, "content": content, **more}


def user(*blocks):
    return {"role": "user", "content": [*blocks]}


def assistant(*blocks):
    return {"role": "assistant", "content": [*blocks]}


def system(*blocks):
    return {"role": "system", "content": [*blocks]}


QUESTION = {"role": "user", "content": "q"}


def body_of(**fields):
    return {"model": "m", "max_tokens": 100, "messages": [QUESTION], **fields}


def parsed(settings=SETTINGS, ledger=None, **fields):
    """Return the parameters of a message with these fields; one that is None is left out."""
    body = decode_body(json.dumps(body_of(**fields)).encode())
    return messages.parse_message(body, settings, Warnings() if ledger is None else ledger)


def chat(*given, settings=SETTINGS, **fields):
    """Return the chat messages that messages become, and the warnings."""
    ledger = Warnings()
    return [*parsed(settings, ledger, messages=[*given], **fields).request.messages], ledger.entries()


def warnings_of(settings=SETTINGS, **fields):
    ledger = Warnings()
    parsed(settings, ledger, **fields)
    return ledger.entries()


def refusal_of(*given, settings=SETTINGS, **fields):
    """Return the status, the error object and the path of what a body is refused with."""
    with pytest.raises(BadRequest) as caught:
        parsed(settings, **fields, **({"messages": [*given]} if given else {}))
    problem = caught.value.problem
    error = json.loads(messages.error_body(problem, "req_1"))
    assert error.keys() == {"type", "error", "request_id"} and error["type"] == "error"
    return messages.error_status(problem), error["error"], problem.param


def refusal_message(*given, **fields):
    """Return the message of a refusal that has nothing else to say."""
    status, error, _ = refusal_of(*given, **fields)
    assert (status, error.keys(), error["type"]) == (400, {"type", "message"}, "invalid_request_error")
    return error["message"]


# Answers


def encoder_of(stream=True, *, ledger=None, generates=True, head=None, stops=(), shown=True):
    """Return an encoder whose ids count."""
    numbers = count(1)
    request = Request(model="m", messages=(), stream=stream, generates=generates)
    params = messages.MessageParams(request=request, stop_sequences=frozenset(stops), shows_thinking=shown)
    inputs = EncoderInputs(lambda prefix: f"{prefix}{next(numbers)}", lambda: 0, seal, lambda: "")
    heading = messages.MessageHead("msg_1", "m", "req_1", **(head or {}))
    return messages.message_encoder(heading, params, Warnings() if ledger is None else ledger, inputs)


def encoded(events, stream=True, **options):
    """Return all bytes for the client."""
    out = encoder_of(stream, **options)
    data = out.start()
    data += b"".join(out.keep_alive() if event is KEEP_ALIVE else out.encode([event]) for event in events)
    return data + out.close(stored=False)


def whole_message(*events, **options):
    """Return the message that these events come to: what a stream folds into, which is the whole message."""
    message = checked(encoded(events, **options))
    check_same(message, checked_whole(encoded(events, stream=False, **options)))
    return message
