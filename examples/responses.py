"""Ask twice by the Responses API; the gateway stores the first turn: python examples/responses.py [MODEL]."""

import os
import sys

from openai import OpenAI

MODEL = sys.argv[1] if len(sys.argv) > 1 else "smollm2"

client = OpenAI(
    base_url=os.getenv("OPENAI_BASE_URL", "http://127.0.0.1:8900/v1"),
    api_key=os.getenv("OPENAI_API_KEY", "none"),  # a key only if the gateway has keys
)
first = client.responses.create(model=MODEL, input="Name a city in Norway.")
print(first.output_text)

stream = client.responses.create(model=MODEL, input="And one in Spain?", previous_response_id=first.id, stream=True)
for event in stream:
    if event.type == "response.output_text.delta":
        print(event.delta, end="", flush=True)
    elif event.type == "response.completed":
        print(f"\n{event.response.usage.total_tokens} tokens")
