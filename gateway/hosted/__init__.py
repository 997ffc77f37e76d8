"""The tools that run at the gateway: what the model says of them in, items and calls to be run out.

Pure.  `ToolLoop` hears the rounds with a backend, as the last of their filters.  `ToolRoundSource` is the source of the
rounds between them, in which tools run.  They do not know the tools, nor the code that runs them.
"""

from gateway.hosted.calls import BuiltinTool, BuiltinToolResult, BuiltinToolRun
from gateway.hosted.loop import HiddenToolLoop, ToolLoop, ToolLoopLimits, ToolRoundSource
from gateway.hosted.offering import with_builtin_tools
from gateway.hosted.sources import Sources

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
