"""Run tools at the gateway, between the rounds of a response.

A ToolProvider has tools for one response and runs their calls.  A `Toolset` has the tools of all providers that the
response may use, and applies their limits.  The `ToolRegistry` makes toolsets, and keeps the resources that outlive a
response.
"""

from gateway.server.tools.tool_registry import ToolRegistry
from gateway.server.tools.toolset import ToolOffer, ToolProvider, ToolRoundCall, Toolset, ToolsetOptions, Used

__all__ = ["ToolOffer", "ToolProvider", "ToolRegistry", "ToolRoundCall", "Toolset", "ToolsetOptions", "Used"]
