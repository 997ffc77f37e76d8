"""A chat completion in one body: the fold of the same events (`spec.md` A3)."""

from collections.abc import Callable
from typing import Any, ClassVar

from msgspec import Raw, Struct, field

from gateway import events as ev
from gateway.endpoints.chat.request import Asked
from gateway.endpoints.chat.shape import Head, called_name, logprobs, usage
from gateway.endpoints.extras import continued, joined
from gateway.endpoints.folded import Folded
from gateway.endpoints.signatures import Blocks, of_call


class Whole(Folded[Asked, "_Choice"]):
    def _begun(self) -> "_Choice":
        return _Choice()

    def record(self) -> dict[str, Any] | None:
        return self._completion() if self._asked.store and not self._failed else None

    def _completion(self) -> dict[str, Any]:
        choices = [choice.body(index, self._asked, self._head) for index, choice in self._sorted()]
        if self._asked.functions:
            self._note_what_functions_lack()
        head = self._head
        said: dict[str, Any] = {"id": head.id, "object": "chat.completion", "created": head.created}
        said["model"] = head.model
        if self._asked.service_tier:
            said["service_tier"] = "default"
        said["choices"], said["usage"] = choices, usage(self._usage)
        said |= self._extras
        return said

    def _note_what_functions_lack(self) -> None:
        calls = [choice.calls for choice in self._choices.values() if choice.calls]
        if any(len(each) > 1 for each in calls):
            self._ledger.note("dropped", "tool_calls")
        if any(each[0][0].signature for each in calls):
            self._ledger.note("dropped", "tool_calls.provider_specific_fields")


class _Choice(Struct, eq=False):
    _texts: list[str] = []
    _parts: list[Any] = []  # content that is no text, and the text before it
    _images: list[Raw] = []
    _thoughts: list[str] = []
    _blocks: Blocks = field(default_factory=Blocks)
    _signed: list[dict[str, Any]] = []
    _refusals: list[str] = []
    _annotations: list[Raw] = []
    calls: list[tuple[ev.ToolStart, list[str]]] = []
    _content_logprobs: list[ev.Logprob] = []
    _refusal_logprobs: list[ev.Logprob] = []
    _reason: str = "stop"
    _extras: dict[str, Raw] = {}
    _inside: dict[str, Raw] = {}  # members of the message

    def add(self, event: ev.Event) -> None:
        self._arms[type(event)](self, event)

    def body(self, index: int, asked: Asked, head: Head) -> dict[str, Any]:
        calls = [_call(start, "".join(pieces)) for start, pieces in self.calls]
        content: Any = [*self._parts, *self._text_part()] if self._parts else "".join(self._texts)
        if not content and calls:
            content = None
        message: dict[str, Any] = {"role": asked.role, "content": content, "refusal": "".join(self._refusals) or None}
        if self._thoughts:
            message |= dict.fromkeys(head.reasoning, "".join(self._thoughts))
        if self._signed:
            message["thinking_blocks"] = self._signed
        message["annotations"] = self._annotations
        if self._images:
            message["images"] = self._images
        message |= self._inside
        reason = self._reason
        if asked.functions and calls:
            message["function_call"] = calls[0]["function"]
            reason = "function_call" if reason == "tool_calls" else reason
        elif calls:
            message["tool_calls"] = calls
        likely, refused = self._content_logprobs, self._refusal_logprobs
        chances = logprobs(likely, refused) if likely or refused else None
        said = {"index": index, "message": message, "logprobs": chances, "finish_reason": reason}
        said |= self._extras
        return said

    def _text(self, e: ev.Text) -> None:
        self._texts.append(e.text)
        self._content_logprobs += e.logprobs

    def _reasoning(self, e: ev.Reasoning) -> None:
        if e.text:
            self._thoughts.append(e.text)
        if block := self._blocks.add(e):
            self._signed.append(block)

    def _refusal(self, e: ev.Refusal) -> None:
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
        """Take the text since the last other part, as a part."""
        text, self._texts = "".join(self._texts), []
        return [{"type": "text", "text": text}] if text else []

    def _tool_start(self, e: ev.ToolStart) -> None:
        self.calls.append((e, []))

    def _tool_args(self, e: ev.ToolArgs) -> None:
        self.calls[-1][1].append(e.json)

    def _tool_input(self, e: ev.ToolInput) -> None:
        self.calls[-1][1].append(e.text)

    def _finish(self, e: ev.Finish) -> None:
        self._reason = e.reason

    def _extra(self, e: ev.Extra) -> None:
        if e.inside:
            self._inside[e.name] = joined(self._inside.get(e.name), e.json)
        else:
            self._extras[e.name] = continued(self._extras.get(e.name), e.json)

    def _nothing(self, _: ev.Event) -> None:
        pass

    _arms: ClassVar[dict[type[Any], Callable[[Any, Any], None]]] = {
        ev.Text: _text, ev.Reasoning: _reasoning, ev.Refusal: _refusal, ev.Annotation: _annotation,
        ev.Media: _media, ev.HostedTool: _nothing, ev.ToolStart: _tool_start, ev.ToolArgs: _tool_args,
        ev.ToolInput: _tool_input, ev.ToolEnd: _nothing, ev.Finish: _finish, ev.Extra: _extra,
        ev.HostedStart: _nothing, ev.HostedArgs: _nothing, ev.HostedRun: _nothing, ev.HostedEnd: _nothing,
    }  # fmt: skip


def _call(start: ev.ToolStart, said: str) -> dict[str, Any]:
    field = "arguments" if start.kind == "function" else "input"
    called = {"name": called_name(start), field: said}
    return {"id": start.id, "type": start.kind, start.kind: called, **of_call(start)}
