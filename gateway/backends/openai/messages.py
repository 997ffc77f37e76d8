"""Messages as local servers' templates can take them (`spec.md` A2): roles, text, past calls and reasoning."""

from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import Any, Literal

from msgspec import DecodeError, Struct, json

from gateway.ledger import Ledger
from gateway.request import Message

_TEXTS = ("text", "refusal")  # each part has its text under the name of its type
_REASONING = ("reasoning_content", "reasoning")


class Policy(Struct, frozen=True):
    """developer: what that role becomes; late_system: what a system message after the first user message does.

    reasoning: the field for past reasoning.
    alternate: the template takes no two messages of the user in a row.
    """

    developer: Literal["system", "native"] = "system"
    late_system: Literal["keep", "user", "merge"] = "user"
    reasoning: str = "reasoning_content"
    alternate: bool = False


def messages(said: Sequence[Message], policy: Policy, ledger: Ledger) -> list[Message]:
    """Leading system messages become one; text is never lost, whatever becomes of its role."""
    renamed = [_message(message, policy, ledger) for message in said]
    first = next((i for i, message in enumerate(renamed) if message["role"] not in ("system", "developer")), None)
    leading, rest = (renamed, []) if first is None else (renamed[:first], renamed[first:])
    if policy.late_system != "keep" and any(message["role"] == "system" for message in rest):
        ledger.note("translated", "messages.role")
    if policy.late_system == "merge":
        leading += [message for message in rest if message["role"] == "system"]
        rest = [message for message in rest if message["role"] != "system"]
    elif policy.late_system == "user":
        rest = [_as_user(message) if message["role"] == "system" else message for message in rest]
    given = [*_joined(leading), *rest]
    return _alternating(given, ledger) if policy.alternate else given


def _message(message: Message, policy: Policy, ledger: Ledger) -> Message:
    role = message["role"]
    if isinstance(parts := message.get("content"), list):
        message = {**message, "content": _content(parts, "" if role == "assistant" else "\n")}
    if role == "developer" and policy.developer == "system":
        return {**message, "role": "system"}
    if role == "assistant":
        return _assistant(message, policy.reasoning, ledger)
    return message


def _content(parts: list[dict[str, Any]], glue: str) -> object:
    """One text where all parts are text: not every server, nor every template, can take a list."""
    if all(part["type"] in _TEXTS for part in parts):
        return glue.join(str(part.get(part["type"]) or "") for part in parts)
    return [{name: value for name, value in part.items() if name != "prompt_cache_breakpoint"} for part in parts]


def _assistant(message: Message, field: str, ledger: Ledger) -> Message:
    """Refused text is text, reasoning stands in the one field that the backend reads, and arguments are an object."""
    given = {name: value for name, value in message.items() if value is not None or name == "content"}
    details = given.pop("reasoning_details", None)
    thoughts = [given.pop(name) for name in _REASONING if name in given]
    refusal = given.pop("refusal", None)
    thought = next(filter(None, thoughts), None) or _detailed(details)
    if thought:
        given[field] = thought
    elif details:
        ledger.note("dropped", "messages.reasoning_details")
    if isinstance(blocks := given.get("thinking_blocks"), list):
        given["thinking_blocks"] = [_block(block) for block in blocks]
    if refusal:
        given["content"] = _refused(given.get("content"), refusal)
    if calls := given.get("tool_calls"):
        given["tool_calls"] = [_call(call, ledger) for call in calls]
    elif given.get("content") is None:
        given["content"] = ""  # llama.cpp takes no message without either
    return given


def _block(block: object) -> object:
    """As the upstream had it: without the index that a stream gives it."""
    return {name: value for name, value in block.items() if name != "index"} if isinstance(block, dict) else block


def _call(call: dict[str, Any], ledger: Ledger) -> dict[str, Any]:
    arguments = call["function"]["arguments"]
    if not arguments.strip():
        sound = "{}"
    elif not _is_object(arguments):
        ledger.note("repaired", "messages.tool_calls.function.arguments")
        sound = json.encode({"__raw": arguments}).decode()
    else:
        return call
    return {**call, "function": {**call["function"], "arguments": sound}}


def _is_object(text: str) -> bool:
    try:
        return isinstance(json.decode(text), dict)
    except (DecodeError, RecursionError):
        return False


def _detailed(details: object) -> str:
    parts = details if isinstance(details, list) else []
    return "".join(str(part.get("text") or "") for part in parts if isinstance(part, dict))


def _joined(leading: Sequence[Message]) -> Iterable[Message]:
    """One message of them all; a native developer message, or one with more than text, leaves all as they are."""
    texts = [message["content"] for message in leading if message["role"] == "system"]
    if len(leading) < 2 or len(texts) < len(leading) or not all(isinstance(text, str) for text in texts):
        return leading
    return [{**leading[0], "content": "\n\n".join(texts)}]


def _alternating(given: Sequence[Message], ledger: Ledger) -> list[Message]:
    """One message for each run of the user's."""
    turns: list[Message] = []
    for role, run in groupby(given, key=lambda message: message["role"]):
        first, *more = run
        if role == "user" and more:
            ledger.note("translated", "messages")
            turns.append({**first, "content": _united([first, *more])})
        else:
            turns += [first, *more]
    return turns


def _united(run: Sequence[Message]) -> object:
    contents = [message["content"] for message in run]
    if all(isinstance(content, str) for content in contents):
        return "\n\n".join(contents)
    return [part for content in contents for part in ([_part(content)] if isinstance(content, str) else content)]


def _as_user(message: Message) -> Message:
    content = message["content"]
    if isinstance(content, str):
        return {"role": "user", "content": f"<system_message>{content}</system_message>"}
    return {"role": "user", "content": [_part("<system_message>"), *content, _part("</system_message>")]}


def _refused(content: object, refusal: str) -> object:
    """What was said, then what was refused."""
    if isinstance(content, list):
        return [*content, _part(refusal)]
    return f"{content}\n\n{refusal}" if content else refusal


def _part(text: str) -> dict[str, str]:
    return {"type": "text", "text": text}
