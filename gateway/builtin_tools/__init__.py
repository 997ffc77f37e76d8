"""Define the tools that run at the gateway: the model's calls in, items and calls to be run out.

Pure.  `ToolLoop` reads the rounds with a backend, as the last of their filters.  `ToolRoundSource` is the source of the
rounds between them, in which tools run.  They do not know the tools, nor the code that runs them.
"""

from gateway.builtin_tools.citations import Sources
from gateway.builtin_tools.tool_calls import BuiltinTool, BuiltinToolResult, BuiltinToolRun, with_builtin_tools
from gateway.builtin_tools.tool_loop import HiddenToolLoop, ToolLoop, ToolLoopLimits, ToolRoundSource

__all__ = [
    "BuiltinTool",
    "BuiltinToolResult",
    "BuiltinToolRun",
    "HiddenToolLoop",
    "Sources",
    "ToolLoop",
    "ToolLoopLimits",
    "ToolRoundSource",
    "with_builtin_tools",
]
