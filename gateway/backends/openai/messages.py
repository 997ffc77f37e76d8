"""Convert messages to the form that the chat templates of local servers accept (`spec.md` A2).

Templates are particular about roles, text, past calls, reasoning, and the order of messages.
"""

from collections.abc import Iterable, Sequence
from typing import Any, Literal

from msgspec import DecodeError, Struct, json

from gateway.request import LEADING, Message, are_text_only, tool_reference_text
from gateway.warnings import Warnings

_NO_OUTPUT = "[no output]"
_OF_THE_FIRST = ("role", "name")  # members that a merged message has from its first one
_NAME, _OF_THE_CACHE = frozenset(("name",)), frozenset(("prompt_cache_breakpoint",))
_LEADING = frozenset(LEADING)
_TEXTS = ("text", "refusal")  # each part has its text under the name of its type
_REASONING = ("reasoning_content", "reasoning")
_THOUGHTS = frozenset((*_REASONING, "reasoning_details"))
_OF_A_RESPONSE = ("annotations", "parsed")  # members that only a response has; SDKs send them back, servers refuse them
_OF_THE_SDK = frozenset(("index", "parsed_arguments"))  # members that SDKs add when they collect a stream


def split_media_from_tool_results(items: Sequence[Message], ledger: Warnings) -> list[Message]:
    """Reduce tool outputs to text, and put their media into a user message behind them, as templates require.

    Plain texts have been joined before, so a content that is still a list has more than text.
    """
    if not any([_has_media(message) for message in items]):
        return [*items]
    apart: list[Message] = []
    media: list[dict[str, Any]] = []
    for message in items:
        if _has_media(message):
            apart.append({**message, "content": _numbered(message["content"], media, ledger)})
            continue
        if message["role"] != "tool" and media:
            apart.append(_shown(media))
            media = []
        apart.append(message)
    if media:
        apart.append(_shown(media))
    ledger.add("translated", "messages.content.image_url")
    return apart


def alternate_roles(items: Sequence[Message], ledger: Warnings) -> list[Message]:
    """Make the user begin, and the user and the assistant alternate.

    Before the next turn, each tool call gets an output.
    """
    runs: list[list[Message]] = []
    for message in with_missing_results(items, ledger):
        role, before = message["role"], runs[-1][0]["role"] if runs else "system"
        if role == before and role in ("user", "assistant"):
            runs[-1].append(message)
            continue
        if role == "user" and before == "tool":
            runs.append([{"role": "assistant", "content": ""}])
        elif role == "assistant" and before in LEADING:
            runs.append([{"role": "user", "content": ""}])
        runs.append([message])
    turns = [_one(run, ledger) for run in runs]
    if turns != items:
        ledger.add("translated", "messages")
    return turns


def merge_trailing_assistant(items: Sequence[Message], ledger: Warnings) -> list[Message]:
    """Make sure that the server can continue the last message of the assistant.

    If that message has calls, their outputs follow it.  An empty user message separates it from an assistant message
    before it.
    """
    *most, last = items
    if last.get("tool_calls"):
        return [*most, *with_missing_results([last], ledger)]
    if last["role"] == "assistant" and most and most[-1]["role"] == "assistant":
        ledger.add("translated", "messages")
        return [*most, {"role": "user", "content": ""}, last]
    return [*items]


def warn_lost_names(joined: Sequence[Message], ledger: Warnings) -> None:
    """Add a warning if names are lost because these messages are merged; the result has the name of the first."""
    if any(message.get("name") not in (None, joined[0].get("name")) for message in joined):
        ledger.add("dropped", "messages.name")


def text_part(text: str) -> dict[str, str]:
    """Return a message part with this text."""
    return {"type": "text", "text": text}


def with_missing_results(items: Sequence[Message], ledger: Warnings) -> list[Message]:
    """Return the messages with an output for each call that has none, behind the outputs of the other calls."""
    given = {message["tool_call_id"] for message in items if message["role"] == "tool"}
    turns: list[Message] = []
    missing: list[Message] = []
    for message in items:
        if message["role"] != "tool":
            turns += missing
            ids = [call["id"] for call in message.get("tool_calls") or () if call["id"] not in given]
            missing = [{"role": "tool", "tool_call_id": id, "content": _NO_OUTPUT} for id in ids]
        turns.append(message)
    turns += missing
    if len(turns) > len(items):
        ledger.add("repaired", "messages.tool_calls")
    return turns


def _has_media(message: Message) -> bool:
    """Return True for a tool output with parts that do not belong there; references to tools do."""
    content = message.get("content")
    return (
        message["role"] == "tool"
        and isinstance(content, list)
        and any(part["type"] not in ("text", "tool_reference") for part in content)
    )


def _numbered(parts: Sequence[dict[str, Any]], media: list[dict[str, Any]], ledger: Warnings) -> str:
    """Return the text of a tool output with a numbered placeholder for each medium, and append the media to `media`.

    A reference to a tool becomes its text.
    """
    texts: list[str] = []
    for part in parts:
        if part["type"] == "text":
            texts.append(part["text"])
        elif part["type"] == "tool_reference":
            texts.append(tool_reference_text(str(part.get("name") or "")))
            ledger.add("translated", "tool_reference")
        else:
            media.append(part)
            texts.append(f"[{_noun(part)} #{len(media)}]")
    return "\n".join(texts)


def _shown(media: Sequence[dict[str, Any]]) -> Message:
    nouns = dict.fromkeys(f"{_noun(part)}s" for part in media)
    return {"role": "user", "content": [text_part(f"Tool output {' and '.join(nouns)}:"), *media]}


def _noun(part: dict[str, Any]) -> str:
    return "image" if part["type"] == "image_url" else "attachment"


def _one(run: Sequence[Message], ledger: Warnings) -> Message:
    """Merge consecutive messages of one role."""
    first, *more = run
    if not more:
        return first
    warn_lost_names(run, ledger)
    names = dict.fromkeys(name for message in run for name in message if name not in _OF_THE_FIRST)
    fields = {name: _united([message[name] for message in run if message.get(name) is not None]) for name in names}
    return {**{name: first[name] for name in _OF_THE_FIRST if name in first}, **fields}


def _united(values: Sequence[Any]) -> Any:  # noqa: ANN401 - what a field of several messages holds
    if all(isinstance(value, str) for value in values):
        return "\n\n".join(filter(None, values)) if values else None
    if all(isinstance(value, str | list) for value in values):
        return [part for value in values for part in _parts(value)]
    return values[-1]


def _parts(content: str | list[Any]) -> list[Any]:
    if isinstance(content, list):
        return content
    return [text_part(content)] if content else []


class MessagePolicy(Struct, frozen=True):
    """The form of messages that a server and its chat template accept.

    developer: the role that replaces `developer`, or `native` to keep it.
    late_system: the treatment of a system message after the first user message.
    reasoning: the field for past reasoning; None if the server ignores past reasoning.
    alternate: the template requires that the user and the assistant alternate, and that each call has an output.
    continues: the server continues a last message of the assistant.  It accepts only one such message, without calls.
    calls_alone: the server ignores the text of a message that has calls.
    names: the server uses the `name` of a message.
    lists: the server accepts lists of parts, also in the output of tools.
    """

    developer: Literal["system", "native"] = "system"
    late_system: Literal["keep", "user", "merge"] = "user"
    reasoning: str | None = "reasoning_content"
    alternate: bool = False
    continues: bool = False
    calls_alone: bool = False
    names: bool = True
    lists: bool = False


def convert_messages(items: Sequence[Message], policy: MessagePolicy, ledger: Warnings) -> list[Message]:
    """Convert each message by itself; plain text messages stay unchanged."""
    return [message if are_text_only((message,)) else _message(message, policy, ledger) for message in items]


def order_messages(given: list[Message], policy: MessagePolicy, ledger: Warnings) -> list[Message]:
    """Merge leading system messages and fix the order of messages, without losing text."""
    roles = [message["role"] for message in given]
    if not _LEADING.isdisjoint(roles[1:]):
        given = _led(given, policy, ledger)
    if "tool" in roles and not policy.lists:
        given = split_media_from_tool_results(given, ledger)
    if policy.continues:
        given = merge_trailing_assistant(given, ledger)
    return alternate_roles(given, ledger) if policy.alternate else given


def _led(items: Sequence[Message], policy: MessagePolicy, ledger: Warnings) -> list[Message]:
    """Return the messages with system messages at the beginning only, merged to one, if the policy requires it."""
    first = next((i for i, message in enumerate(items) if message["role"] not in LEADING), len(items))
    leading, rest = [*items[:first]], items[first:]
    if policy.late_system != "keep" and any(message["role"] == "system" for message in rest):
        ledger.add("translated", "messages.role")
    if policy.late_system == "merge":
        leading += [message for message in rest if message["role"] == "system"]
        rest = [message for message in rest if message["role"] != "system"]
    elif policy.late_system == "user":
        rest = [_as_user(message, ledger) if message["role"] == "system" else message for message in rest]
    return [*_joined(leading, ledger), *rest]


def _message(message: Message, policy: MessagePolicy, ledger: Warnings) -> Message:
    role, content = message["role"], message.get("content")
    if message.get("name") and role != "tool" and not policy.names:
        ledger.add("dropped", "messages.name")
        message = _without(_NAME, message)
    if isinstance(content, list):
        glue = None if policy.lists else "" if role == "assistant" else "\n"
        message = {**message, "content": _content(content, glue)}
    if role == "developer" and policy.developer == "system":
        return {**message, "role": "system"}
    if role == "assistant":
        return _assistant(message, policy, ledger)
    return message


def _content(parts: list[dict[str, Any]], glue: str | None) -> object:
    """Join text parts to one text, as some servers and templates accept no list.  glue: None to keep them."""
    if glue is not None and all(part["type"] in _TEXTS for part in parts):
        return glue.join(map(_text, parts))
    return [_part(part) for part in parts]


def _part(part: dict[str, Any]) -> dict[str, Any]:
    if part["type"] == "refusal":
        return text_part(_text(part))
    return _without(_OF_THE_CACHE, part)


def _text(part: dict[str, Any]) -> str:
    return str(part.get(part["type"]) or "")


def _assistant(message: Message, policy: MessagePolicy, ledger: Warnings) -> Message:
    """Convert a message of the assistant.

    A refusal becomes text, reasoning goes to the field that the backend reads, and arguments become a JSON object.
    """
    given = _sent_members(message)
    if not _THOUGHTS.isdisjoint(given):
        _put_thought(given, policy.reasoning, ledger)
    refusal = given.pop("refusal", None)
    if isinstance(blocks := given.get("thinking_blocks"), list):
        given["thinking_blocks"] = [_block(block) for block in blocks]
    if refusal:
        given["content"] = _refused(given.get("content"), refusal)
    if given.pop("audio", None):  # the id of audio that only OpenAI's service has stored
        ledger.add("dropped", "messages.audio")
    if calls := given.pop("tool_calls", None):
        given["tool_calls"] = [_call(call, ledger) for call in calls]
        if policy.calls_alone and given.get("content"):
            given["content"] = ""
            ledger.add("dropped", "messages.content")
    elif given.get("content") is None:
        given["content"] = ""  # llama.cpp rejects a message with neither content nor calls
    return given


def _sent_members(message: Message) -> Message:
    """Return the message without null members, but for the content, and without members that only a response has."""
    given = {name: value for name, value in message.items() if value is not None or name == "content"}
    for name in _OF_A_RESPONSE:
        given.pop(name, None)
    return given


def _put_thought(given: Message, field: str | None, ledger: Warnings) -> None:
    details = given.pop("reasoning_details", None)
    thoughts = [given.pop(name) for name in _REASONING if name in given]
    thought = next(filter(None, thoughts), None) or _detailed(details)
    if thought and field:
        given[field] = thought
    elif thought:
        ledger.add("dropped", "messages.reasoning_content")
    elif details:
        ledger.add("dropped", "messages.reasoning_details")


def _block(block: object) -> object:
    """Return the block as the upstream sent it, without the index that a stream adds."""
    return _without(_OF_THE_SDK, block) if isinstance(block, dict) else block


def _without(names: frozenset[str], members: dict[str, Any]) -> dict[str, Any]:
    if names.isdisjoint(members):
        return {**members}
    return {name: value for name, value in members.items() if name not in names}


def _call(call: dict[str, Any], ledger: Warnings) -> dict[str, Any]:
    """Return the call with arguments that are a JSON object.

    An unchanged call is returned itself, as copies of thousands of calls take megabytes.
    """
    function = call["function"]
    arguments = data = function["arguments"]
    if not arguments.strip():
        data = "{}"
    elif not _is_object(arguments):
        ledger.add("repaired", "messages.tool_calls.function.arguments")
        data = json.encode({"__raw": arguments}).decode()
    if data is arguments and _OF_THE_SDK.isdisjoint(function) and _OF_THE_SDK.isdisjoint(call):
        return call
    return {**_without(_OF_THE_SDK, call), "function": {**_without(_OF_THE_SDK, function), "arguments": data}}


def _is_object(text: str) -> bool:
    try:
        return isinstance(json.decode(text), dict)
    except (DecodeError, RecursionError):
        return False


def _detailed(details: object) -> str:
    parts = details if isinstance(details, list) else []
    return "".join(str(part.get("text") or "") for part in parts if isinstance(part, dict))


def _joined(leading: Sequence[Message], ledger: Warnings) -> Iterable[Message]:
    """Merge the leading messages to one, unless one is a native developer message or has more than text."""
    texts = [message["content"] for message in leading if message["role"] == "system"]
    if len(leading) < 2 or len(texts) < len(leading) or not all(isinstance(text, str) for text in texts):
        return leading
    warn_lost_names(leading, ledger)
    return [{**leading[0], "content": "\n\n".join(texts)}]


def _as_user(message: Message, ledger: Warnings) -> Message:
    content = message["content"]
    if message.get("name"):
        ledger.add("dropped", "messages.name")
    if isinstance(content, str):
        return {"role": "user", "content": f"<system_message>{content}</system_message>"}
    return {"role": "user", "content": [text_part("<system_message>"), *content, text_part("</system_message>")]}


def _refused(content: object, refusal: str) -> object:
    """Return the content, followed by the refusal."""
    if isinstance(content, list):
        return [*content, text_part(refusal)]
    return f"{content}\n\n{refusal}" if content else refusal
