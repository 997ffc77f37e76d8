"""Claude Code over a backend that speaks its own API: what each side writes reaches the other one unchanged."""

import json
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from checks import run
from messages_words import BACKEND, MODEL, bodies, response_stream
from msgspec import Raw
from msgspec.json import Decoder

from cli import ClaudeCode
from gateway.server.app import create_app
from support.anthropic_server import PATH, text, thinking, tool_use
from support.app import running, settings
from support.messages_events import events_of
from support.upstream import Upstream

THOUGHT = thinking("A file is wanted. Ü 😀", "c2lnbmF0dXJl/+==")
CACHE = '"cache_control":{"type":"ephemeral"'
SEARCH = {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {"query": "deep fjords"}}
PAGE = {"type": "web_search_result", "url": "https://a.example/", "title": "Fjords", "page_age": None}
FOUND = {
    "type": "web_search_tool_result",
    "tool_use_id": "srvtoolu_1",
    "content": [{**PAGE, "encrypted_content": "ZW5j"}],
}
CITED = {
    "type": "web_search_result_location", "url": PAGE["url"], "title": "Fjords", "cited_text": "deep",
    "encrypted_index": "aW5k",
}  # fmt: skip

members = Decoder(dict[str, Raw]).decode


class Overheard:
    """An application that keeps the exchanges of messages: the client's features and body, and the response."""

    def __init__(self, app: Any) -> None:
        self._app = app
        self.exchanges: list[tuple[str, bytearray, bytearray]] = []

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        sent, got = bytearray(), bytearray()
        if scope.get("path") == PATH:
            self.exchanges.append((dict(scope["headers"])[b"anthropic-beta"].decode(), sent, got))

        async def receiving() -> Any:
            message = await receive()
            sent.extend(message.get("body", b""))
            return message

        async def sending(message: Any) -> None:
            got.extend(message.get("body", b""))
            await send(message)

        await self._app(scope | {"extensions": {}}, receiving, sending)  # else the gateway reads from the connection


class Site:
    """Claude Code, a gateway that is overheard, and the backend with its scripts."""

    def __init__(self, cli: ClaudeCode, gateway: Overheard, upstream: Upstream, scripts: tuple[list[Any], ...]) -> None:
        self.cli, self._gateway, self._upstream, self._scripts = cli, gateway, upstream, scripts

    def unchanged(self) -> list[dict[str, Any]]:
        """Check that both sides have the same bytes, and return the requests at the backend."""
        found = bodies(self._upstream, len(self._scripts))
        exchanges = zip(self._gateway.exchanges, self._upstream.posts, self._scripts, strict=True)
        for (features, sent, got), post, script in exchanges:
            assert post.headers["anthropic-beta"] == features
            ours, theirs = ({name: bytes(value) for name, value in members(one).items()} for one in (sent, post.body))
            assert theirs.pop("model") == json.dumps(MODEL).encode() and ours.pop("model")
            assert ours == theirs, (ours, theirs)
            stream = b"".join(step for step in script[1:] if isinstance(step, bytes))
            assert [*blocks(got)] == [*blocks(stream)], bytes(got)
        return found


def blocks(stream: bytes) -> Iterator[Any]:
    """Yield the start of each block with its deltas by type, and the end of the message."""
    events = events_of(stream)
    for index, event in enumerate(events):
        if event["type"] == "content_block_start":
            deltas: dict[str, str] = {}
            for later in events[index + 1 :]:
                if later["type"] == "content_block_delta" and later["index"] == event["index"]:
                    type, value = later["delta"].values()
                    deltas[type] = deltas.get(type, "") + (value if isinstance(value, str) else json.dumps(value))
            yield event, settled(event["content_block"]["type"], deltas)
        elif event["type"] == "message_delta":
            yield event["delta"]


def settled(type: str, deltas: dict[str, str]) -> dict[str, Any]:
    """Return the deltas of a block; the gateway writes the input of a server's tool anew."""
    return {name: json.loads(value) if type == "server_tool_use" and value else value for name, value in deltas.items()}


@asynccontextmanager
async def claude(*scripts: list[Any]) -> AsyncIterator[Site]:
    async with Upstream(scripts, ()).serving() as upstream:
        model = {"upstream_model": MODEL, "aliases": ["claude-*"]}
        known = settings(upstream.url, backend=BACKEND, model=model)
        overheard = Overheard(create_app(known))
        async with running(overheard, known) as url:
            with TemporaryDirectory() as folder:
                yield Site(ClaudeCode(Path(folder), url, {}), overheard, upstream, scripts)


async def a_command_is_run(model: str) -> None:
    """Its thinking comes back with the signature of the backend, and the prompt is cached."""
    bash = tool_use("Bash", command="echo 'grüß dich' > made.txt && cat made.txt", description="Make it")
    async with claude(
        response_stream(THOUGHT, text("I write it."), bash), response_stream(text("It is there."))
    ) as site:
        turn = await site.cli.run("Make a file.", "--model", model)
        assert turn.steps() == [
            ("thinking", THOUGHT["thinking"]),
            ("text", "I write it."),
            ("tool_use", "Bash"),
            ("tool_result", "grüß dich"),
            ("text", "It is there."),
        ], turn
        assert turn.blocks("thinking")[0]["signature"] == THOUGHT["signature"], turn
        first, second = site.unchanged()
        assert first["thinking"] == second["thinking"]
        assert json.dumps(first["system"], separators=(",", ":")).count(CACHE)
        past, result = second["messages"][-2:]
        assert [*map(type_of, past["content"])] == ["thinking", "text", "tool_use"] and THOUGHT in past["content"]
        assert result["content"][0]["tool_use_id"] == bash["id"]


def type_of(block: dict[str, Any]) -> str:
    return block["type"]


async def parallel_calls_are_all_run(model: str) -> None:
    """The results come as they end; the backend gets all of them in one message."""
    calls = [tool_use("Bash", f"toolu_{word}", command=f"echo {word}", description="Say it") for word in ("one", "two")]
    async with claude(response_stream(*calls), response_stream(text("Done."))) as site:
        turn = await site.cli.run("Say it.", "--model", model)
        *steps, last = turn.steps()
        assert steps[:2] == [("tool_use", "Bash")] * 2 and last == ("text", "Done."), turn
        assert sorted(steps[2:]) == [("tool_result", "one"), ("tool_result", "two")], turn
        _, second = site.unchanged()
        results = second["messages"][-1]["content"]
        contents = {each["tool_use_id"]: each["content"] for each in results if each["type"] == "tool_result"}
        assert contents == {"toolu_one": "one", "toolu_two": "two"}, results


async def the_web_is_searched_by_the_backend(model: str) -> None:
    """The client's tool asks in a request of its own, with the tool of the server."""
    search = tool_use("WebSearch", query="fjords")
    found = response_stream(SEARCH, FOUND, text("They are "), text("deep", citations=[CITED]))
    async with claude(response_stream(search), found, response_stream(text("Deep."))) as site:
        turn = await site.cli.run("How deep are fjords?", "--model", model)
        assert turn.steps()[-1] == ("text", "Deep."), turn
        _, inner, last = site.unchanged()
        assert any(tool.get("type", "").startswith("web_search_") for tool in inner["tools"]), inner["tools"]
        assert PAGE["url"] in json.dumps(last["messages"][-1]), last["messages"][-1]


if __name__ == "__main__":
    run(
        "Claude Code, a model behind its own API",
        {},
        [a_command_is_run, parallel_calls_are_all_run, the_web_is_searched_by_the_backend],
        models=("m",),
    )
