"""Track the built-in tool calls of one round: each knows its items for the client and its output for the model.

The tools are added to the request once they are known.
"""

from collections.abc import Callable, Iterable, Sequence, Set
from typing import Any

from msgspec import Raw, Struct, json
from msgspec.structs import replace

from gateway.api.signatures import call_signature
from gateway.events import (
    BuiltinArgsDelta,
    BuiltinItem,
    BuiltinItemEnd,
    BuiltinItemStart,
    BuiltinRunStart,
    Event,
    ToolCallEnd,
    ToolCallStart,
)
from gateway.request import Message, Request, Tool, ToolChoice, ToolName
from gateway.warnings import Warnings

OutputItemDict = dict[str, Any]
Content = str | list[dict[str, Any]]

_NO_MORE = "This tool was not called: no more calls are allowed. Answer with what is known."
ToolChoiceResult = tuple[ToolChoice | None, frozenset[ToolName] | None]


class BuiltinTool(Struct, frozen=True):
    """A tool that runs at the gateway.

    item: of a call, as it begins, but for its id; prefix: what the id begins with.
    failed: why a call came to nothing → the members of its item that say so.
    request: the item that asks for approval, but for its id and the arguments; None: it need not be asked for.
    """

    tool: Tool
    item: OutputItemDict
    prefix: str
    failed: Callable[[str], OutputItemDict]
    request: OutputItemDict | None = None


class BuiltinToolRun(Struct, frozen=True):
    """A call that has to be made; the id is that of the model's call."""

    id: str
    ours: BuiltinTool
    arguments: str


class BuiltinToolResult(Struct, frozen=True):
    """The result of a call.  content: for the model; item: the members of its output item."""

    id: str
    content: Content
    item: OutputItemDict = {}


class ClientToolCall:
    """A call that the client has to answer; `number`: as the client counts them."""

    goes_on = False  # the client has to go on

    def __init__(self, start: ToolCallStart, number: int) -> None:
        self.start, self._number = start, number
        self.argument_chunks: list[str] = []
        self.complete: bool | None = None  # None: it has not come to its end

    @property
    def arguments(self) -> str:
        return "".join(self.argument_chunks)

    def begin(self) -> Iterable[Event]:
        return (replace(self.start, call=self._number),)

    def on_arguments(self, event: Any) -> Iterable[Event]:  # noqa: ANN401 - ToolArgsDelta or ToolInputDelta
        return (replace(event, call=self._number),)

    def end(self, event: ToolCallEnd) -> Iterable[Event]:
        return (replace(event, call=self._number),)


class SkippedToolCall(ClientToolCall):
    """A call beyond the limit: only the model learns of it."""

    goes_on = True

    def __init__(self, start: ToolCallStart, content: Content = _NO_MORE) -> None:
        super().__init__(start, -1)
        self.content: Content = content

    def begin(self) -> Iterable[Event]:
        return ()

    def on_arguments(self, event: Any) -> Iterable[Event]:  # noqa: ANN401 - as above
        return ()

    def end(self, event: ToolCallEnd) -> Iterable[Event]:
        return ()


class ApprovalToolCall(SkippedToolCall):
    """One that the client has to approve first."""

    goes_on = False

    def __init__(self, start: ToolCallStart, item: OutputItemDict) -> None:
        super().__init__(start)
        self._item = item

    def end(self, event: ToolCallEnd) -> Iterable[Event]:
        return (BuiltinItem(0, encode_item({**self._item, "arguments": self.arguments})),)


class BuiltinToolCall(ClientToolCall):
    """One that is run here: its item is open until there is a result."""

    goes_on = True

    def __init__(self, start: ToolCallStart, ours: BuiltinTool, item: OutputItemDict) -> None:
        super().__init__(start, -1)
        self._ours, self._item = ours, item
        self.result: BuiltinToolResult | None = None

    @property
    def content(self) -> Content:
        assert self.result
        return self.result.content

    @property
    def run(self) -> BuiltinToolRun:
        return BuiltinToolRun(self.start.id, self._ours, self.arguments)

    def fail(self, why: str) -> None:
        self.result = BuiltinToolResult(self.start.id, why, self._ours.failed(why))

    def begin(self) -> Iterable[Event]:
        return (BuiltinItemStart(0, encode_item(self._item)),)

    def on_arguments(self, event: Any) -> Iterable[Event]:  # noqa: ANN401 - as above
        return (BuiltinArgsDelta(0, event.json),)

    def end(self, event: ToolCallEnd) -> Iterable[Event]:
        return (BuiltinRunStart(0),) if event.complete else ()

    def close(self) -> Event:
        assert self.result
        return BuiltinItemEnd(0, encode_item(self.result.item))


def message_tool_call(call: ClientToolCall) -> Message:
    """The call in the message that made it."""
    start = call.start
    namespace = {"namespace": start.namespace} if start.namespace else {}
    function = {"name": start.name, **namespace, "arguments": call.arguments}
    return {"id": start.id, "type": "function", "function": function, **call_signature(start)}


def encode_item(item: OutputItemDict) -> Raw:
    """As events carry it."""
    return Raw(json.encode(item))


def with_builtin_tools(request: Request, tools: Sequence[Tool], ledger: Warnings) -> Request:
    """A choice that names no tool of a namespace stands for all that are there."""
    ours = [ToolName(tool.name, tool.namespace) for tool in tools]
    choice, allowed = _chosen(request, ours)
    known = {ToolName(tool.name, tool.namespace) for tool in request.tools}
    more = tuple(tool for tool, named in zip(tools, ours, strict=True) if named not in known)
    whole = replace(request, tools=(*request.tools, *more), tool_choice=choice, allowed=allowed)
    if _kept(choice, whole.callable_tools):
        return whole
    ledger.add("unenforced", "tool_choice")
    return replace(whole, tool_choice=None)


def _chosen(request: Request, ours: Iterable[ToolName]) -> ToolChoiceResult:
    choice, allowed = request.tool_choice, request.allowed
    if isinstance(choice, ToolName) and not choice.name:
        return "required", frozenset(_each({choice}, ours))
    return choice, None if allowed is None else frozenset(_each(allowed, ours))


def _each(named: Set[ToolName], ours: Iterable[ToolName]) -> Iterable[ToolName]:
    whole = {one.namespace for one in named if not one.name}
    return {one for one in named if one.name} | {one for one in ours if one.namespace in whole}


def _kept(choice: ToolChoice | None, callable: Sequence[Tool]) -> bool:
    """False for a choice of what is not there, as its server is down."""
    if isinstance(choice, ToolName):
        return any(ToolName(tool.name, tool.namespace) == choice for tool in callable)
    return choice != "required" or bool(callable)
