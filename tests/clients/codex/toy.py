"""An MCP server on standard input and output with one tool, which says again what it is told."""

import json
import sys
from typing import Any

ECHO = {
    "name": "echo",
    "description": "Says it again.",
    "inputSchema": {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]},
}


def answer(method: str, params: dict[str, Any]) -> dict[str, Any]:
    if method == "initialize":
        about = {"name": "toy", "version": "1"}
        return {"protocolVersion": params["protocolVersion"], "capabilities": {"tools": {}}, "serverInfo": about}
    if method == "tools/list":
        return {"tools": [ECHO]}
    return {"content": [{"type": "text", "text": f"Echo: {params['arguments']['text']}"}]}


for line in sys.stdin:
    request = json.loads(line)
    if "id" in request:  # else it is a notification
        result = answer(request["method"], request.get("params", {}))
        sys.stdout.write(json.dumps({"jsonrpc": "2.0", "id": request["id"], "result": result}) + "\n")
        sys.stdout.flush()
