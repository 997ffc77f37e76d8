"""An answer as a client reads it off the wire: a stream is folded into what a whole answer would have been."""

import json
from functools import cached_property
from typing import Any, NamedTuple

from openai.types.chat import ChatCompletion, ChatCompletionChunk
from pydantic import TypeAdapter

from support import messages_events
from support.responses_events import checked, checked_whole

_CHUNK, _COMPLETION = TypeAdapter(ChatCompletionChunk), TypeAdapter(ChatCompletion)
_WARNINGS_COMMENT = ": gateway-warnings "
_RACE = "repaired:connection"  # the server's own time limit met a kept connection, which no case is about
_SAME = ("id", "object", "created", "model")  # in every chunk


class Call(NamedTuple):
    id: str
    name: str
    arguments: str

    @property
    def meant(self):
        """The name and the decoded arguments."""
        return self.name, json.loads(self.arguments)


class Answer:
    """status; warnings: the ledger's entries, without those of a race; body: decoded, of a stream what it comes to.

    gate, question, stream: whom it is from, to what, and how that was asked for.
    """

    def __init__(self, gate, question, stream, http):
        self.gate, self.question, self.stream = gate, question, stream
        self.status = http.status_code
        texts = [http.headers.get("x-gateway-warnings", "")]
        texts += [
            block.removeprefix(_WARNINGS_COMMENT)
            for block in http.text.split("\n\n")
            if block.startswith(_WARNINGS_COMMENT)
        ]
        self.warnings = [entry for listed in texts for entry in listed.split(", ") if entry not in ("", _RACE)]
        self.body: Any = _body(question.path, http)

    def __repr__(self):
        return f"{self.status} {self.body} {self.warnings}"

    def again(self, **fields):
        """The answer to the same question but for these fields, asked in the same way."""
        return self.gate.ask(self.question.but(**fields), self.stream)

    @property
    def problem(self):
        """The error, which has all of its members."""
        error = self.body["error"]
        of_messages = self.body.get("type") == "error"
        assert {*error} == ({"message", "type"} if of_messages else {"message", "type", "param", "code"})
        assert error["message"] and (self.body["request_id"] if of_messages else True)
        return error

    @cached_property
    def output(self):
        """The one choice, the response or the message, as a Saying."""
        if self.body.get("type") == "message":
            return _of_message(self.body)
        return (_of_response if self.body["object"] == "response" else _of_completion)(self.body)

    content = property(lambda self: self.output.content)
    thought = property(lambda self: self.output.thought)
    calls = property(lambda self: self.output.calls)
    finish = property(lambda self: self.output.finish)
    usage = property(lambda self: self.body["usage"])
    usage_counts = property(lambda self: (self.usage["prompt_tokens"], self.usage["completion_tokens"]))

    @property
    def meant(self):
        """What has to be the same in every way of asking: content, thought, calls, finish."""
        return self.content, self.thought, [call[1:] for call in self.calls], self.finish


class Saying(NamedTuple):
    """What is said; the thought without the white space around it."""

    content: str
    thought: str
    calls: list[Call]
    finish: str


# Chat completions


def _completion(data):
    _COMPLETION.validate_json(data, strict=True)
    return json.loads(data)


def _frames(data):
    """The payloads of a stream, whose end is told once."""
    *blocks, last, nothing = data.decode().split("\n\n")
    assert (last, nothing) == ("data: [DONE]", ""), data[-200:]
    frames = [block for block in blocks if not block.startswith(":")]
    assert all(frame.startswith("data: {") for frame in frames)
    return [json.loads(frame[6:]) for frame in frames]


def _folded(data):
    """The completion that a stream comes to, each chunk of which is what the API says; and these."""
    chunks, choices, usage = _frames(data), {}, None
    for chunk in chunks:
        _CHUNK.validate_json(json.dumps(chunk), strict=True)
        assert [chunk[name] for name in _SAME] == [chunks[0][name] for name in _SAME]
        for chunk_choice in chunk["choices"]:
            _add(
                choices.setdefault(chunk_choice["index"], {"message": {}, "finish_reason": None, "logprobs": None}),
                chunk_choice,
            )
        usage = chunk.get("usage") or usage
    assert all(choice["finish_reason"] for choice in choices.values())
    return {
        **{name: chunks[0][name] for name in _SAME},
        "object": "chat.completion",
        "choices": [{"index": index, **choices[index]} for index in sorted(choices)],
        "usage": usage,
        "chunks": chunks,
    }


def _add(choice, chunk_choice):
    """The role comes first, and nothing after the reason to finish."""
    message, delta = choice["message"], chunk_choice["delta"]
    assert choice["finish_reason"] is None and ("role" in delta) == (not message)
    for name, value in delta.items():
        if name == "tool_calls":
            _add_calls(message.setdefault(name, []), value)
        elif name == "function_call":
            called = message.setdefault(name, {})
            called |= {key: called.get(key, "") + piece for key, piece in value.items()}
        elif isinstance(value, str):
            message[name] = (message.get(name) or "") + value
    if chunk_choice.get("logprobs"):
        choice["logprobs"] = choice["logprobs"] or {"content": []}
        choice["logprobs"]["content"] += chunk_choice["logprobs"]["content"]
    choice["finish_reason"] = chunk_choice["finish_reason"]


def _add_calls(calls, pieces):
    """A call begins with its id and name, and ends where the next one begins."""
    for piece in pieces:
        if "id" in piece:
            assert piece["index"] == len(calls) and piece["function"]["name"]
            calls.append({"id": piece["id"], "type": piece["type"], "function": {**piece["function"]}})
        else:
            assert piece["index"] == len(calls) - 1 and {*piece["function"]} == {"arguments"}
            calls[-1]["function"]["arguments"] += piece["function"]["arguments"]


def _of_completion(body):
    (choice,) = body["choices"]
    message = choice["message"]
    calls = [Call(call["id"], **call["function"]) for call in message.get("tool_calls") or ()]
    thought = (message.get("reasoning_content") or "").strip()
    return Saying(message["content"] or "", thought, calls, choice["finish_reason"])


# Responses


def _of_response(body):
    content = "".join(part["text"] for item in _items(body, "message") for part in item["content"])
    thought = "".join(part["text"] for item in _items(body, "reasoning") for part in item["summary"])
    calls = [Call(item["call_id"], item["name"], item["arguments"]) for item in _items(body, "function_call")]
    cut = (body["incomplete_details"] or {}).get("reason") == "max_output_tokens"
    return Saying(content, thought.strip(), calls, "length" if cut else "tool_calls" if calls else "stop")


def _items(body, type):
    return [item for item in body["output"] if item["type"] == type]


# Messages

_ENDS = {"end_turn": "stop", "stop_sequence": "stop", "max_tokens": "length", "tool_use": "tool_calls"}


def _of_message(body):
    content = "".join(block["text"] for block in body["content"] if block["type"] == "text")
    thought = "".join(block["thinking"] for block in body["content"] if block["type"] == "thinking")
    uses = [block for block in body["content"] if block["type"] == "tool_use"]
    calls = [Call(use["id"], use["name"], json.dumps(use["input"])) for use in uses]
    return Saying(content, thought.strip(), calls, _ENDS[body["stop_reason"]])


# Completions of a text


def _text(data):
    """The whole that a stream with one choice comes to."""
    chunks = _frames(data)
    choices = [choice for chunk in chunks for choice in chunk["choices"]]
    (reason,) = [choice["finish_reason"] for choice in choices if choice["finish_reason"]]
    choice = {"index": 0, "text": "".join(choice["text"] for choice in choices), "finish_reason": reason}
    return {**chunks[0], "choices": [choice]}


_CHAT, _RESPONSES, _COMPLETIONS = "/v1/chat/completions", "/v1/responses", "/v1/completions"
_MESSAGES = "/v1/messages"
_WHOLE = {_CHAT: _completion, _RESPONSES: checked_whole, _MESSAGES: messages_events.checked_whole}
_STREAMED = {_CHAT: _folded, _RESPONSES: checked, _COMPLETIONS: _text, _MESSAGES: messages_events.checked}


def _body(path, http):
    """Checked, where there is something to check it against."""
    if http.status_code != 200:
        return http.json()
    readers = _STREAMED if "text/event-stream" in http.headers["content-type"] else _WHOLE
    return readers.get(path, json.loads)(http.content)
