"""Order the past of a conversation: results right behind their tool calls, and reasoning with what it led to."""

from collections import deque
from collections.abc import Iterable
from typing import Any

from msgspec import Struct

from gateway.api.messages.content import Content
from gateway.api.messages.errors import refused
from gateway.api.messages.thinking import PastThought, ThoughtReader
from gateway.request import LEADING, Message, summary_message

_NO_OUTPUT = "[no output]"
_UNMATCHED = (
    "unexpected `tool_use_id` found in `tool_result` blocks: {}. Each `tool_result` block must have a corresponding "
    "`tool_use` block in a previous message."
)
_DANGLING = (
    "`tool_use` ids were found without `tool_result` blocks immediately after: {}. Each `tool_use` block must have a "
    "corresponding `tool_result` block in the next message."
)


class PastToolUse(Struct):
    """A past tool call: its id, its entry in a chat message, and its result.

    by_server: a tool on the server's side ran it.
    """

    id: str
    payload: dict[str, Any]
    by_server: bool = False
    output: Content | None = None


class PastAssistantMessage(Struct):
    """Blocks that become one chat message of the assistant.

    param: the path of the client's message; turn: the number of its turn.
    """

    param: str
    turn: int
    texts: list[str] = []
    thoughts: list[PastThought] = []
    calls: list[PastToolUse] = []
    parted: bool = False  # another block follows the last text

    @property
    def over(self) -> bool:
        """True if the next block of the assistant comes after the results of these calls."""
        return bool(self.calls) and all(call.output is not None for call in self.calls)

    def say(self, text: str) -> None:
        """Add a text; a text behind another block begins a paragraph."""
        if self.parted and self.texts and not (self.texts[-1][-1:].isspace() or text[:1].isspace()):
            self.texts.append("\n\n")
        self.texts.append(text)
        self.parted = False


class MessageHistory:
    """Collect blocks in their order.

    kept_turns: the number of last turns whose reasoning goes back to the model; None: all.
    repairs: a call without a result gets an empty one, instead of an error.
    """

    def __init__(self, reader: ThoughtReader, kept_turns: int | None = None, *, repairs: bool = False) -> None:
        self.reader, self.ledger = reader, reader.ledger
        self._kept_turns, self._repairs = kept_turns, repairs
        self._entries: list[Message | PastAssistantMessage] = []
        self._calls: dict[str, PastToolUse] = {}
        self._current: PastAssistantMessage | None = None
        self._turn = 0

    def add(self, role: str, content: Content) -> None:
        """Add a message that is not the assistant's; one of the user begins a turn."""
        self._turn += role == "user"
        self._entries.append({"role": role, "content": content})

    def begin_assistant(self, param: str) -> None:
        """Begin a message of the assistant."""
        self._current = PastAssistantMessage(param, self._turn)
        self._entries.append(self._current)

    def say(self, text: str) -> None:
        """Add a text of the assistant."""
        self._speaking().say(text)

    def think(self, thought: PastThought) -> None:
        """Add reasoning of the assistant; empty reasoning only separates the texts around it."""
        speaking = self._speaking()
        speaking.parted = True
        if thought.text or thought.blocks:
            speaking.thoughts.append(thought)

    def call(self, call: PastToolUse, param: str) -> None:
        """Add a tool call.  Raise BadRequest if another one with the same id waits for its result."""
        before = self._calls.get(call.id)
        if before and before.output is None:
            raise refused("`tool_use` ids must be unique", f"{param}.id")
        speaking = self._speaking()
        speaking.parted = True
        speaking.calls.append(call)
        self._calls[call.id] = call

    def answer(self, id: str, output: Content, param: str) -> None:
        """Set the result of a tool call.  Raise BadRequest if no earlier call has this id."""
        call = self._calls.get(id)
        if not call:
            raise refused(_UNMATCHED.format(id), param)
        self._answer(call, output)

    def answer_by_server(self, id: str, output: Content, type: str) -> None:
        """Set the result of a call on the server's side; a result without its call is dropped with a warning."""
        call = self._calls.get(id)
        if call:
            self._answer(call, output)
        else:
            self.ledger.add("dropped", type)

    def replace_with_summary(self, text: str) -> None:
        """Replace all earlier messages but the leading instructions with a summary."""
        param = self._speaking().param
        self._entries = [one for one in self._entries if isinstance(one, dict) and one["role"] in LEADING]
        self._calls.clear()
        self._entries.append(summary_message(text))
        self.begin_assistant(param)

    def messages(self) -> list[Message]:
        """Return all chat messages, once.  Raise BadRequest for a call without a result."""
        thinking = sorted({one.turn for one in self._entries if isinstance(one, PastAssistantMessage) and one.thoughts})
        kept = {*(thinking if self._kept_turns is None else thinking[-self._kept_turns :])}
        speakers = [i for i, one in enumerate(self._entries) if not isinstance(one, dict) or one["role"] != "system"]
        last = speakers[-1] if speakers else -1
        messages: list[Message] = []
        entries, self._entries, self._calls = deque(self._entries), [], {}
        for i in range(len(entries)):
            one = entries.popleft()  # frees it: a long past takes much memory
            if isinstance(one, PastAssistantMessage):
                messages += self._messages_of(one, thoughts=one.turn in kept, last=i == last)
            else:
                messages.append(one)
        return messages

    def _speaking(self) -> PastAssistantMessage:
        """Return the message for the assistant's next block."""
        assert self._current
        if self._current.over:
            self.begin_assistant(self._current.param)
        return self._current

    def _answer(self, call: PastToolUse, output: Content) -> None:
        if call.output is not None:
            self.ledger.add("dropped", "tool_result")
        call.output = output

    def _messages_of(self, past: PastAssistantMessage, *, thoughts: bool, last: bool) -> Iterable[Message]:
        calls = [call for call in past.calls if self._is_settled(call, past.param, last=last)]
        if not (past.texts or calls):
            if past.thoughts:
                self.ledger.add("dropped", "thinking")
            return
        message: Message = {"role": "assistant", "content": "".join(past.texts) if past.texts else None}
        if thoughts:
            message |= _thought_fields(past.thoughts)
        if calls:
            message["tool_calls"] = [call.payload for call in calls]
        yield message
        for call in calls:
            if call.output is not None:
                yield {"role": "tool", "tool_call_id": call.id, "content": call.output}

    def _is_settled(self, call: PastToolUse, param: str, *, last: bool) -> bool:
        """Return True for a call that goes back to the model; False for one on the server without a result."""
        if call.output is not None:
            return True
        if call.by_server:
            self.ledger.add("dropped", "server_tool_use")
            return False
        if last:
            return True
        if not self._repairs:
            raise refused(_DANGLING.format(call.id), param)
        self.ledger.add("repaired", "tool_use")
        call.output = _NO_OUTPUT
        return True


def _thought_fields(thoughts: Iterable[PastThought]) -> Message:
    """Return reasoning as fields of the message that it led to."""
    text = "\n\n".join(thought.text for thought in thoughts if thought.text)
    blocks = [block for thought in thoughts for block in thought.blocks]
    fields = {"reasoning_content": text, "thinking_blocks": blocks}
    return {name: value for name, value in fields.items() if value}
