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


def conversation(input, instructions=None, ledger=None, **rules):
    return read(input, instructions, (), Rules(SEALED.get, ledger or Ledger(), "m", **rules))
