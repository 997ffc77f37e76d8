"""Conversations as items of a response and as messages of a chat."""

import json

from gateway.endpoints.responses.items import Rules, read
from gateway.ledger import Ledger
from gateway.request import Thought
from support.paths import TESTS

CONVERSATIONS = json.loads((TESTS / "endpoints" / "conversations.json").read_text())

BLOCK = {"type": "thinking", "thinking": "Signed.", "signature": "s"}

REDACTED = {"type": "redacted_thinking", "data": "d"}

SEALED = {
    "ours": Thought("Sealed."),
    "signed": Thought("Signed.", (BLOCK,), "m"),
    "redacted": Thought("", (REDACTED,), "m"),
    "another's": Thought("Theirs.", (BLOCK,), "another"),
    "summary": Thought("All was well."),
}


def user(content="Hi", **more):
    """Return a message of the user."""
    return {"role": "user", "content": content, **more}


def assistant(content=None, *ids, **more):
    """Return a message of the assistant, with a call of the tool f for each id."""
    calls = [{"id": id, "type": "function", "function": {"name": "f", "arguments": "{}"}} for id in ids]
    return {"role": "assistant", "content": content, **({"tool_calls": calls} if calls else {}), **more}


def result(id, content="ok"):
    """Return a message with the output of a tool call."""
    return {"role": "tool", "tool_call_id": id, "content": content}


def conversation(input, instructions=None, ledger=None, **rules):
    return read(input, instructions, (), Rules(SEALED.get, ledger or Ledger(), "m", **rules))
