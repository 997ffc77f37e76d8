"""Track the built-in tool calls of one round: their items for the client, and their output for the model.

`with_builtin_tools` adds the tools to a request once they are known.
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

    item: the output item of a tool call when it begins, without its id.
    prefix: the prefix of that id.
    failed: an error text → the members of the item of a failed tool call.
    request: the approval request item, without id and arguments; None: the tool needs no approval.
    """

    tool: Tool
    item: OutputItemDict
    prefix: str
    failed: Callable[[str], OutputItemDict]
    request: OutputItemDict | None = None


class BuiltinToolRun(Struct, frozen=True):
    """A pending run of a built-in tool; the id is that of the model's tool call."""

    id: str
    ours: BuiltinTool
    arguments: str


class BuiltinToolResult(Struct, frozen=True, omit_defaults=True):
    """The result of a tool call.  content: for the model; item: the members of its output item.

    error_code: the code of a failure for clients of the Messages API, the only one with such codes.
    """

    id: str
    content: Content
    item: OutputItemDict = {}
    error_code: str = ""


class ClientToolCall:
    """A tool call that the client runs; `number`: its index among the client's tool calls."""

    goes_on = False  # the loop cannot continue without the client

    def __init__(self, start: ToolCallStart, number: int) -> None:
        self.start, self._number = start, number
        self.argument_chunks: list[str] = []
        self.complete: bool | None = None  # None: not ended yet

    @property
    def arguments(self) -> str:
        """The arguments so far, as JSON."""
        return "".join(self.argument_chunks)

    def begin(self) -> Iterable[Event]:
        """Return the events for the start of the call."""
        return (replace(self.start, call=self._number),)

    def on_arguments(self, event: Any) -> Iterable[Event]:  # noqa: ANN401 - ToolArgsDelta or ToolInputDelta
        """Return the events for a piece of the arguments."""
        return (replace(event, call=self._number),)

    def end(self, event: ToolCallEnd) -> Iterable[Event]:
        """Return the events for the end of the call."""
        return (replace(event, call=self._number),)


class SkippedToolCall(ClientToolCall):
    """A tool call that does not run, such as one beyond the limit.

    The client sees nothing of it.  The model gets `content` as its output.
    """

    goes_on = True

    def __init__(self, start: ToolCallStart, content: Content = _NO_MORE) -> None:
        super().__init__(start, -1)
        self.content: Content = content

    def begin(self) -> Iterable[Event]:
        """Return no events."""
        return ()

    def on_arguments(self, event: Any) -> Iterable[Event]:  # noqa: ANN401 - as above
        """Return no events."""
        return ()

    def end(self, event: ToolCallEnd) -> Iterable[Event]:
        """Return no events."""
        return ()


class ApprovalToolCall(SkippedToolCall):
    """A tool call that the client has to approve first."""

    goes_on = False

    def __init__(self, start: ToolCallStart, item: OutputItemDict) -> None:
        super().__init__(start)
        self._item = item

    def end(self, event: ToolCallEnd) -> Iterable[Event]:
        """Return the approval request."""
        return (BuiltinItem(0, encode_item({**self._item, "arguments": self.arguments})),)


class BuiltinToolCall(ClientToolCall):
    """A tool call that runs at the gateway; its output item stays open until there is a result."""

    goes_on = True

    def __init__(self, start: ToolCallStart, ours: BuiltinTool, item: OutputItemDict) -> None:
        super().__init__(start, -1)
        self._ours, self._item = ours, item
        self.result: BuiltinToolResult | None = None

    @property
    def content(self) -> Content:
        """The output for the model; only for a tool call with a result."""
        assert self.result
        return self.result.content

    @property
    def run(self) -> BuiltinToolRun:
        """The run of this tool call."""
        return BuiltinToolRun(self.start.id, self._ours, self.arguments)

    def fail(self, why: str) -> None:
        """Set a failed result with this error text."""
        self.result = BuiltinToolResult(self.start.id, why, self._ours.failed(why))

    def begin(self) -> Iterable[Event]:
        """Return the start of the output item."""
        return (BuiltinItemStart(0, encode_item(self._item)),)

    def on_arguments(self, event: Any) -> Iterable[Event]:  # noqa: ANN401 - as above
        """Return the arguments as a delta of the output item."""
        return (BuiltinArgsDelta(0, event.json),)

    def end(self, event: ToolCallEnd) -> Iterable[Event]:
        """Return the start of the run, unless the arguments are incomplete."""
        return (BuiltinRunStart(0),) if event.complete else ()

    def close(self) -> Event:
        """Return the end of the output item; only for a tool call with a result."""
        assert self.result
        return BuiltinItemEnd(0, encode_item(self.result.item))


def message_tool_call(call: ClientToolCall) -> Message:
    """Return the entry in `tool_calls` of the assistant message."""
    start = call.start
    namespace = {"namespace": start.namespace} if start.namespace else {}
    function = {"name": start.name, **namespace, "arguments": call.arguments}
    return {"id": start.id, "type": "function", "function": function, **call_signature(start)}


def encode_item(item: OutputItemDict) -> Raw:
    """Encode an output item as events carry it."""
    return Raw(json.encode(item))


def with_builtin_tools(request: Request, tools: Sequence[Tool], ledger: Warnings) -> Request:
    """Return the request with these tools added.

    A choice that names a namespace without a tool means all its tools.  If no tool can satisfy the choice, it is
    dropped with a warning.
    """
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
    """Return False for a choice that no tool can satisfy, as when an MCP server is down."""
    if isinstance(choice, ToolName):
        return any(ToolName(tool.name, tool.namespace) == choice for tool in callable)
    return choice != "required" or bool(callable)
