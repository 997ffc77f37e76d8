"""Decode the tool calls of a message: function calls, custom calls and the older `function_call`."""

from msgspec import json

from gateway.backends.openai import wire
from gateway.backends.openai.payload_values import arguments_text
from gateway.backends.openai.usage import count_value
from gateway.backends.openai.wire import signature_of_call
from gateway.events import Event, ToolArgsDelta, ToolCallStart
from gateway.warnings import Warnings


class ToolCallDecoder:
    """Decode the tool calls of one response to raw events, which it appends to `out`.

    decoded_characters: the characters of arguments so far.
    """

    def __init__(self, ledger: Warnings) -> None:
        self._ledger = ledger
        self._customs: dict[int, int] = {}  # by choice: the key of its open custom call
        self.decoded_characters = 0

    def decode(self, index: int, message: wire.WireMessage, out: list[Event]) -> None:
        """Add the tool calls in a message of the choice `index`."""
        for position, call in enumerate(message.tool_calls or ()):
            if call.custom:
                self._custom_call(index, position, call.custom, call, out)
            else:
                self.end_custom(index, out)
                self._call(index, position, call, out)
        if message.function_call:
            self._call(index, 0, wire.WireToolCall(function=message.function_call), out)

    def end_custom(self, index: int, out: list[Event]) -> None:
        """End the custom call of a choice, if one is open."""
        if index in self._customs:
            out.append(ToolArgsDelta(index, self._customs.pop(index), '"}'))

    def _custom_call(
        self, index: int, position: int, custom: wire.Custom, call: wire.WireToolCall, out: list[Event]
    ) -> None:
        """Read a custom call as a function call, as backends are offered custom tools as functions."""
        key = _key(call, position)
        if custom.name:
            self.end_custom(index, out)
            self._ledger.add("translated", "tool_calls.custom")
            out += [ToolCallStart(index, key, str(call.id or ""), custom.name), ToolArgsDelta(index, key, '{"input":"')]
            self._customs[index] = key
        if custom.input and index in self._customs:
            self.decoded_characters += len(custom.input)
            out.append(ToolArgsDelta(index, key, json.encode(custom.input)[1:-1].decode()))

    def _call(self, index: int, position: int, call: wire.WireToolCall, out: list[Event]) -> None:
        function = call.function or wire.WireFunction()  # the id may come in a delta of its own
        key = _key(call, position)
        signature = signature_of_call(call)
        id = "" if call.id is None else str(call.id)
        if function.name or id:
            out.append(ToolCallStart(index, key, id, function.name or "", signature=signature))
        elif signature:
            self._ledger.add("dropped", "tool_calls.provider_specific_fields")
        if text := arguments_text(bytes(function.arguments)):
            self.decoded_characters += len(text)
            out.append(ToolArgsDelta(index, key, text))


def _key(call: wire.WireToolCall, position: int) -> int:
    """Return the number of a call in its choice: the backend's index, else its position in the list."""
    return position if call.index is None or call.index == "" else count_value(call.index)
