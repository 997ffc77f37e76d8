"""Requests with tools of MCP servers, and scripts of models that call them."""

import json

from support.upstream import COUNTS, call, chunk, frame, stream

MCP = {"type": "mcp", "server_label": "toys"}


def calling(*made, text=None):
    """Return the script of a model that makes these calls, each a name and its arguments."""
    frames = [chunk(text)] if text else []
    for place, (name, arguments) in enumerate(made):
        frames.append(chunk(tool_calls=call(name, json.dumps(arguments), place=place, id=f"call_{place}")))
    return stream(*frames, chunk(finish="tool_calls"), frame(choices=[], usage=COUNTS))


ECHO, ADD = ("toys__echo", {"text": "a"}), ("toys__add", {"a": 1, "b": 2})


def of_type(response, type):
    """Return the output items of this type."""
    return [item for item in response["output"] if item["type"] == type]


ASKING = {**MCP, "require_approval": "always", "allowed_tools": ["echo"]}
