"""A gateway in front of the real small model, for clients in other environments, with tools that run at it.

It prints one line, its address for clients, once it answers, and lives as long as its standard input is open.
The conversations of worked_examples.py go to the file that it is given.
"""

import json
import sys
from pathlib import Path
from typing import Any

from gateway import demo
from gateway.config import parse
from gateway.formats import format_names
from support.mcp_server import Toys
from support.search_services import Searching
from support.threaded_gateway import listening, served
from support.worked_examples import TURNS, Message, Turn

CONFIG = """
backends:
  parsed: {{kind: llamacpp, url: "{parsed}"}}
  raw: {{kind: llamacpp, url: "{raw}"}}
models:
  native: {{backends: [parsed], upstream_model: smollm2, format: native, aliases: [qwen, smollm2]}}  # as the documentation has it
  hermes: {{backends: [raw], upstream_model: smollm2, format: hermes_json}}
tools:
  calls: 1  # a small model does not know when it has enough
  mcp: {{servers: {{toys: {{url: "{toys}/mcp", require_approval: never}}}}}}
  web_search: {{service: searxng, url: "{search}"}}
"""


def main() -> None:
    Path(sys.argv[1]).write_text(json.dumps({name: exported(turn) for name, turn in TURNS.items()}), "utf-8")
    common = ("--threads", "1", "--temp", "0")  # not every client can be told a temperature
    raw = ("--skip-chat-parsing", "--reasoning-format", "none")
    with (
        demo.start_demo(*common) as parsed_url,
        demo.start_demo(*common, *raw) as raw_url,
        listening(Toys().server.streamable_http_app()) as toys,
        listening(Searching()) as search,
        served(
            parse(CONFIG.format(parsed=parsed_url, raw=raw_url, toys=toys, search=search), "c.yaml", {}, format_names())
        ) as url,
    ):
        sys.stdout.write(f"{url}/v1\n")
        sys.stdout.flush()
        sys.stdin.read()


def exported(turn: Turn) -> dict[str, Any]:
    """As JSON; `tagged` are the messages for a client that does not send thoughts back in a field."""
    return turn._asdict() | {"tagged": [tagged(message) for message in turn.messages]}


def tagged(message: Message) -> Message:
    rest = {key: value for key, value in message.items() if key != "reasoning_content"}
    thought = message.get("reasoning_content")
    return rest | ({"content": f"<think>\n{thought}\n</think>\n\n{message['content']}"} if thought else {})


if __name__ == "__main__":
    main()
