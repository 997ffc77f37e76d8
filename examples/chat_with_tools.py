"""Stream a chat completion that may call a tool: python examples/chat_with_tools.py [MODEL]."""

import os
import sys

from openai import OpenAI

MODEL = sys.argv[1] if len(sys.argv) > 1 else "smollm2"
WEATHER = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "Return the weather of a city.",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
    },
}

client = OpenAI(
    base_url=os.getenv("OPENAI_BASE_URL", "http://127.0.0.1:8900/v1"),
    api_key=os.getenv("OPENAI_API_KEY", "none"),  # a key only if the gateway has keys
)
stream = client.chat.completions.create(
    model=MODEL,
    messages=[{"role": "user", "content": "What is the weather in Oslo?"}],
    tools=[WEATHER],
    stream=True,
    stream_options={"include_usage": True},
)
for chunk in stream:
    for choice in chunk.choices:
        print(choice.delta.content or "", end="", flush=True)
        for call in choice.delta.tool_calls or ():
            if call.function.name:
                print(f"\n{call.function.name} ", end="")
            print(call.function.arguments or "", end="", flush=True)
    if chunk.usage:
        print(f"\n{chunk.usage.total_tokens} tokens")
