"""Conversations as items of a response and as messages of a chat."""

import json

from gateway.api.responses.input_items import HistoryRules, read_input
from gateway.request import StoredReasoning
from gateway.warnings import Warnings
from support.paths import TESTS

CONVERSATIONS = json.loads((TESTS / "api" / "conversations.json").read_text())

BLOCK = {"type": "thinking", "thinking": "Signed.", "signature": "s"}

REDACTED = {"type": "redacted_thinking", "data": "d"}

SEALED = {
    "ours": StoredReasoning("Sealed."),
    "signed": StoredReasoning("Signed.", (BLOCK,), "m"),
    "redacted": StoredReasoning("", (REDACTED,), "m"),
    "another's": StoredReasoning("Theirs.", (BLOCK,), "another"),
    "summary": StoredReasoning("All was well."),
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
    """Return the messages that the items of a response become."""
    return read_input(input, instructions, (), HistoryRules(SEALED.get, ledger or Warnings(), "m", **rules))
