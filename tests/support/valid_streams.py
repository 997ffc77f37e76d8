"""Compare the results of valid streams in the official SDK with and without the gateway.

python -m support.valid_streams [--seconds N] [--seed N]        try streams at random; status 1: one of them got worse

A stream reaches the gateway as chunks, as one whole body, or as lines of Ollama, in one of the formats; a client of
each API reads it, streamed or whole.
"""

import argparse
import json
import re
import sys
import time
from collections import Counter
from itertools import product
from random import Random

import msgspec
from msgspec import Raw, Struct
from msgspec.structs import replace
from openai.lib.streaming.chat import ChatCompletionStreamState
from openai.types.chat import ChatCompletionChunk

from gateway.api import chat
from gateway.api.messages.output_blocks import readable_object
from gateway.backends.dialects import DIALECTS
from gateway.pipeline.pipeline import Pipeline, SendBytes, StoreResponse
from gateway.pipeline.upstream_reader import UpstreamReader
from gateway.warnings import Warnings
from support.messages import encoder_of
from support.messages_events import checked as checked_message
from support.messages_events import checked_whole as checked_body
from support.pipeline import DONE, parser_settings, payloads, sse
from support.random_streams import SCHEMAS, stream
from support.responses import new_encoder
from support.responses_events import checked, checked_whole
from support.terminal import say
from support.turns import chat_params

_ARGUMENTS = "repaired:tool_calls.function.arguments"
_TOOLS = [{"type": "function", "function": {"name": name, "parameters": shape}} for name, shape in SCHEMAS.items()]
_BLANKS = "dropped:content"  # of Responses, see docs/decisions/016-responses.md
_NUMBER = re.compile(r'("n": )"(\d+)"')
_SHOWN = 5  # streams that get worse


class Choice(Struct, frozen=True, order=True):
    """The meaning of a choice.  calls: id, name and arguments of each; cut: the token limit ended it."""

    index: int
    text: str
    reasoning: str
    calls: list[tuple[str, str, str]]
    cut: bool


class Way(Struct, frozen=True):
    """The path of a stream: its form at the gateway, its format, and the client."""

    wire: str
    format: str
    api: str
    stream: bool


class Result(Struct, frozen=True):
    """The comparison of one stream."""

    way: Way
    seed: int
    verdict: str
    expected: list[Choice]
    found: list[Choice]
    warnings: list[str]


WAYS = [
    Way(*way)
    for way in product(
        ("chunks", "whole", "lines"),
        ("native", "hermes_json", "auto"),
        ("chat", "responses", "messages"),
        (True, False),
    )
]


def compared(seed, way):
    """Return the result of one stream; None if its wire or its API does not support it."""
    chunks, n = stream(seed)
    if n > 1 and (way.wire == "lines" or way.api != "chat"):
        return None
    expected, ledger = [_in_lines(one) if way.wire == "lines" else one for one in folded(chunks)], Warnings()
    found = _READ[way.api, way.stream](_sent(_body(way.wire, chunks, expected), n, way, ledger, Random(seed)))
    if way.api == "messages":
        expected, found = [*map(_in_blocks, expected)], [*map(_in_blocks, found)]
    warnings = ledger.entries()
    return Result(way, seed, verdict(expected, found, warnings), expected, found, warnings)


def verdict(expected, found, warnings):
    """Return "equal", "better" for a reported repair of arguments, "reported" for dropped white space, or "worse"."""
    if found == expected:
        return "equal"
    if _ARGUMENTS in warnings and found == [_fitting(one) for one in expected]:
        return "better"
    if _BLANKS in warnings and [_dense(one) for one in found] == [_dense(_fitting(one)) for one in expected]:
        return "reported"
    return "worse"


def _fitting(choice):
    """Return a choice with arguments that fit their tools: a number in a string becomes a number."""
    return replace(choice, calls=[(id, name, _fitted(name, text)) for id, name, text in choice.calls])


def _fitted(name, text):
    return _NUMBER.sub(r"\1\2", text) if SCHEMAS[name] else text


def _dense(choice):
    """Return a choice with its text without white space."""
    return replace(_fitting(choice), text="".join(choice.text.split()))


def folded(chunks):
    """Return the result of chunks in the official SDK."""
    state = ChatCompletionStreamState()
    for chunk in chunks:
        state.handle_chunk(ChatCompletionChunk.model_validate(chunk))
    return _choices(state.current_completion_snapshot.to_dict())


def _choices(completion):
    return sorted(_choice(choice, choice["message"]) for choice in completion["choices"])


def _choice(choice, message):
    calls = [
        (call["id"], call["function"]["name"], call["function"]["arguments"])
        for call in message.get("tool_calls") or ()
    ]
    thought = message.get("reasoning_content") or message.get("reasoning") or ""
    return Choice(choice["index"], message.get("content") or "", thought, calls, choice["finish_reason"] == "length")


def _response(response):
    """Return the one choice of a response."""
    parts = {"message": [], "reasoning": []}
    for item in response["output"]:
        if item["type"] in parts:
            parts[item["type"]] += [*item.get("summary", ()), *(item.get("content") or ())]
    text, thought = ("".join(part["text"] for part in found) for found in parts.values())
    calls = [
        (item["call_id"], item["name"], item["arguments"])
        for item in response["output"]
        if item["type"] == "function_call"
    ]
    return [Choice(0, text, thought, calls, response["status"] == "incomplete")]


def _message(message):
    """Return the one choice of a message."""
    blocks = message["content"]
    text, thought = ("".join(block.get(name, "") for block in blocks) for name in ("text", "thinking"))
    calls = [
        (block["id"], block["name"], json.dumps(block["input"])) for block in blocks if block["type"] == "tool_use"
    ]
    return [Choice(0, text, thought, calls, message["stop_reason"] == "max_tokens")]


def _in_blocks(choice):
    """Return a choice as blocks can say it: inputs are objects, and no block is white space alone."""
    calls = [(id, name, json.dumps(readable_object(text))) for id, name, text in choice.calls]
    return replace(choice, text="".join(choice.text.split()), calls=calls)


_READ = {
    ("messages", True): lambda data: _message(checked_message(data)),
    ("messages", False): lambda data: _message(checked_body(data)),
    ("chat", True): lambda data: folded(payloads(data)),
    ("chat", False): lambda data: _choices(json.loads(data)),
    ("responses", True): lambda data: _response(checked(data)),
    ("responses", False): lambda data: _response(checked_whole(data)),
}


def _body(wire, chunks, expected):
    if wire == "chunks":
        return b"".join(map(sse, chunks)) + DONE
    if wire == "whole":
        return json.dumps({"object": "chat.completion", "choices": [*map(_whole, expected)]}).encode()
    return b"".join(_lines(chunks, expected[0]))


def _whole(choice):
    calls = [
        {"id": id, "type": "function", "function": {"name": name, "arguments": text}} for id, name, text in choice.calls
    ]
    message = {"role": "assistant", "content": choice.text or None, "reasoning_content": choice.reasoning}
    reason = "length" if choice.cut else "tool_calls" if calls else "stop"
    return {"index": choice.index, "message": {**message, "tool_calls": calls}, "finish_reason": reason}


def _lines(chunks, choice):
    """Yield the lines of Ollama for a stream: each call is whole, at the place of its head."""
    for chunk in chunks:
        for delta in (one["delta"] for one in chunk["choices"]):
            thought = delta.get("reasoning") or delta.get("reasoning_content") or ""
            heads = [call["index"] for call in delta.get("tool_calls", ()) if call.get("id")]
            message = {"role": "assistant", "content": delta.get("content") or "", "thinking": thought}
            yield _line({**message, "tool_calls": [_native(*choice.calls[head]) for head in heads]})
    yield _line({"role": "assistant", "content": ""}, done=True, done_reason="length" if choice.cut else "stop")


def _native(id, name, arguments):
    return {"id": id, "function": {"index": 0, "name": name, "arguments": Raw(arguments.encode())}}


def _in_lines(choice):
    """Return a choice without line ends between the values of arguments."""
    return replace(choice, calls=[(id, name, text.replace("\n", "")) for id, name, text in choice.calls])


def _line(message, **members):
    return msgspec.json.encode({"model": "m", "message": message, **members}) + b"\n"


_TYPES = {"chunks": "text/event-stream", "whole": "application/json", "lines": "application/x-ndjson"}


def _sent(body, n, way, ledger, random):
    """Return the bytes for a client for the body of a backend, which arrives in pieces."""
    question = chat_params(tools=_TOOLS, stream=way.stream, n=n)
    decoder = DIALECTS["ollama" if way.wire == "lines" else "openai"].decoder(question.request, ledger)
    settings = replace(
        parser_settings(way.format, tools=SCHEMAS, ledger=ledger), whole=not way.stream, auto=way.format == "auto"
    )
    if way.api == "chat":
        encoder = chat.chat_encoder(chat.CompletionHead("c", 7, "m", ("reasoning_content",)), question, ledger, str)
    elif way.api == "messages":
        encoder = encoder_of(way.stream, ledger=ledger)
    else:
        encoder = new_encoder(way.stream, ledger=ledger, stored=True)
    turn = Pipeline(question.request, lambda _: UpstreamReader(decoder, settings, lambda: 40), encoder)
    turn.start()
    turn.set_content_type(_TYPES[way.wire])
    sent = [turn.begin_response(), *map(turn.feed, _cut(random, body))]
    return b"".join([*sent, *_ended(turn, turn.close())])


def _ended(turn, actions):
    """Yield the bytes for a client at the end."""
    for action in actions:
        if isinstance(action, StoreResponse):
            yield from _ended(turn, turn.end_after_storing(stored=True))
        elif isinstance(action, SendBytes):
            yield action.data


def _cut(random, body):
    size = random.choice((7, 60, 400, len(body)))
    return [body[at : at + size] for at in range(0, len(body), size)]


def hunt(seconds, seed, most=None):
    """Try streams, each in one of the ways; return their number by verdict, and those that got worse."""
    random, verdicts, worse, end = Random(seed), Counter(), [], time.monotonic() + seconds
    while time.monotonic() < end and verdicts.total() != most:
        if result := compared(random.getrandbits(48), random.choice(WAYS)):
            verdicts[result.verdict] += 1
            if result.verdict == "worse":
                worse.append(result)
    return verdicts, worse


def main():
    """Run the command."""
    options = argparse.ArgumentParser(prog="support.valid_streams")
    options.add_argument("--seconds", type=float, default=60)
    options.add_argument("--streams", type=int, help="end after so many")
    options.add_argument("--seed", type=int, default=0, help="the same streams again")
    chosen = options.parse_args()
    verdicts, worse = hunt(chosen.seconds, chosen.seed, chosen.streams)
    counts = ", ".join(f"{verdicts[name]:,} {name}" for name in ("equal", "better", "reported", "worse"))
    say(f"{verdicts.total():,} streams: {counts}")
    for result in worse[:_SHOWN]:
        say(f"\n{result.way}, seed {result.seed}: {result.warnings}\nwithout {result.expected}\nwith    {result.found}")
    sys.exit(bool(worse))


if __name__ == "__main__":
    main()
