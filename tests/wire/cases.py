"""All cases, in an order in which neighbours share the beginning of their prompts."""

from wire import chat, message_errors, message_tools, messages, refusals, responses, services, thoughts, tools
from wire.case import CASES

__all__ = [
    "CASES",
    "chat",
    "message_errors",
    "message_tools",
    "messages",
    "refusals",
    "responses",
    "services",
    "thoughts",
    "tools",
]
