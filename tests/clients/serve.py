"""A gateway in front of the real small model, for clients in other environments, with tools that run at it.

With --messages, the model is a scripted one behind the Messages API. The program prints one line, its address for
clients, once it answers, and lives as long as its standard input is open. The file that it is given gets what the
clients have to know: the models, how their signatures begin, fields of requests, and the conversations.
"""

import json
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import messages_model

from gateway import demo
from gateway.config import parse
from gateway.formats import format_names
from support.mcp_server import Toys
from support.search_services import Searching
from support.threaded_gateway import listening, served
from support.worked_examples import TURNS, Message, Turn

PARSED_AND_RAW = """
backends:
  parsed: {{kind: llamacpp, url: "{parsed}"}}
  raw: {{kind: llamacpp, url: "{raw}"}}
models:
  native: {{backends: [parsed], upstream_model: smollm2, format: native, aliases: [qwen, smollm2]}}  # as the documentation has it
  hermes: {{backends: [raw], upstream_model: smollm2, format: hermes_json}}
"""
MESSAGES = """
backends:
  messages: {{kind: anthropic, url: "{messages}"}}
models:
  messages: {{backends: [messages], aliases: [native, hermes]}}
"""
TOOLS = """
tools:
  calls: 1  # a small model does not know when it has enough
  mcp: {{servers: {{toys: {{url: "{toys}/mcp", require_approval: never}}}}}}
  web_search: {{service: searxng, url: "{search}"}}
"""

Facts = dict[str, Any]


def main(file: str, mode: str = "") -> None:
    serving = messages_model_behind if mode == "--messages" else small_model_behind
    with (
        listening(Toys().server.streamable_http_app()) as toys,
        listening(Searching()) as search,
        serving() as (known, facts),
        served(parse(known + TOOLS.format(toys=toys, search=search), "c.yaml", {}, format_names())) as url,
    ):
        Path(file).write_text(json.dumps(facts), "utf-8")
        sys.stdout.write(f"{url}/v1\n")
        sys.stdout.flush()
        sys.stdin.read()


@contextmanager
def small_model_behind() -> Iterator[tuple[str, Facts]]:
    """Yield two models, one of a server that parses, and what the clients have to know.

    The responses must not depend on what the model was asked before.
    """
    common = ("--threads", "1", "--temp", "0")  # not every client can be told a temperature
    raw = ("--skip-chat-parsing", "--reasoning-format", "none")
    uncached = {"cache_prompt": False}
    facts = {
        "models": ["native", "hermes"],
        "signature": "gw1.",
        "extra": uncached,
        "message_extra": {"temperature": 0, **uncached},
        "turns": exported(TURNS),
    }
    with demo.start_demo(*common) as parsed_url, demo.start_demo(*common, *raw) as raw_url:
        yield PARSED_AND_RAW.format(parsed=parsed_url, raw=raw_url), facts


@contextmanager
def messages_model_behind() -> Iterator[tuple[str, Facts]]:
    """Yield the same of the scripted model: its server refuses fields that the Messages API does not have."""
    facts = {
        "models": ["messages"],
        "signature": messages_model.SIGNATURE,
        "extra": {},
        "message_extra": {},
        "turns": exported(messages_model.MARKED),
    }
    with listening(messages_model.app()) as url:
        yield MESSAGES.format(messages=url), facts


def exported(turns: Mapping[str, Turn]) -> dict[str, Any]:
    """Return conversations as JSON; `tagged` are the messages for a client that does not send thoughts back in a field."""
    return {
        name: turn._asdict() | {"tagged": [tagged(message) for message in turn.messages]}
        for name, turn in turns.items()
    }


def tagged(message: Message) -> Message:
    rest = {key: value for key, value in message.items() if key != "reasoning_content"}
    thought = message.get("reasoning_content")
    return rest | ({"content": f"<think>\n{thought}\n</think>\n\n{message['content']}"} if thought else {})


if __name__ == "__main__":
    main(*sys.argv[1:])
