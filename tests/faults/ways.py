"""The ways to ask for an answer, and what a client makes of what it gets.

streamed: it is told as it comes; headed: it has headers; kept: what it is told is what was stored.
"""

import asyncio
import json

import httpx
from msgspec import Struct

from support import messages_events
from support.app import HELLO_MESSAGES
from support.responses_events import checked
from support.sse import events, payloads
from support.wait import until
from support.websocket import connected

TOOLS = {"type": "function", "name": "f", "parameters": {"type": "object", "properties": {"a": {"type": "integer"}}}}
TYPES = {
    429: "rate_limit_error", 502: "api_error", 504: "timeout_error", 529: "overloaded_error",
}  # fmt: skip
DONE = "data: [DONE]\n\n"
CODES = {413: "invalid_prompt", 429: "rate_limit_exceeded"}  # those of a Response are a closed set
PATIENCE = 10  # seconds within which every answer is over


class Fails(Struct, frozen=True):
    """With this status and code; where content had come before, a stream has that and then the error.

    after: the backend's word for when to come back.
    """

    status: int
    code: str
    text: str = ""
    after: str | None = None

    def outcome(self, way):
        if isinstance(way, Messages):
            return way.failure(self)
        if way.kept or (way.streamed and self.text):
            return Outcome(200, self.code if way.headed else CODES.get(self.status, "server_error"), self.text)
        return Outcome(self.status, self.code, after=self.after if way.headed else None)


class Answers(Struct, frozen=True):
    """As if nothing were."""

    text: str = "Hi"

    def outcome(self, way):
        return Outcome(200, None, self.text)


class Outcome(Struct, frozen=True):
    """What a client has of an answer: its status, the code of its failure if it is one, and all that it was told.

    after: when to come back, if the gateway says so.  ended: False if it broke off.
    """

    status: int
    code: str | None = None
    text: str = ""
    after: str | None = None
    ended: bool = True

    def __str__(self):
        if not self.ended:
            return "breaks off"
        if self.status != 200:
            return f"{self.status} {self.code}" + (f", retry-after {self.after}" if self.after else "")
        return f"200, error {self.code}" if self.code else "200"


class Chat:
    """POST /v1/chat/completions."""

    path, headed, kept = "/v1/chat/completions", True, False

    def __init__(self, *, streamed):
        self.streamed, self.name = streamed, f"chat, {'stream' if streamed else 'whole'}"

    def body(self, text="Hello"):
        tool = {"type": "function", "function": {key: value for key, value in TOOLS.items() if key != "type"}}
        request = {"model": "m", "messages": [{**HELLO_MESSAGES[0], "content": text}], "tools": [tool]}
        return json.dumps({**request, "stream": self.streamed}).encode()

    async def ask(self, site, text="Hello"):
        """The Outcome; what is no proper answer is an AssertionError."""
        return await post(self, site.client, self.body(text))

    def whole(self, body):
        message = body["choices"][0]["message"]
        calls = "".join(call["function"]["arguments"] for call in message.get("tool_calls") or ())
        return (message.get("reasoning_content") or "") + (message["content"] or "") + calls, None

    def stream(self, text):
        frames = payloads(text)
        errors = [frame["error"] for frame in frames if "error" in frame]
        assert (frames[-1] == "[DONE]") == (not errors), "it ends in [DONE] unless it failed"
        assert not errors or (len(errors) == 1 and "error" in frames[-1]), "the error comes last, and once"
        return self.text_of(text), errors[0]["code"] if errors else None

    def text_of(self, text):
        """The content, of a stream that may have broken off."""
        deltas = [
            choice["delta"]
            for frame in payloads(text[: text.rfind("\n\n") + 2])
            if "choices" in frame
            for choice in frame["choices"]
        ]
        calls = (call for delta in deltas for call in delta.get("tool_calls") or ())
        return (
            "".join(delta.get("reasoning_content") or "" for delta in deltas)
            + "".join(delta.get("content") or "" for delta in deltas)
            + "".join(call["function"].get("arguments") or "" for call in calls)
        )


class Responses:
    """POST /v1/responses."""

    path, headed, kept, tools = "/v1/responses", True, False, [TOOLS]

    def __init__(self, *, streamed):
        self.streamed, self.name = streamed, f"responses, {'stream' if streamed else 'whole'}"

    def body(self, text="Hello"):
        return json.dumps({**self.fields(text), "stream": self.streamed, "store": False}).encode()

    def fields(self, text="Hello"):
        return {"model": "m", "input": text, "tools": self.tools}

    async def ask(self, site, text="Hello"):
        return await post(self, site.client, self.body(text))

    def whole(self, body):
        assert body["status"] == "completed"
        return "".join(map(item_text, body["output"])), None

    def stream(self, text):
        checked(text.encode())
        assert text.endswith(DONE)
        errors = [event["code"] for event in events(text) if event["type"] == "error"]
        return self.text_of(text), errors[0] if errors else None

    def text_of(self, text):
        return "".join(event["delta"] for event in events(text[: text.rfind("\n\n") + 2]) if "delta" in event)


class Messages:
    """POST /v1/messages, whose errors have a type where the other APIs have a code."""

    path, headed, kept = "/v1/messages", True, False

    def __init__(self, *, streamed):
        self.streamed, self.name = streamed, f"messages, {'stream' if streamed else 'whole'}"

    def body(self, text="Hello"):
        tool = {"name": TOOLS["name"], "input_schema": TOOLS["parameters"]}
        request = {
            "model": "m",
            "max_tokens": 100,
            "messages": [{**HELLO_MESSAGES[0], "content": text}],
            "tools": [tool],
        }
        return json.dumps({**request, "stream": self.streamed}).encode()

    async def ask(self, site, text="Hello"):
        return await post(self, site.client, self.body(text))

    def failure(self, fails):
        """The Outcome of a failure."""
        if self.streamed and fails.text:
            return Outcome(200, "overloaded_error" if fails.status in (429, 503) else "api_error", fails.text)
        status = 529 if fails.status == 503 else fails.status
        return Outcome(status, TYPES[status], after=fails.after)

    def whole(self, body):
        messages_events.check_message(body)
        return "".join(map(block_text, body["content"])), None

    def stream(self, text):
        message = messages_events.checked(text.encode())
        return self.text_of(text), (message.get("error") or {}).get("type")

    def text_of(self, text):
        deltas = (event.get("delta", {}) for event in events(text[: text.rfind("\n\n") + 2]))
        return "".join(delta.get(member, "") for delta in deltas for member in ("thinking", "text", "partial_json"))


class Background:
    """A response in the background, which is asked for until it is over."""

    name, streamed, headed, kept, tools = "background", False, False, True, [TOOLS]

    async def ask(self, site, text="Hello"):
        request = {"model": "m", "input": text, "tools": self.tools, "background": True}
        answer = await site.client.post("/v1/responses", json=request)
        answers = [answer]

        async def over():
            answer = answers[-1]
            if answer.status_code != 200 or answer.json()["status"] not in ("queued", "in_progress"):
                return True
            answers[:] = [await site.client.get(f"/v1/responses/{answer.json()['id']}")]
            return False

        await until(over)
        (answer,) = answers
        response = answer.json()
        error = response["error"]
        return Outcome(answer.status_code, error and error["code"], "".join(map(item_text, response.get("output", ()))))


class Socket:
    """A turn of a WebSocket."""

    name, streamed, headed, kept, tools = "WebSocket", True, False, False, [TOOLS]

    async def ask(self, site, text="Hello"):
        async with connected(site) as socket:
            await socket.create(input=text, tools=self.tools, store=False)
            event_list = await socket.events()
        content, last = "".join(event["delta"] for event in event_list if "delta" in event), event_list[-1]
        error = last["error"] if last["type"] == "error" else last["response"]["error"]
        return Outcome(last.get("status", 200), error and error["code"], content)


class Speech:
    """POST /v1/audio/speech, which is passed on, with events."""

    path, name, streamed, headed, kept = "/v1/audio/speech", "speech, events", True, True, False
    type = "application/json"

    def body(self, text="Hello"):
        return json.dumps({"model": "m", "input": text, "voice": "a", "stream_format": "sse"}).encode()

    async def ask(self, site, text="Hello"):
        return await post(self, site.client, self.body(text))

    def stream(self, text):
        """Return the text of the events and the code of the error, which comes last and once."""
        came, _, error = text.partition("event: error\ndata: ")
        return self.text_of(came), json.loads(error)["error"]["code"] if error else None

    def text_of(self, text):
        return Chat(streamed=True).text_of(text)


class Transcription(Speech):
    """POST /v1/audio/transcriptions with a form, whose file is passed on while it comes."""

    path, name, type = "/v1/audio/transcriptions", "transcription, events", "multipart/form-data; boundary=x"

    def body(self, text="Hello"):
        fields = {"model": "m", "stream": "true", 'file"; filename="a.wav': text}
        parts = (
            f'--x\r\ncontent-disposition: form-data; name="{name}"\r\n\r\n{value}\r\n' for name, value in fields.items()
        )
        return ("".join(parts) + "--x--\r\n").encode()


def block_text(block):
    return block.get("thinking") or block.get("text") or (json.dumps(block["input"]) if "input" in block else "")


def item_text(item):
    parts = item.get("summary") or item.get("content") or ()
    return "".join(part["text"] for part in parts) + item.get("arguments", "")


async def post(way, client, body, hears=lambda _: None):
    """POST it, and read to the end, however the body ends; hears: is told of each piece."""
    pieces, headers = [], {"content-type": getattr(way, "type", "application/json")}
    try:
        async with asyncio.timeout(PATIENCE), client.stream("POST", way.path, content=body, headers=headers) as answer:
            async for piece in answer.aiter_text():
                pieces.append(piece)
                hears(piece)
    except (httpx.RemoteProtocolError, httpx.ReadError):
        return Outcome(0, text=way.text_of("".join(pieces)), ended=False)
    return outcome(way, answer, "".join(pieces))


def outcome(way, answer, text):
    status, after = answer.status_code, answer.headers.get("retry-after")
    if status != 200:
        error = json.loads(text)["error"]
        assert set(error) == {"message", "type"} | (set() if isinstance(way, Messages) else {"param", "code"})
        return Outcome(status, error["type" if isinstance(way, Messages) else "code"], after=after)
    content, code = way.stream(text) if way.streamed else way.whole(json.loads(text))
    return Outcome(200, code, content)


HTTP = (Chat(streamed=False), Chat(streamed=True), Responses(streamed=False), Responses(streamed=True))
WAYS = (*HTTP, Background(), Socket())
MESSAGES = (Messages(streamed=False), Messages(streamed=True))
PASSED = (Speech(), Transcription())
