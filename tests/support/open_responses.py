"""The compliance cases of Open Responses: requests, and scripts of the model behind them."""

import json

import openresponses_types as types

from support.upstream import COUNTS, chunk, completion_body, frame, stream, whole

THOUGHT = "<think>Let me see.</think>\n\n"

CALL = '<tool_call>\n{"name": "get_weather", "arguments": {"location": "Oslo"}}\n</tool_call>'

WEATHER = {
    "type": "function",
    "name": "get_weather",
    "description": "The weather of a place",
    "parameters": {"type": "object", "properties": {"location": {"type": "string"}}, "required": ["location"]},
}

EVENTS = {
    kind.value: event
    for name, event in vars(types).items()
    if name.endswith("StreamingEvent")
    for kind in event.model_fields["type"].annotation
}


def user(*content):
    """Return a message of text, or of parts."""
    return {"type": "message", "role": "user", "content": content[0] if isinstance(content[0], str) else [*content]}


def script(answer, streamed):
    """Return the script of a model that thinks and responds with this text."""
    raw = THOUGHT + answer
    if not streamed:
        return whole(completion_body(raw))
    pieces = [chunk(raw[i : i + 4]) for i in range(0, len(raw), 4)]
    return stream(*pieces, chunk(finish="stop"), frame(choices=[], usage=COUNTS))


def response(body):
    """Check a complete response, and return it: all its items have an id, a type and a status."""
    types.ResponseResource.model_validate_json(json.dumps(body), strict=True)
    assert (body["status"], body["error"], body["incomplete_details"]) == ("completed", None, None)
    assert all(item["id"] and item["type"] and item["status"] == "completed" for item in body["output"])
    assert body["output"][0]["type"] == "reasoning"
    return body
