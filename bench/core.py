"""Measure the pure core without sockets: microseconds per chunk from the upstream's bytes to the client's.

`python -m bench --only core` prints them.  Only `new_turn` knows how a pipeline is put together.
"""

import gc
import json
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import count, cycle, islice
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from bench.figures import Figure
from bench.traffic import Traffic, body
from gateway.api import chat, messages, responses
from gateway.backends.anthropic.decoder import MessageDecoder
from gateway.backends.openai.decoder import ChatDecoder
from gateway.events import Event, ReasoningDelta, TextDelta, ToolArgsDelta, ToolCallStart
from gateway.formats import FORMATS
from gateway.formats.parser import ParseContext
from gateway.pipeline.normalizer import Normalizer
from gateway.pipeline.pipeline import Pipeline, ResponseEncoder
from gateway.pipeline.tool_calls import ParserSettings
from gateway.pipeline.upstream_reader import UpstreamReader
from gateway.request import Request
from gateway.server.observability.request_recorder import RecordedPipeline, RequestRecorder, record_rounds
from gateway.warnings import Warnings

Feed = Callable[[bytes], bytes]

_HEAD = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1700000000, "model": "mock"}
_READ = 65536  # bytes of one read from the socket of a busy upstream
_PARAMS = chat.parse_chat(body(Traffic("mock", "", 1, 1, tools=True)))
_MOST_PER_DELTA = 4  # µs, of an encoder
_FLAT = 1.3  # limit for the last quarter against the first; the difference to 1 is noise


def offering(tools: int) -> Request:
    """Return the request with this many tools; the last of them is called."""
    (called,) = _PARAMS.request.tools
    others = (replace(called, name=f"tool_{number}") for number in range(tools - 1))
    return replace(_PARAMS.request, tools=(*others, called))


def _parser_settings(format: str, request: Request = _PARAMS.request) -> ParserSettings:
    context = ParseContext({tool.name: tool.definition["parameters"] for tool in request.tools})
    return ParserSettings(FORMATS[format].parse, context, map("call_{}".format, count()).__next__, Warnings())


def _chat_encoder(ledger: Warnings) -> ResponseEncoder:
    return chat.chat_encoder(chat.CompletionHead("chatcmpl-1", 1700000000, "mock"), _PARAMS, ledger, str)


def _responses_encoder(ledger: Warnings) -> ResponseEncoder:
    params = responses.ResponseParams(
        request=_PARAMS.request, echo={"background": False, "instructions": "", "tools": []}
    )
    inputs = responses.EncoderInputs(lambda prefix: f"{prefix}1", lambda: 0, lambda _: "", str)
    return responses.response_encoder(responses.ResponseHead("resp_1", 1700000000, "mock"), params, ledger, inputs)


def _messages_encoder(ledger: Warnings) -> ResponseEncoder:
    inputs = responses.EncoderInputs(lambda prefix: f"{prefix}1", lambda: 0, lambda _: "", str)
    params = messages.MessageParams(request=_PARAMS.request)
    return messages.message_encoder(messages.MessageHead("msg_1", "mock"), params, ledger, inputs)


def _encode(new: Callable[[Warnings], ResponseEncoder]) -> Callable[[Event], bytes]:
    return new(Warnings()).encode


def new_turn(
    format: str,
    endpoint: str = "chat",
    request: Request = _PARAMS.request,
    decoder: type[ChatDecoder] = ChatDecoder,
) -> Feed:
    """Return `feed` of a new pipeline for a streamed response; by default the request offers one tool."""
    return begun_pipeline(format, None, endpoint, request, decoder).feed


def begun_pipeline(
    format: str,
    recorder: RequestRecorder | None,
    endpoint: str = "chat",
    request: Request = _PARAMS.request,
    decoder: type[ChatDecoder] = ChatDecoder,
) -> Pipeline:
    """Return a new pipeline for a streamed response."""
    settings = _parser_settings(format, request)
    encoder = _ENCODERS[endpoint](settings.ledger)

    def opened(_: Request) -> UpstreamReader:
        return UpstreamReader(decoder(settings.ledger), settings, lambda: 0)

    if recorder:
        turn: Pipeline = RecordedPipeline(request, record_rounds(opened, recorder), encoder)
    else:
        turn = Pipeline(request, opened, encoder)
    turn.start()
    turn.set_content_type("text/event-stream")
    return turn


def _chunk(delta: dict[str, object], reason: str | None = None) -> bytes:
    choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": reason}
    return b"data: " + json.dumps({**_HEAD, "choices": [choice]}, separators=(",", ":")).encode() + b"\n\n"


def text(content: str) -> bytes:
    """Return a chunk with this text."""
    return _chunk({"content": content})


def _event(type: str, **members: object) -> bytes:
    """Return an event of a backend that speaks the Messages API."""
    payload = json.dumps({"type": type, **members}, separators=(",", ":"))
    return f"event: {type}\ndata: {payload}\n\n".encode()


def _text_delta(content: str) -> bytes:
    return _event("content_block_delta", index=0, delta={"type": "text_delta", "text": content})


def _thought(text: str) -> bytes:
    return _chunk({"reasoning_content": text})


def _arguments(text: str) -> bytes:
    return _chunk({"tool_calls": [{"index": 0, "function": {"arguments": text}}]})


def _native_call() -> bytes:
    function = {"name": "get_weather", "arguments": ""}
    return _chunk({"tool_calls": [{"index": 0, "id": "call_1", "type": "function", "function": function}]})


class Stream(Struct, frozen=True):
    """The chunks of an upstream: a beginning, repeated words, an end."""

    format: str
    what: str
    words: tuple[bytes, ...]
    before: tuple[bytes, ...] = ()
    after: tuple[bytes, ...] = ()

    def chunks(self, words: int) -> list[bytes]:
        """Return the chunks, with this many words."""
        role, end = _chunk({"role": "assistant", "content": ""}), _chunk({}, "stop")
        return [role, *self.before, *islice(cycle(self.words), words), *self.after, end, b"data: [DONE]\n\n"]


def _texts(*texts: str) -> tuple[bytes, ...]:
    return tuple(map(text, texts))


_WORDS = (" the", " fast", " gate", " way")
_CODE = (" let", " x =", "\\n  ", "a[i]")  # four characters each, as they occur inside JSON
HERMES = ("<tool_call>", '\n{"name": "get_weather", ', '"arguments": {"city": "')
NATIVE_TEXT = Stream("native", "text", _texts(*_WORDS))
_NATIVE_CALL = Stream(
    "native", "call", tuple(map(_arguments, _CODE)), (_native_call(), _arguments('{"city": "')), (_arguments('"}'),)
)
_HERMES_CALL = Stream("hermes_json", "call", _texts(*_CODE), _texts(*HERMES), _texts('"}}\n', "</tool_call>"))
_STREAMS = (
    NATIVE_TEXT,
    Stream("native", "thought", tuple(map(_thought, _WORDS))),
    _NATIVE_CALL,
    Stream("think", "thought", _texts(*_WORDS), _texts("<think>"), _texts("</think>")),
    Stream("hermes_json", "text", _texts(*_WORDS)),
    Stream("hermes_json", "thought", _texts(*_WORDS), _texts("<think>"), _texts("</think>")),
    _HERMES_CALL,
    Stream("qwen_xml", "text", _texts(*_WORDS)),
    Stream(
        "qwen_xml",
        "call",
        _texts(*_WORDS),
        _texts("<tool_call>", "<function=get_weather>", "<parameter=city>"),
        _texts("</parameter>", "</function>", "</tool_call>"),
    ),
    Stream("llama3_json", "text", _texts(*_WORDS)),
    Stream(
        "llama3_json",
        "call",
        _texts(*_CODE),
        _texts('{"name": "get_weather", ', '"parameters": {"city": "'),
        _texts('"}}'),
    ),
)


class Dialect(Struct, frozen=True):
    """A dialect of backends: its decoder, its chunk with a text, and the chunks before the first text."""

    decoder: type[ChatDecoder] = ChatDecoder
    text: Callable[[str], bytes] = text
    before: tuple[bytes, ...] = ()


OPENAI = Dialect()
ANTHROPIC = Dialect(
    MessageDecoder,
    _text_delta,
    (
        _event("message_start", message={"id": "msg_1", "role": "assistant", "content": [], "usage": {}}),
        _event("content_block_start", index=0, content_block={"type": "text", "text": ""}),
    ),
)


class Stretch(Struct, frozen=True):
    """One chunk of text, repeated, behind those that open a thought or a tool call."""

    format: str
    word: str
    before: tuple[str, ...] = ()
    endpoint: str = "chat"
    dialect: Dialect = OPENAI

    def begin(self, request: Request = _PARAMS.request) -> Callable[[], object]:
        """Return a function that feeds the chunk to a new pipeline once more."""
        feed = new_turn(self.format, self.endpoint, request, self.dialect.decoder)
        for chunk in (*self.dialect.before, *map(self.dialect.text, self.before)):
            feed(chunk)
        return partial(feed, self.dialect.text(self.word))


STRETCHES = {
    "native text": Stretch("native", " the"),
    "kind anthropic, text": Stretch("native", " the", dialect=ANTHROPIC),
    "think, thought": Stretch("think", " the", ("<think>",)),
    "hermes_json, call": Stretch("hermes_json", "a[i]", HERMES),
    "responses, text": Stretch("native", " the", endpoint="responses"),
    "responses, hermes_json call": Stretch("hermes_json", "a[i]", HERMES, "responses"),
    "messages, text": Stretch("native", " the", endpoint="messages"),
    "messages, hermes_json call": Stretch("hermes_json", "a[i]", HERMES, "messages"),
}
_ENCODERS = {"chat": _chat_encoder, "responses": _responses_encoder, "messages": _messages_encoder}
_DELTAS: dict[str, tuple[list[Event], Event]] = {
    "text": ([], TextDelta(0, " the")),
    "thought": ([], ReasoningDelta(0, " the")),
    "call": ([ToolCallStart(0, 0, "call_1", "get_weather")], ToolArgsDelta(0, 0, " the")),
}


def figures(quick: bool) -> Iterator[Figure]:
    """Yield a yardstick of the machine, each format's cost per chunk, and a tool call of 1 MB."""
    yield _yardstick()
    for stream in _STREAMS:
        chunks = stream.chunks(500 if quick else 2000)
        cost = min(_seconds(stream.format, chunks) for _ in range(3 if quick else 7)) / len(chunks)
        yield Figure("core", f"core, {stream.format}: {stream.what}", "µs/chunk", (cost * 1e6,))
    yield from _encoding(1000 if quick else 10_000)
    for stream in (_NATIVE_CALL, _HERMES_CALL):
        yield from _long_call(stream, quick)


def _yardstick() -> Figure:
    payload = text(" the")[6:-2]
    turns = 2000
    times = []
    for _ in range(5):
        begin = time.thread_time()
        for _ in range(turns):
            json.loads(payload)
        times.append((time.thread_time() - begin) / turns * 1e6)
    return Figure("core", "yardstick: json.loads of a chunk", "µs", (min(times),))


def _seconds(format: str, reads: Sequence[bytes]) -> float:
    return sum(_quarters(new_turn(format), reads))


def _quarters(feed: Callable[[Any], object], pieces: Sequence[Any]) -> list[float]:
    """Return the CPU seconds of each quarter of the pieces."""
    gc.collect()
    times = []
    for part in range(4):
        quarter = pieces[len(pieces) * part // 4 : len(pieces) * (part + 1) // 4]
        begin = time.thread_time()
        for piece in quarter:
            feed(piece)
        times.append(time.thread_time() - begin)
    return times


def _encoding(deltas: int) -> Iterator[Figure]:
    """Yield the cost of a delta, from the event to the client's bytes."""
    for endpoint, new in _ENCODERS.items():
        for what, (before, delta) in _DELTAS.items():
            best = _best(partial(_encode, new), [*before, *[delta] * deltas])
            name = f"core, {endpoint} encoder: {what}"
            yield Figure("core", name, "µs/delta", (sum(best) / deltas * 1e6,), wanted=_MOST_PER_DELTA)


def _long_call(stream: Stream, quick: bool) -> Iterator[Figure]:
    """Yield the cost of one tool call's arguments as a whole, and the cost of its end against its beginning.

    The limit applies to finding the arguments.  The cost of decoding and encoding as many frames is shown beside it.
    """
    size, deltas, wanted = ("100 kB", 25_000, 0.05) if quick else ("1 MB", 250_000, 0.5)
    chunks = stream.chunks(deltas)
    name = f"core, {stream.format}: call of {size}"
    events = [event for chunk in chunks[:-1] for event in ChatDecoder(Warnings()).decode(chunk[6:-2])]
    best = _best(lambda: Normalizer(_parser_settings(stream.format)).feed, events)
    yield Figure("core", f"{name}, parsing: CPU", "s", (sum(best),), wanted=wanted)
    yield Figure("core", f"{name}, parsing: last quarter to first", "ratio", (best[3] / best[0],), wanted=_FLAT)
    for way, reads in (("a delta per read", chunks), ("64 kB per read", _in_reads(chunks))):
        best = _best(lambda: new_turn(stream.format), reads)
        yield Figure("core", f"{name}, bytes to bytes, {way}: CPU", "s", (sum(best),))
        yield Figure("core", f"{name}, {way}: last quarter to first", "ratio", (best[3] / best[0],), wanted=_FLAT)


def _best(new: Callable[[], Callable[[Any], object]], pieces: Sequence[Any]) -> list[float]:
    """Return each quarter's best time of three runs."""
    runs = [_quarters(new(), pieces) for _ in range(3)]
    return [min(quarter) for quarter in zip(*runs, strict=True)]


def _in_reads(chunks: Sequence[bytes]) -> list[bytes]:
    data = b"".join(chunks)
    return [data[begin : begin + _READ] for begin in range(0, len(data), _READ)]
