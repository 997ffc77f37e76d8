"""Run the tool loop for clients of the Messages API, who know of its limits.

At the operator's limit the response ends with `pause_turn`, and the client goes on with a request of its own.  The
other APIs have no such end: there the model gets a last round without tools.
"""

from collections.abc import Iterable

from msgspec.structs import replace

from gateway.builtin_tools.tool_calls import BuiltinToolCall, BuiltinToolResult, ClientToolCall
from gateway.builtin_tools.tool_loop import ToolLoop
from gateway.events import Event, Finish, ToolCallStart
from gateway.request import ToolName

PAUSED = "pause_turn"
MAX_USES = "max_uses_exceeded"
_NO_MORE = "This tool was not called: its number of uses is limited (max_uses). Answer with what is known."


class PausingToolLoop(ToolLoop):
    """A tool loop that pauses.  A call beyond the client's own limit fails, for the client and for the model."""

    _exceeding: list[BuiltinToolCall]  # those of the round

    @property
    def needs_another_round(self) -> bool:
        """True if the loop can continue without the client."""
        return super().needs_another_round and not self._is_spent

    @property
    def _is_spent(self) -> bool:
        """True if the operator's limits allow no further call."""
        return self._rounds <= 1 or self._calls <= 0

    def begin(self) -> None:
        """Start a round with a backend."""
        super().begin()
        self._exceeding = []

    def feed(self, event: Event) -> Iterable[Event]:
        """Return the events for the client after one event of the round."""
        if type(event) is Finish:
            for call in self._exceeding:
                call.result = _with_code(BuiltinToolResult(call.start.id, _NO_MORE, {"status": "failed"}, MAX_USES))
        return super().feed(event)

    def add_results(self, results: Iterable[BuiltinToolResult]) -> list[Event]:
        """Return the events for the client after results of tools."""
        return super().add_results(map(_with_code, results))

    def _call(self, start: ToolCallStart) -> ClientToolCall:
        call = super()._call(start)
        if isinstance(call, BuiltinToolCall):
            name = ToolName(start.name, start.namespace)
            for tools in [tools for tools in self._uses if name in tools]:
                self._uses[tools] -= 1
                if self._uses[tools] < 0:
                    self._exceeding.append(call)
        return call

    def _tell(self, event: Event) -> Iterable[Event]:
        if type(event) is Finish and self._round.can_continue and self._is_spent:
            return (Finish(event.choice, PAUSED),)
        return super()._tell(event)


def _with_code(result: BuiltinToolResult) -> BuiltinToolResult:
    """Return the result with its error code, if it has one, among the members of its item."""
    code = {"error_code": result.error_code} if result.error_code else {}
    return replace(result, item={**result.item, **code})
