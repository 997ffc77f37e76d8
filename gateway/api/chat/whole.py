"""Fold events into one chat.completion object."""

from collections.abc import Callable
from typing import Any, ClassVar

from msgspec import Raw

from gateway import events as ev
from gateway.api.chat.parse import ChatParams
from gateway.api.completion_encoder import BodyEncoder, CompletionHead, flat_tool_name, logprobs_object, usage_object
from gateway.api.extra_members import DELTAS, Values, add_value, members
from gateway.api.signatures import ThinkingBlocks, call_signature


def listed_message(message: dict[str, Any]) -> dict[str, Any]:
    """Return a message as the API lists it: with all fields, and a list of parts apart from a text."""
    content = message.get("content")
    data = {"content": None, "content_parts": content} if isinstance(content, list) else {"content_parts": None}
    return {"content": None, "refusal": None, "name": None, **message, **data}


class ChatBodyEncoder(BodyEncoder[ChatParams, "_ChatChoice"]):
    """Encode a chat completion as one object."""

    def _new_choice(self) -> "_ChatChoice":
        return _ChatChoice()

    def stored_object(self) -> dict[str, Any] | None:
        """Return the object to store; None after a failure, or if the client does not store it."""
        return self._completion() if self._params.store and not self._failed else None

    def _completion(self) -> dict[str, Any]:
        choices = [choice.body(index, self._params, self._head) for index, choice in self._sorted()]
        if self._params.functions:
            self._note_what_functions_lack()
        head = self._head
        fields: dict[str, Any] = {"id": head.id, "object": "chat.completion", "created": head.created}
        fields["model"] = head.model
        if self._params.service_tier:
            fields["service_tier"] = "default"
        fields["choices"], fields["usage"] = choices, usage_object(self._usage)
        fields |= self._extras
        return fields

    def _note_what_functions_lack(self) -> None:
        calls = [choice.calls for choice in self._choices.values() if choice.calls]
        if any(len(each) > 1 for each in calls):
            self._ledger.add("dropped", "tool_calls")
        if any(each[0][0].signature for each in calls):
            self._ledger.add("dropped", "tool_calls.provider_specific_fields")


class _ChatChoice:
    """A choice, collected from its events.  A dataclass of so many lists takes five times as long to make."""

    _reason = "stop"

    def __init__(self) -> None:
        self._texts: list[str] = []
        self._parts: list[Any] = []  # parts other than text, and the text before each
        self._images: list[Raw] = []
        self._thoughts: list[str] = []
        self._blocks: ThinkingBlocks | None = None  # None without reasoning
        self._signed: list[dict[str, Any]] = []
        self._refusals: list[str] = []
        self._annotations: list[Raw] = []
        self.calls: list[tuple[ev.ToolCallStart, list[str]]] = []
        self._content_logprobs: list[ev.Logprob] = []
        self._refusal_logprobs: list[ev.Logprob] = []
        self._extras: Values = {}
        self._inside: Values = {}  # members of the message

    def add(self, event: ev.Event) -> None:
        """Add an event."""
        self._arms[type(event)](self, event)

    def body(self, index: int, params: ChatParams, head: CompletionHead) -> dict[str, Any]:
        """Return the choice's object."""
        calls = [_call(start, "".join(pieces)) for start, pieces in self.calls]
        content: Any = [*self._parts, *self._text_part()] if self._parts else "".join(self._texts)
        if not content and (calls or self._refusals):
            content = None
        message: dict[str, Any] = {"role": params.role, "content": content, "refusal": "".join(self._refusals) or None}
        if self._thoughts:
            message |= dict.fromkeys(head.reasoning, "".join(self._thoughts))
        if self._signed:
            message["thinking_blocks"] = self._signed
        message["annotations"] = self._annotations
        if self._images:
            message["images"] = self._images
        message |= members(self._inside) if self._inside else {}
        reason = self._reason
        if params.functions and calls:
            message["function_call"] = calls[0]["function"]
            reason = "function_call" if reason == "tool_calls" else reason
        elif calls:
            message["tool_calls"] = calls
        likely, refused = self._content_logprobs, self._refusal_logprobs
        chances = logprobs_object(likely, refused) if likely or refused else None
        fields = {"index": index, "message": message, "logprobs": chances, "finish_reason": reason}
        return fields | members(self._extras) if self._extras else fields

    def _text(self, e: ev.TextDelta) -> None:
        self._texts.append(e.text)
        self._content_logprobs += e.logprobs

    def _reasoning(self, e: ev.ReasoningDelta) -> None:
        if e.text:
            self._thoughts.append(e.text)
        self._blocks = self._blocks or ThinkingBlocks()
        if block := self._blocks.add(e):
            self._signed.append(block)

    def _refusal(self, e: ev.RefusalDelta) -> None:
        self._refusals.append(e.text)
        self._refusal_logprobs += e.logprobs

    def _annotation(self, e: ev.Annotation) -> None:
        self._annotations.append(e.json)

    def _media(self, e: ev.Media) -> None:
        if e.member == "images":
            self._images.append(e.json)
        else:
            self._parts += [*self._text_part(), e.json]

    def _text_part(self) -> list[dict[str, str]]:
        """Remove the text since the last other part, and return it as a part."""
        text, self._texts = "".join(self._texts), []
        return [{"type": "text", "text": text}] if text else []

    def _tool_start(self, e: ev.ToolCallStart) -> None:
        self.calls.append((e, []))

    def _tool_args(self, e: ev.ToolArgsDelta) -> None:
        self.calls[-1][1].append(e.json)

    def _tool_input(self, e: ev.ToolInputDelta) -> None:
        self.calls[-1][1].append(e.text)

    def _finish(self, e: ev.Finish) -> None:
        self._reason = e.reason

    def _extra(self, e: ev.ExtraField) -> None:
        if e.inside:
            add_value(self._inside, e.name, e.json, DELTAS)
        else:
            add_value(self._extras, e.name, e.json)

    def _nothing(self, _: ev.Event) -> None:
        pass

    _arms: ClassVar[dict[type[Any], Callable[[Any, Any], None]]] = {
        ev.TextDelta: _text,
        ev.ReasoningDelta: _reasoning,
        ev.RefusalDelta: _refusal,
        ev.Annotation: _annotation,
        ev.Media: _media,
        ev.BuiltinItem: _nothing,
        ev.ToolCallStart: _tool_start,
        ev.ToolArgsDelta: _tool_args,
        ev.ToolInputDelta: _tool_input,
        ev.ToolCallEnd: _nothing,
        ev.Finish: _finish,
        ev.ExtraField: _extra,
        ev.BuiltinItemStart: _nothing,
        ev.BuiltinArgsDelta: _nothing,
        ev.BuiltinRunStart: _nothing,
        ev.BuiltinItemEnd: _nothing,
    }


def _call(start: ev.ToolCallStart, text: str) -> dict[str, Any]:
    field = "arguments" if start.kind == "function" else "input"
    called = {"name": flat_tool_name(start), field: text}
    return {"id": start.id, "type": start.kind, start.kind: called, **call_signature(start)}
