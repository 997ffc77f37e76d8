"""A program on the Claude Agent SDK: it asks its questions in one session, and prints what comes back, a line each."""

import asyncio
import json
import sys
from collections.abc import Iterator
from typing import Any

from claude_agent_sdk import (
    AssistantMessage,
    ClaudeAgentOptions,
    ClaudeSDKClient,
    Message,
    ResultMessage,
    TextBlock,
    ThinkingBlock,
    ToolUseBlock,
    create_sdk_mcp_server,
    tool,
)


@tool("echo", "Says it again.", {"text": str})
async def echo(arguments: dict[str, Any]) -> dict[str, Any]:
    return {"content": [{"type": "text", "text": f"Echo: {arguments['text']}"}]}


def blocks_of(message: Message) -> Iterator[list[Any]]:
    """Yield the blocks of the assistant, and the end of a turn."""
    match message:
        case AssistantMessage():
            yield from filter(None, map(matter, message.content))
        case ResultMessage():
            yield ["result", message.subtype, message.is_error, message.structured_output]


def matter(block: Any) -> list[Any] | None:
    match block:
        case TextBlock():
            return ["text", block.text]
        case ThinkingBlock():
            return ["thinking", block.thinking, block.signature[:4]]
        case ToolUseBlock():
            return ["tool_use", block.name]
    return None


async def main(options: dict[str, Any], *questions: str) -> None:
    own = {"own": create_sdk_mcp_server("own", tools=[echo])}
    known = ClaudeAgentOptions(mcp_servers=own, allowed_tools=["Bash", "mcp__own__echo"], setting_sources=[], **options)
    async with ClaudeSDKClient(known) as client:
        for question in questions:
            await client.query(question)
            async for message in client.receive_response():
                for line in blocks_of(message):
                    sys.stdout.write(json.dumps(line) + "\n")


if __name__ == "__main__":
    asyncio.run(main(json.loads(sys.argv[1]), *sys.argv[2:]))
