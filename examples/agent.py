"""Run an agent: the model calls tools until it has an answer: python examples/agent.py [MODEL]."""

import json
import os
import sys

from openai import OpenAI

MODEL = sys.argv[1] if len(sys.argv) > 1 else "smollm2"
NOTES = {"monday.txt": "Write the report.", "friday.txt": "Call Ada at ten."}
NAME = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}
NOTHING = {"type": "object", "properties": {}}
TOOLS = {
    "list_notes": (lambda: "\n".join(NOTES), "List the names of all notes.", NOTHING),
    "read_note": (lambda name: NOTES.get(name, "There is no such note."), "Read a note.", NAME),
}
OFFERED = [
    {"type": "function", "function": {"name": name, "description": text, "parameters": schema}}
    for name, (_, text, schema) in TOOLS.items()
]

client = OpenAI(
    base_url=os.getenv("OPENAI_BASE_URL", "http://127.0.0.1:8900/v1"),
    api_key=os.getenv("OPENAI_API_KEY", "none"),  # a key only if the gateway has keys
)
messages = [{"role": "user", "content": "What have I to do on Friday? Look into my notes."}]
for _ in range(10):  # turns at most
    answer = client.chat.completions.create(model=MODEL, messages=messages, tools=OFFERED).choices[0].message
    messages.append(answer.model_dump(exclude_none=True))
    if not answer.tool_calls:
        print(answer.content)
        break
    for call in answer.tool_calls:
        print(call.function.name, call.function.arguments)
        result = TOOLS[call.function.name][0](**json.loads(call.function.arguments))
        messages.append({"role": "tool", "tool_call_id": call.id, "content": result})
