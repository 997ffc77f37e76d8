"""Stream a message by Anthropic's SDK, with a tool: python examples/messages.py [MODEL]."""

import os
import sys

from anthropic import Anthropic

MODEL = sys.argv[1] if len(sys.argv) > 1 else "smollm2"
WEATHER = {
    "name": "get_weather",
    "description": "Return the weather of a city.",
    "input_schema": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
}

client = Anthropic(
    base_url=os.getenv("ANTHROPIC_BASE_URL", "http://127.0.0.1:8900"),  # without /v1
    api_key=os.getenv("ANTHROPIC_API_KEY", "none"),  # a key only if the gateway has keys
)
question = {"role": "user", "content": "What is the weather in Oslo?"}
with client.messages.stream(model=MODEL, max_tokens=500, messages=[question], tools=[WEATHER]) as stream:
    for text in stream.text_stream:
        print(text, end="", flush=True)
    answer = stream.get_final_message()

for block in answer.content:
    if block.type == "tool_use":
        print(block.name, block.input)
print(f"{answer.stop_reason}, {answer.usage.output_tokens} tokens")
