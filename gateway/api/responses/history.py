"""Convert input items, each with one thing, to chat messages, which may hold several."""

from collections import deque
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from msgspec import Struct

from gateway.api.validation import (
    ParamCheck,
    check_exclusive,
    missing_parameter,
    object_of,
    one_of,
    string,
    string_of,
    wrong_type,
    wrong_value,
)
from gateway.errors import BadRequest
from gateway.request import LEADING, ApprovedToolCall, Message, StoredReasoning, ToolName, summary_message
from gateway.warnings import Warnings

ContentPart = dict[str, Any]
Content = str | list[ContentPart]
PartConverter = Callable[[ContentPart, str], ContentPart]

_LONGEST = 10_485_760  # characters: the limits of the Open Responses specification
_FEW = 16  # members: a part with no more of them needs no count
long = string_of(_LONGEST)
_url = string_of(20_971_520)
_ANY_PART = object_of({"type": string})
_DETAIL = {"detail": one_of("low", "high", "auto", "original")}
_IMAGE = object_of({}, {**_DETAIL, "file_id": string})
_AUDIO = object_of({"input_audio": object_of({"data": string, "format": string})})
_FILE: Mapping[str, ParamCheck] = {"file_data": string_of(33_554_432), "file_url": _url, "file_id": string}
_IMAGE_SOURCES = ("image_url", "file_id")
Item = dict[str, Any]
_NO_OUTPUT = "[no output]"
_UNDECIDED = "This call was not made: the user has not approved it."
_REFUSED = "This call was not made: the user did not approve it."
UNKNOWN = "It is not known what came of this call."


def convert_content(value: object, param: str, among: Mapping[str, PartConverter]) -> Content:
    """Return a text, or parts of these types as in a chat message; a single text part becomes its text.

    Raise BadRequest for other content.
    """
    if value is None:
        raise missing_parameter(param)
    if isinstance(value, str):
        long(value, param)
        return value
    if not isinstance(value, list):
        raise wrong_type(value, param, "one of a string or array of objects")
    read = [_part(one, f"{param}[{i}]", among) for i, one in enumerate(value)]
    return read[0]["text"] if len(read) == 1 and read[0]["type"] == "text" else read


def assistant_text(value: object, param: str) -> str:
    """Return the text of one message of the assistant."""
    text = convert_content(value, param, ASSISTANT_PARTS)
    return text if isinstance(text, str) else "".join(part["text"] for part in text)


def text_part(text: str) -> ContentPart:
    """Return a text part of a chat message."""
    return {"type": "text", "text": text}


def _part(value: Any, param: str, among: Mapping[str, PartConverter]) -> ContentPart:  # noqa: ANN401 - decoded JSON
    if type(value) is not dict or type(value.get("type")) is not str:
        _ANY_PART(value, param)
    read = among.get(value["type"])
    if not read:
        raise wrong_value(value["type"], param, among)
    return read(value, param)


def _text(name: str) -> PartConverter:
    check = object_of({name: long})

    def read(part: ContentPart, param: str) -> ContentPart:
        text = part.get(name)
        if type(text) is not str or len(text) > _LONGEST or len(part) > _FEW:
            check(part, param)
        return text_part(part[name])

    return read


def _image(part: ContentPart, param: str) -> ContentPart:
    check_exclusive(part, param, _IMAGE_SOURCES)
    _IMAGE(part, param)
    stored = part.get("file_id") is not None
    image = {"file_id": part["file_id"]} if stored else {"url": _flat(part, param, "image_url")}
    if detail := part.get("detail") or nested_detail(part):
        image["detail"] = "high" if detail == "original" else detail
    return {"type": "image_url", "image_url": image}


def _video(part: ContentPart, param: str) -> ContentPart:
    return {"type": "video_url", "video_url": {"url": _flat(part, param, "video_url")}}


def _audio(part: ContentPart, param: str) -> ContentPart:
    _AUDIO(part, param)
    return {"type": "input_audio", "input_audio": part["input_audio"]}


def _file(part: ContentPart, param: str) -> ContentPart:
    check_exclusive(part, param, _FILE)
    where = next((name for name in _FILE if part.get(name) is not None), "file_data")
    object_of({where: _FILE[where]}, {"filename": string})(part, param)
    given = {name: part[name] for name in (where, "filename") if part.get(name) is not None}
    return {"type": "file", "file": given}


def nested_detail(part: ContentPart) -> str | None:
    """Return the detail of an image that is within `image_url`, as in chat completions."""
    image = part.get("image_url")
    return image.get("detail") if isinstance(image, dict) else None


def _flat(part: ContentPart, param: str, name: str) -> str:
    """Return a URL; clients that know chat completions write it as an object."""
    nested = isinstance(part.get(name), dict)
    check: ParamCheck = object_of({"url": _url}, _DETAIL) if nested else _url
    object_of({name: check})(part, param)
    url: str = part[name]["url"] if nested else part[name]
    return url


# The types of parts that are only a text.
TEXTS = {name: _text("text") for name in ("input_text", "output_text", "text", "summary_text", "reasoning_text")}
ASSISTANT_PARTS: Mapping[str, PartConverter] = {**TEXTS, "refusal": _text("refusal")}
OUTPUT: Mapping[str, PartConverter] = {**TEXTS, "input_image": _image, "input_file": _file}
MESSAGE: Mapping[str, PartConverter] = {
    **OUTPUT,
    "input_audio": _audio,
    "input_video": _video,
    "computer_screenshot": _image,
}


class HistoryRules(Struct, frozen=True):
    """The rules and functions for reading an input.

    open: decrypts `encrypted_content`; None if the gateway did not encrypt it.
    model: the model of the response, which gets back its own signatures.
    all_turns: reasoning from before the last user message is kept, too.
    repair_dangling_calls: a tool call without an output gets one, instead of an error.
    items: the items of references, by id.
    approves: the input may hold approvals of tool calls.
    """

    open: Callable[[str], StoredReasoning | None]
    ledger: Warnings
    model: str
    all_turns: bool = False
    repair_dangling_calls: bool = False
    items: Mapping[str, Item] = {}
    approves: bool = False


class PastToolCall(Struct):
    """A past tool call: the type of its item, and its form in a message.

    cut: the model's output ended within it, so it may have no output.
    """

    type: str
    id: str
    name: ToolName
    payload: dict[str, Any]
    cut: bool
    output: Content | None = None


class _AssistantTurn(Struct):
    """Items that become one message of the assistant, and the outputs of its tool calls in order of arrival."""

    thoughts: list[Item] = []
    texts: list[str] = []
    calls: list[PastToolCall] = []
    answered: list[PastToolCall] = []

    @property
    def over(self) -> bool:
        """True if all tool calls have outputs, so that the assistant's next text is another message."""
        return bool(self.calls) and len(self.answered) == len(self.calls)


class History:
    """Collect the items of a conversation in order.

    tools: tool definitions from items, with their paths.
    settings: parameters from items, the latest of each.
    lists: the tools that MCP servers listed, by server label.
    approved: approved tool calls that are yet to be made, by id.
    """

    def __init__(self, rules: HistoryRules) -> None:
        self.rules = rules
        self.lists: dict[str, list[dict[str, Any]]] = {}
        self.approved: dict[str, ApprovedToolCall] = {}
        self.tools: list[tuple[dict[str, Any], str]] = []
        self.settings: dict[str, dict[str, Any]] = {}
        self._messages: list[Message | _AssistantTurn] = []
        self._calls: dict[str, tuple[_AssistantTurn, PastToolCall]] = {}
        self._open: dict[ToolName, dict[str, PastToolCall]] = {}

    def add(self, message: Message) -> None:
        """Add a message of another role than the assistant's."""
        self._messages.append(message)

    def add_tools(self, tools: Iterable[dict[str, Any]], param: str) -> None:
        """Add tools that may be called from here on, from the item at this path."""
        self.tools += [(tool, f"{param}.tools[{i}]") for i, tool in enumerate(tools)]

    def say(self, text: str) -> None:
        """Add a text of the assistant."""
        self._group().texts.append(text)

    def add_reasoning(self, item: Item) -> None:
        """Add a reasoning item."""
        self._group().thoughts.append(item)

    def add_tool_call(self, call: PastToolCall, also: str | None = None) -> None:
        """Add a tool call.  Its output refers to its id, or to `also`."""
        group = self._group()
        group.calls.append(call)
        self._open.setdefault(call.name, {})[call.id] = call
        self._calls[also or call.id] = self._calls[call.id] = group, call

    def only_open_call(self, named: ToolName) -> str | None:
        """Return the id of the tool call of this name that waits for its output, if there is exactly one."""
        waiting = self._open.get(named, {})
        return next(iter(waiting)) if len(waiting) == 1 else None

    def answer(self, id: str, type: str, output: Content) -> None:
        """Set the output of a tool call, from an item of this type at any position.

        Raise BadRequest for an unknown id.
        """
        if id not in self._calls:
            message = f"No tool call found for {type.replace('_', ' ')} with call_id {id}."
            raise BadRequest(message, param="input")
        if self._calls[id][1].output is not None:
            self.rules.ledger.add("dropped", f"input.{type}")
        self._answered(id, output)

    def add_approval(self, id: str, *, approve: bool, reason: str) -> None:
        """Approve or refuse a tool call; its output follows once it was made.  Raise BadRequest for an unknown id."""
        if id not in self._calls:
            raise BadRequest(f"No approval request found with id '{id}'.", param="input")
        _, call = self._calls[id]
        self._answered(id, "" if approve else f"{_REFUSED} {reason}".strip())
        if approve:
            self.approved[id] = ApprovedToolCall(id, call.name, call.payload["function"]["arguments"])

    def add_approved_output(self, id: str, output: Content) -> bool:
        """Set the output of an approved tool call; return False for other calls."""
        if id not in self._calls:
            return False
        self.approved.pop(id, None)
        self._answered(id, output)
        return True

    def close_approved_calls(self) -> None:
        """Give approved calls without an output a substitute, so that they are not made again."""
        for id in self.approved:
            self._answered(id, UNKNOWN)
        self.approved.clear()

    def _answered(self, id: str, output: Content) -> None:
        group, call = self._calls[id]
        if call.output is None:
            group.answered.append(call)
            self._open[call.name].pop(call.id, None)
        call.output = output

    def replace_with_summary(self, text: str) -> None:
        """Replace all messages so far by a summary, except system and developer messages."""
        self._messages = [one for one in self._messages if isinstance(one, dict) and one["role"] in LEADING]
        self.add(summary_message(text))

    def messages(self) -> list[Message]:
        """Return the messages, and forget them: thousands of tool calls take megabytes.

        Raise BadRequest for a tool call without an output.
        """
        users = (i for i, one in enumerate(self._messages) if isinstance(one, dict) and one["role"] == "user")
        last = -1 if self.rules.all_turns else max(users, default=-1)
        queue, self._messages, self._calls, self._open = deque(self._messages), [], {}, {}
        messages: list[Message] = []
        i = 0
        while queue:
            one = queue.popleft()
            messages += self._turn(one, thoughts=i > last) if isinstance(one, _AssistantTurn) else [one]
            i += 1
        return messages

    def _group(self) -> _AssistantTurn:
        last = self._messages[-1] if self._messages else None
        if isinstance(last, _AssistantTurn) and not last.over:
            return last
        group = _AssistantTurn()
        self._messages.append(group)
        return group

    def _turn(self, group: _AssistantTurn, *, thoughts: bool) -> Iterable[Message]:
        calls = [call for call in group.calls if self._settled(group, call)]
        if not (group.texts or calls):
            if group.thoughts:
                self.rules.ledger.add("dropped", "input.reasoning")
            return
        text = "\n\n".join(filter(None, group.texts)) if group.texts else None
        message: Message = {"role": "assistant", "content": text}
        if thoughts:
            message |= self._thought(group.thoughts)
        elif group.thoughts:
            self.rules.ledger.add("dropped", "input.reasoning")
        if calls:
            message["tool_calls"] = [call.payload for call in calls]
        yield message
        for call in group.answered:
            yield {"role": "tool", "tool_call_id": call.id, "content": call.output}

    def _settled(self, group: _AssistantTurn, call: PastToolCall) -> bool:
        """Return True for a tool call with an output, False for one that was cut and needs none."""
        if call.output is not None:
            return True
        if call.type == "mcp_approval_request":
            return self._closed(group, call, _UNDECIDED)
        if call.cut:
            self.rules.ledger.add("dropped", f"input.{call.type}")
            return False
        if not self.rules.repair_dangling_calls:
            message = f"No tool output found for {call.type.replace('_', ' ')} {call.id}."
            raise BadRequest(message, param="input")
        self.rules.ledger.add("repaired", f"input.{call.type}")
        return self._closed(group, call, _NO_OUTPUT)

    def _closed(self, group: _AssistantTurn, call: PastToolCall, output: str) -> bool:
        call.output = output
        group.answered.append(call)
        return True

    def _thought(self, items: Iterable[Item]) -> Message:
        """Return the reasoning as fields of the message that it led to."""
        texts: list[str] = []
        blocks: list[dict[str, Any]] = []
        for item in items:
            opened = self._opened(item.get("encrypted_content"))
            sealed = opened.text if opened else ""
            texts.append(_joined(item.get("content")) or sealed or _joined(item.get("summary")))
            if opened and opened.model == self.rules.model:
                blocks += opened.blocks
        fields = {"reasoning_content": "\n\n".join(filter(None, texts)), "thinking_blocks": blocks}
        return {name: value for name, value in fields.items() if value}

    def _opened(self, sealed: str | None) -> StoredReasoning | None:
        opened = self.rules.open(sealed) if sealed else None
        if sealed and not opened:
            self.rules.ledger.add("dropped", "input.reasoning.encrypted_content")
        return opened


class HistoryExcerpt(History):
    """Items that continue unknown items: an output may belong to an earlier tool call."""

    def answer(self, id: str, type: str, output: Content) -> None:
        """Set the output of a tool call, if the call is known."""
        if id in self._calls:
            super().answer(id, type, output)

    def add_approval(self, id: str, *, approve: bool, reason: str) -> None:
        """Approve or refuse a tool call, if the call is known."""
        if id in self._calls:
            super().add_approval(id, approve=approve, reason=reason)


def _joined(parts: list[ContentPart] | None) -> str:
    return "\n\n".join(part["text"] for part in parts or ())
