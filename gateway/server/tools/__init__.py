"""Run tools at the gateway, between the rounds of a response.

A Provider has tools for one answer and runs their calls; `Toolset` has those of all that the answer may use, and holds
them to the limits.  `ToolRegistry` makes toolsets, and keeps what lasts longer than an answer.
"""

from gateway.server.tools.running import ToolRoundCall, Used
from gateway.server.tools.toolbox import ToolOffer, ToolProvider, Toolset, ToolsetOptions
from gateway.server.tools.workshop import ToolRegistry

__all__ = ["ToolOffer", "ToolProvider", "ToolRegistry", "ToolRoundCall", "Toolset", "ToolsetOptions", "Used"]
