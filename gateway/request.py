"""Define the neutral request: a chat completion without the members that concern one API only."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from types import MappingProxyType
from typing import Any, Literal

from msgspec import Struct, json
from msgspec.structs import replace

from gateway.errors import BadRequest
from gateway.events import ToolKind

# As in a chat completion.  A past tool call may be of any kind and have a namespace, like its tool:
# {"id": …, "type": KIND, KIND: {"name": …, "namespace": …, "arguments": …}}.  The kind custom has `input` instead of
# `arguments`.  The arguments of the other kinds are the JSON that events.ToolCallStart describes.
Message = dict[str, Any]
SentTexts = dict[int, tuple[str, memoryview]]  # long texts by `id`, each with its JSON in the client's body
LEADING = ("system", "developer")  # roles of the messages before a conversation begins
_MANY = 1000  # messages
_LARGE = 1 << 20  # characters
_OBJECT = 90  # bytes of a short string and of its place in a set
_SPEAKERS = ("user", "assistant", "system")  # the roles that every server knows


def summary_message(text: str) -> Message:
    """Return the message that replaces the history before it."""
    return {"role": "user", "content": f"<conversation_summary>{text}</conversation_summary>"}


def tool_reference_text(name: str) -> str:
    """Return a reference to a tool, which a tool search has found, for a model without such parts."""
    return f"[tool available: {name}]"


def are_text_only(messages: Iterable[Any]) -> bool:
    """Return True if each message is a text in a role that every server knows.

    Such a message needs no validation, has no tool calls, and goes to every server unchanged.  The messages may be any
    decoded JSON.
    """
    for one in messages:
        if type(one) is not dict or len(one) != 2 or one.get("role") not in _SPEAKERS:
            return False
        if type(one.get("content")) is not str:
            return False
    return True


def are_large(messages: Sequence[Message], size: int | None = None) -> bool:
    """Return True if it takes tens of milliseconds to make a body of the messages.

    size: the length of all their texts, in characters or bytes; None to count it here.
    """
    return len(messages) > _MANY or (sum(map(_characters, messages)) if size is None else size) > _LARGE


def _characters(message: Message) -> int:
    """Return the number of characters in a message's texts."""
    content = message.get("content")
    size = len(content) if type(content) is str else 0
    if type(content) is list:
        size = sum(map(_part_characters, content))
    if "tool_calls" in message:
        items = [inner for call in message["tool_calls"] or () for inner in call.values() if type(inner) is dict]
        size += sum(len(text) for inner in items for text in inner.values() if type(text) is str)
    return size


def _part_characters(part: Mapping[str, Any]) -> int:
    """Return the number of characters in a part's texts, an image's data included."""
    return sum(
        len(text)
        for value in part.values()
        for text in (value.values() if type(value) is dict else (value,))
        if type(text) is str
    )


def insert_after_system(messages: Sequence[Message], message: Message) -> tuple[Message, ...]:
    """Return the messages with one more, after those that come before the conversation."""
    place = next((i for i, one in enumerate(messages) if one["role"] not in LEADING), len(messages))
    return (*messages[:place], message, *messages[place:])


class Tool(Struct, frozen=True):
    """A tool that the client offers, or the gateway if `hosted`.

    definition: the object that names the kind: {"name": …, "parameters": …}.
    deferred: the model may see it only once a search has found it.
    """

    name: str
    definition: dict[str, Any]
    kind: ToolKind = "function"
    namespace: str = ""
    hosted: bool = False
    deferred: bool = False


class ToolName(Struct, frozen=True):
    """A tool that a tool_choice forces or allows.

    Without a name it stands for all tools of a namespace that the model has yet to search for.
    """

    name: str
    namespace: str = ""

    @property
    def flat_name(self) -> str:
        """The namespace and the name in one word, for APIs without namespaces."""
        return f"{self.namespace}__{self.name}" if self.namespace else self.name


class ApprovedToolCall(Struct, frozen=True):
    """A past tool call that the client has approved.

    id: of the item that requested the approval, and of the tool call.
    """

    id: str
    tool_name: ToolName
    arguments: str


class StoredReasoning(Struct, frozen=True, omit_defaults=True):
    """Reasoning of a model, in a form that can go back to it.

    blocks: its signed parts, as the upstream of `model` expects them in `thinking_blocks`.
    digest: of the text, if the text travels beside the reasoning and is left out; else "".
    """

    text: str
    blocks: tuple[dict[str, Any], ...] = ()
    model: str = ""
    digest: str = ""


class NamedFiles(Struct, frozen=True):
    """The stored files that messages name.  sizes: in bytes, by the type of part; a file counts each time."""

    ids: frozenset[str] = frozenset()
    sizes: Mapping[str, int] = {}

    def __or__(self, other: "NamedFiles") -> "NamedFiles":
        return NamedFiles(self.ids | other.ids, Counter(self.sizes) + Counter(other.sizes))


class EncodedPast(Struct, frozen=True):
    """Earlier messages of the user, the assistant and tools in JSON, without the brackets of their list.

    The user has the first one.  A tool call is that of a function, and has an output, which is a text.
    characters: the length of their texts.  alternates: the user and the assistant take turns, and the assistant ends.
    leading: the instructions before them; warnings: about all of these.
    joined: the messages with lists of texts as one text; None if no message has such a list.
    before_user: only a message of the user may follow; else also a further tool call.
    call_ids: of their tool calls; has_text_beside_calls: in one message of the assistant.
    has_images: a message of the user has an image; has_image_urls: some image is elsewhere, not in a data URL.
    files: the stored ones that the messages named, before they became texts and data URLs.
    """

    messages: bytes
    characters: int
    alternates: bool
    leading: tuple[Message, ...] = ()
    warnings: tuple[str, ...] = ()
    joined: bytes | None = None
    before_user: bool = True
    call_ids: frozenset[str] = frozenset()
    has_text_beside_calls: bool = False
    has_images: bool = False
    has_image_urls: bool = False
    files: NamedFiles = NamedFiles()

    @property
    def size(self) -> int:
        """The memory that it takes at most, in bytes.  The messages have each id twice."""
        ids = len(self.messages) // 2 + _OBJECT * len(self.call_ids) if self.call_ids else 0
        return len(self.messages) + len(self.joined or b"") + len(json.encode(self.leading)) + ids

    def sent(self, *, lists: bool) -> bytes:
        """Return the messages for a server.  lists: it accepts a list of texts."""
        return self.messages if lists or self.joined is None else self.joined

    @property
    def stand_ins(self) -> tuple[Message, ...]:
        """The messages that stand for the past in a request."""
        return (*self.leading, *PAST)

    def decoded(self) -> list[Message]:
        """Return the messages."""
        found: list[Message] = json.decode(b"[%b]" % self.messages)
        return found


# Two messages that stand for an encoded past.  Transforms handle them as they handle the past, and pass them on.
PAST: tuple[Message, Message] = ({"role": "user", "content": ""}, {"role": "assistant", "content": ""})


def replace_past(messages: Sequence[Message], past: Sequence[Any]) -> list[Any]:
    """Return the messages with those of the past in place of `PAST`."""
    place = next(i for i, message in enumerate(messages) if message is PAST[0])
    return [*messages[:place], *past, *messages[place + len(PAST) :]]


class SentBody(Struct, frozen=True):
    """The body of a request of Anthropic's API, for a backend that speaks the same API.

    fields: as the client sent it; None if only the gateway can read all of it.
    messages, tools, rest: the neutral ones that it was parsed to.
    warnings: about all that they lack; notes: about members of `fields` that are not the client's.
    refusal: the error of a part that only such a backend takes.
    headers: those of the client that such a backend gets.
    """

    fields: dict[str, Any] | None
    messages: tuple[Message, ...]
    tools: "tuple[Tool, ...]"
    rest: Mapping[str, Any]
    warnings: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    refusal: BadRequest | None = None
    headers: Mapping[str, str] = MappingProxyType({})

    def stands_for(self, request: "Request") -> bool:
        """Return True if the request still has the messages, tools and parameters of the body, but for its limit."""
        same = request.messages is self.messages and request.tools is self.tools and request.rest == self.rest
        return self.fields is not None and same


ToolChoice = Literal["none", "auto", "required"] | ToolName


class Request(Struct, frozen=True, kw_only=True, dict=True):
    """A validated request to a model, neutral between the APIs.

    tool_choice: None if the client sent none.
    allowed: the offered tools that may be called; None: all.
    max_tokens: of the response, reasoning included; None: no limit was given.
    fresh: the response is a new message, even if the last message is the assistant's.
    shorten: if the prompt does not fit, its oldest messages may be left out.
    guided: a tool call is forced, and `response_format` is the schema of one.
    generates: False if the model only reads the messages, and generates nothing.
    large: it takes tens of milliseconds to make a body of it.
    rest: every other field, known or not, unchanged; null members are left out.
    own_fields: names in `rest` that the client's API has, and a chat completion has not.
    call_prefix: of the ids that the gateway gives to tool calls.
    names_stop: the response names the stop sequence that ended it.
    sent: the body in the API of some backend; None: no backend speaks the client's API.
    past: the messages that `PAST` stands for; None: the messages are complete.
    texts: long texts whose JSON is known.
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
    own_fields: frozenset[str] = frozenset()
    call_prefix: str = "call_"
    names_stop: bool = False
    sent: SentBody | None = None
    past: EncodedPast | None = None
    texts: SentTexts = {}

    def with_whole_past(self) -> "Request":
        """Return the request with all its messages."""
        if not self.past:
            return self
        messages = tuple(replace_past(self.messages, self.past.decoded()))
        return replace(self, messages=messages, large=are_large(messages), past=None)

    @cached_property
    def is_text_only(self) -> bool:
        """True if the messages hold nothing but texts, as most do."""
        return are_text_only(self.messages)

    @property
    def fields(self) -> Mapping[str, Any]:
        """The fields of the client's that a backend may get, besides those with a place of their own."""
        return (self.sent and self.sent.fields) or self.rest

    @property
    def prefill_size(self) -> int:
        """The characters of the assistant's message at the end, which a backend may continue; 0 without one."""
        last = self.messages[-1] if self.messages else {}
        return _characters(last) if last.get("role") == "assistant" else 0

    @property
    def is_plain(self) -> bool:
        """True if the request has only texts and no tools, as most do: no transform changes it."""
        return not self.tools and self.generates and self.is_text_only

    @property
    def may_name_files(self) -> bool:
        """True if a message may have a file, or the past may have had one."""
        return self.past is not None or not self.is_text_only

    @property
    def callable_tools(self) -> tuple[Tool, ...]:
        """The tools that may be called: none if the client forbade tool calls."""
        if self.tool_choice == "none":
            return ()
        if self.allowed is None:
            return self.tools
        return tuple(tool for tool in self.tools if ToolName(tool.name, tool.namespace) in self.allowed)

    @property
    def is_tool_forced(self) -> bool:
        """True if the model has to call a tool."""
        return self.tool_choice not in (None, "auto") and bool(self.callable_tools)
