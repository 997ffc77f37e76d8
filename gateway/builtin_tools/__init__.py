"""Define the tools that run at the gateway: model tool calls in, output items and pending runs out.

Pure.  `ToolLoop` is the last filter of each round with a backend.  `ToolRoundSource` is the event source of the rounds
between them, in which tools run.  Neither knows the tools, nor the code that runs them.
"""

from gateway.builtin_tools.citations import Sources
from gateway.builtin_tools.pausing_loop import PausingToolLoop
from gateway.builtin_tools.tool_calls import BuiltinTool, BuiltinToolResult, BuiltinToolRun, with_builtin_tools
from gateway.builtin_tools.tool_loop import HiddenToolLoop, ToolLoop, ToolLoopLimits, ToolRoundSource

__all__ = [
    "BuiltinTool",
    "BuiltinToolResult",
    "BuiltinToolRun",
    "HiddenToolLoop",
    "PausingToolLoop",
    "Sources",
    "ToolLoop",
    "ToolLoopLimits",
    "ToolRoundSource",
    "with_builtin_tools",
]
