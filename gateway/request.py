"""Define the neutral request: a chat completion without the members that concern one API only."""

from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import Any, Literal

from msgspec import Struct

from gateway.events import ToolKind

# As in a chat completion.  A past call may be of any kind and have a namespace, like the tool that it called:
# {"id": …, "type": KIND, KIND: {"name": …, "namespace": …, "arguments": …}}, of kind custom with `input` instead of
# `arguments`; the arguments of the other kinds are the JSON that events.ToolStart tells of.
Message = dict[str, Any]
LEADING = ("system", "developer")  # roles of what is said before a conversation begins
_MANY = 1000  # messages
_LARGE = 1 << 20  # characters
_SPEAKERS = ("user", "assistant", "system")  # that every server has


def summary_message(text: str) -> Message:
    """Return the message that replaces the history before it."""
    return {"role": "user", "content": f"<conversation_summary>{text}</conversation_summary>"}


def are_text_only(messages: Iterable[Any]) -> bool:
    """Return True if each message, which may be anything, is a text in a role that every server has.

    There is nothing wrong with such a message, nothing in it about calls, and nothing that anybody has to change.
    """
    for one in messages:
        if type(one) is not dict or len(one) != 2 or one.get("role") not in _SPEAKERS:
            return False
        if type(one.get("content")) is not str:
            return False
    return True


def are_large(messages: Sequence[Message], size: int | None = None) -> bool:
    """Return True if it takes tens of milliseconds to make a body of the messages.

    size: of all their texts, in characters or bytes; None if it is to be counted.
    """
    return len(messages) > _MANY or (sum(map(_characters, messages)) if size is None else size) > _LARGE


def _characters(message: Message) -> int:
    """Return how many there are in its texts."""
    content = message.get("content")
    size = len(content) if type(content) is str else 0
    if type(content) is list:
        size = sum(len(text) for part in content for text in part.values() if type(text) is str)
    if "tool_calls" in message:
        items = [inner for call in message["tool_calls"] or () for inner in call.values() if type(inner) is dict]
        size += sum(len(text) for inner in items for text in inner.values() if type(text) is str)
    return size


def insert_after_system(messages: Sequence[Message], message: Message) -> tuple[Message, ...]:
    """The messages with one more, behind those that come before the conversation."""
    place = next((i for i, one in enumerate(messages) if one["role"] not in LEADING), len(messages))
    return (*messages[:place], message, *messages[place:])


class Tool(Struct, frozen=True):
    """A tool the client offers, or the gateway: `hosted`.

    definition: the object that names the kind: {"name": …, "parameters": …}.
    """

    name: str
    definition: dict[str, Any]
    kind: ToolKind = "function"
    namespace: str = ""
    hosted: bool = False


class ToolName(Struct, frozen=True):
    """A tool that a tool_choice forces or allows; without a name, all of a namespace that are yet to be found."""

    name: str
    namespace: str = ""

    @property
    def flat_name(self) -> str:
        """In one word, where names have no namespace of their own."""
        return f"{self.namespace}__{self.name}" if self.namespace else self.name


class ApprovedToolCall(Struct, frozen=True):
    """A call of the past that may be made now; the id is that of the item which asked for approval, and of the call."""

    id: str
    tool_name: ToolName
    arguments: str


class StoredReasoning(Struct, frozen=True):
    """Reasoning of a model, in a form that can go back to it.

    blocks: the signed parts of it, as the upstream of `model` wants them back in `thinking_blocks`.
    """

    text: str
    blocks: tuple[dict[str, Any], ...] = ()
    model: str = ""


ToolChoice = Literal["none", "auto", "required"] | ToolName


class Request(Struct, frozen=True, kw_only=True, dict=True):
    """One question to a model.

    tool_choice: None where the client said nothing.
    allowed: the tools that may be called, of those that are offered; None: all.
    max_tokens: of the answer, reasoning included; None: no limit was given.
    fresh: the answer is a message of its own, also where the last message is the assistant's.
    shorten: where the prompt does not fit, its oldest messages may be left out.
    guided: a call is forced, and `response_format` is the form of one.
    generates: False where the model is to read all this, and to say nothing.
    large: it takes tens of milliseconds to make a body of it.
    rest: every other field, known or not, as it came; null was left out.
    """

    model: str
    messages: tuple[Message, ...]
    tools: tuple[Tool, ...] = ()
    tool_choice: ToolChoice | None = None
    allowed: frozenset[ToolName] | None = None
    max_tokens: int | None = None
    n: int = 1
    stream: bool = False
    fresh: bool = False
    shorten: bool = False
    guided: bool = False
    generates: bool = True
    large: bool = False
    rest: dict[str, Any] = {}

    @cached_property
    def is_text_only(self) -> bool:
        """True if there is nothing but texts in its messages, as of most."""
        return are_text_only(self.messages)

    @property
    def callable_tools(self) -> tuple[Tool, ...]:
        """The tools that may be called: none of them where the client forbade it."""
        if self.tool_choice == "none":
            return ()
        if self.allowed is None:
            return self.tools
        return tuple(tool for tool in self.tools if ToolName(tool.name, tool.namespace) in self.allowed)

    @property
    def is_tool_forced(self) -> bool:
        """True if a tool has to be called."""
        return self.tool_choice not in (None, "auto") and bool(self.callable_tools)
