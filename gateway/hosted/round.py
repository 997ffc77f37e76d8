"""Keep the output of one round for the request of the next one."""

from collections.abc import Mapping, Sequence
from typing import Any

from gateway.endpoints.signatures import ThinkingBlocks
from gateway.events import Event, Finish, ReasoningDelta, TextDelta, ToolArgsDelta, ToolCallEnd, Usage
from gateway.hosted.calls import (
    BuiltinToolCall,
    BuiltinToolResult,
    BuiltinToolRun,
    ClientToolCall,
    SkippedToolCall,
    message_tool_call,
)
from gateway.request import Message

_WELL = ("stop", "tool_calls")
_BROKE_OFF = "The answer broke off before this call was made."
_NO_JSON = "This call was not made: its arguments are no JSON object."


class ToolRound:
    """calls: those that have begun, to be put in by who knows their kind; finish: how the round ended, once it has.

    written: tokens of what was said.
    """

    def __init__(self) -> None:
        self._texts: list[str] = []
        self._thoughts: list[str] = []
        self._blocks, self._signed = ThinkingBlocks(), list[dict[str, Any]]()
        self.calls: dict[int, ClientToolCall] = {}
        self.finish: Finish | None = None
        self.written = 0

    def hear(self, event: Event) -> None:
        if type(event) is TextDelta:
            self._texts.append(event.text)
        elif type(event) is ReasoningDelta:
            self._think(event)
        elif type(event) is ToolCallEnd:
            self.calls[event.call].complete = event.complete
        elif type(event) is Finish:
            self._end(event)
        elif type(event) is ToolArgsDelta:
            self.calls[event.call].pieces.append(event.json)
        elif type(event) is Usage:
            self.written = event.completion

    def _think(self, thought: ReasoningDelta) -> None:
        self._thoughts.append(thought.text)
        if block := self._blocks.add(thought):
            self._signed.append(block)

    def _end(self, finish: Finish) -> None:
        """Tools act on the world: nothing is run of a round that was cut."""
        self.finish = finish
        for call in self.running:
            if finish.reason not in _WELL:
                self._cut(call)
            elif not call.complete:
                call.fail(_NO_JSON)

    @staticmethod
    def _cut(call: BuiltinToolCall) -> None:
        if call.complete:
            call.fail(_BROKE_OFF)
        else:
            call.result = BuiltinToolResult(call.start.id, "", {"status": "incomplete"})

    @property
    def running(self) -> list[BuiltinToolCall]:
        return [call for call in self.calls.values() if isinstance(call, BuiltinToolCall)]

    @property
    def due(self) -> list[BuiltinToolRun]:
        """The calls that have to be made now."""
        return [call.run for call in self.running if not call.result] if self.finish else []

    @property
    def goes_on(self) -> bool:
        """Return True if all its calls ran at the gateway."""
        calls, finish = self.calls.values(), self.finish
        return bool(calls) and bool(finish and finish.reason in _WELL) and all(call.goes_on for call in calls)

    def left(self, most: int | None) -> int | None:
        """Of so many tokens; where there are none, the one with which the model is told to end."""
        return None if most is None else max(most - self.written, 1)

    def break_off(self) -> None:
        for call in self.running:
            if call.complete and not call.result:
                call.fail(_BROKE_OFF)

    def after(self, messages: Sequence[Message]) -> tuple[Message, ...]:
        """Return the messages so far, once every call in them has its output."""
        text, thought = "".join(self._texts), "".join(self._thoughts)
        fields = {"reasoning_content": thought, "thinking_blocks": self._signed}
        said: Message = {"role": "assistant", "content": text or None}
        said |= {name: value for name, value in fields.items() if value}
        said["tool_calls"] = [message_tool_call(call) for call in self.calls.values()]
        return (*messages, said, *_outputs(self.calls))


class ApprovedToolRound(ToolRound):
    """The calls that were approved: the messages have them, and want their outputs."""

    def after(self, messages: Sequence[Message]) -> tuple[Message, ...]:
        outputs = {one["tool_call_id"]: one for one in _outputs(self.calls)}
        return tuple(outputs.get(message.get("tool_call_id", ""), message) for message in messages)


def _outputs(calls: Mapping[int, ClientToolCall]) -> list[Message]:
    return [
        {"role": "tool", "tool_call_id": call.start.id, "content": call.content}
        for call in calls.values()
        if isinstance(call, BuiltinToolCall | SkippedToolCall)
    ]
