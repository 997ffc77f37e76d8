"""What backends send: whatever it is and however it is cut, the same promised events, and an answer that a client can read."""

import json
from functools import cache, partial

from msgspec import DecodeError
from msgspec import json as fast

from fuzz.framing import reference
from fuzz.mutation import mutated
from fuzz.target import Input, Target, begun, is_json
from gateway.api import chat, completions, embeddings, rerank, tokenize
from gateway.backends.dialects import DIALECTS
from gateway.backends.openai.error_mapping import problem_from_status
from gateway.errors import UpstreamError
from gateway.events import ExtraField, Failure, Usage
from gateway.pipeline.pipeline import Pipeline, RoundFailed, SendBytes, StoreResponse
from gateway.pipeline.upstream_reader import UpstreamReader
from gateway.warnings import Warnings
from support.pipeline import TOOLS, grammatical, merge, parser_settings
from support.recorded_servers import CHAT, COMPLETIONS, EXCHANGES
from support.responses import new_encoder

_EVENTS, _LINES, _WHOLE = "text/event-stream", "application/x-ndjson", "application/json"
_LIMITS = (8 << 20, 1000, 64)
_LONGEST = 4000  # bytes of a recording to begin with
_FORMATS = ("native", "hermes_json", "auto")


def _chat(**more):
    functions = [{"type": "function", "function": {"name": name, "parameters": {}}} for name in TOOLS]
    request = {"model": "m", "messages": [{"role": "user", "content": "Hello"}], "tools": functions, **more}
    return chat.parse_chat(json.dumps(request).encode())


_MUCH = {"logprobs": True, "top_logprobs": 2, "return_token_ids": True, "prompt_logprobs": 1, "timings_per_token": True}
_COUNTED = {"stream": True, "stream_options": {"include_usage": True, "continuous_usage_stats": True}}
PARAMS = (
    _chat(**_COUNTED, **_MUCH),
    _chat(),
    _chat(n=3, **_COUNTED),
    _chat(n=3, store=True),
    completions.parse_completion(b'{"model": "m", "prompt": "Hello", "logprobs": 2}'),
    completions.parse_completion(b'{"model": "m", "prompt": ["Hello", "you"], "stream": true, "n": 2}'),
    None,  # a response
    None,
)


class EventRecorder:
    """An encoder, and the events that it gets."""

    def __init__(self, encoder):
        self._encoder, self.events = encoder, []

    def encode(self, events):
        self.events += events
        return self._encoder.encode(events)

    def __getattr__(self, name):
        return getattr(self._encoder, name)


def check_chunks(data):
    _check(data, _EVENTS, "openai")


def check_lines(data):
    _check(data, _LINES, "ollama")


def check_whole(data):
    given = Input.of(data)
    _check(data, _WHOLE, given.choose(3, ("openai", "ollama")))
    status = (400, 401, 404, 408, 413, 429, 500, 503)[given.choices[0] % 8]
    found = problem_from_status(status, given.content)
    assert 400 <= found.status < 600 and json.loads(found.body())["error"] == found.error()


def _check(data, content_type, dialect):
    given = Input.of(data)
    whole = _outcome(given, [given.content], content_type, dialect)
    assert _outcome(given, given.cut(given.content), content_type, dialect)[:4] == whole[:4]
    events, failed = whole[0], whole[2]
    for choice in {event.choice for event in events if _of_choice(event)}:
        finished = grammatical([event for event in events if _of_choice(event) and event.choice == choice])
        assert finished or failed
    _check_readable(whole[-1])


def _of_choice(event):
    return not isinstance(event, Usage | ExtraField | Failure)


def _outcome(given, pieces, content_type, dialect):
    """The events, the ledger, the problem and what was stored; then what the client got."""
    params, ledger = given.choose(0, PARAMS), Warnings()
    encoder = EventRecorder(_encoder(params, given.choices[0] % 2 == 0, ledger))
    request = params.request if params else PARAMS[1].request
    limit, format = given.choose(1, _LIMITS), given.choose(2, _FORMATS)
    decoder, settings = DIALECTS[dialect].decoder(request, ledger), parser_settings(format, ledger=ledger, limit=limit)
    turn = Pipeline(request, lambda _: UpstreamReader(decoder, settings, lambda: 40, (), limit), encoder)
    turn.start()
    turn.set_content_type(content_type)
    got = [turn.feed(piece) for piece in pieces]
    stored = _end(turn, turn.close(), got)
    return merge(encoder.events), sorted(ledger.entries()), turn.problem, stored, b"".join(got)


def _encoder(params, stream, ledger):
    if params is None:
        return new_encoder(stream, ledger=ledger, stored=True, logprobs=True, sealed=True)
    if isinstance(params, completions.CompletionParams):
        return completions.completion_encoder(completions.CompletionHead("cmpl-1", 1, "m"), params, ledger)
    return chat.chat_encoder(chat.CompletionHead("chatcmpl-1", 1, "m"), params, ledger, str)


def _end(turn, actions, got):
    """Does what is left to do; what was stored."""
    stored = None
    for action in actions:
        match action:
            case SendBytes(data):
                got.append(data)
            case StoreResponse(record):
                stored = fast.encode(record)
                _end(turn, turn.end_after_storing(stored=True), got)
            case RoundFailed():
                stored = _end(turn, turn.end_after_failure(), got)
    return stored


def _check_readable(data):
    """It is one JSON text, or events of JSON and [DONE]."""
    if data.startswith((b"data: ", b"event: ")):
        for payload in reference(data):
            assert payload == "[DONE]" or is_json(payload)
    else:
        assert not data or is_json(data)


SERVICES = (
    embeddings.parse_embeddings(b'{"model": "m", "input": ["a", "b"]}'),
    embeddings.parse_embeddings(b'{"model": "m", "input": "a", "dimensions": 2, "encoding_format": "base64"}'),
    embeddings.parse_embeddings(b'{"model": "m", "input": [[1, 2], [3]], "dimensions": 1}'),
    rerank.parse_rerank(b'{"model": "m", "query": "q", "documents": ["a", {"text": "b"}], "return_documents": true}'),
    rerank.parse_rerank(b'{"model": "m", "query": "q", "documents": ["a", "b", "c"], "top_n": 1}'),
    tokenize.parse_tokenize(b'{"model": "m", "prompt": "a"}'),
    tokenize.parse_detokenize(b'{"model": "m", "tokens": [1]}'),
    embeddings.parse_embeddings(b'{"model": "m", "messages": [{"role": "query", "content": "a"}], "dimensions": 1}'),
    embeddings.parse_embeddings(b'{"model": "m", "input": {"text": "a"}, "embedding_type": "binary"}'),
)


def check_services(data):
    """What backends answer that do not chat: an answer for the client, or an UpstreamError."""
    given = Input.of(data)
    put = given.choose(0, SERVICES)
    try:
        body = put.decode(given.content)
    except (DecodeError, UnicodeDecodeError, RecursionError):
        return  # as the server has it
    try:
        assert is_json(fast.encode(put.answer(body, Warnings())))
    except UpstreamError as error:
        assert error.problem.status == 502


@cache
def _bodies(streamed):
    every = {one.body for one in EXCHANGES.values() if one.answers and one.streamed is streamed}
    return sorted(body for body in every if len(body) <= _LONGEST)


# What no recording has
_RICH = {
    "content": [{"type": "text", "text": "Hi"}, {"type": "thinking", "thinking": [{"type": "text", "text": "Well"}]}],
    "refusal": "No",
    "annotations": [{"type": "url_citation", "url_citation": {"url": "http://a", "start_index": 0, "end_index": 1}}],
    "thinking_blocks": [{"type": "thinking", "thinking": "Well", "signature": "s"}],
    "function_call": {"name": "f", "arguments": "{}"},
    "tool_calls": [{"index": 1, "id": "c", "function": {"name": "g", "arguments": {"a": 1}}}],
}


def chunk_seeds():
    for place in range(len(PARAMS)):
        choices = [
            {"index": 0, "delta": _RICH, "stop_reason": 1, "token_ids": [1]},
            {"index": 1, "delta": {"content": "a"}},
        ]
        yield begun(
            f"data: {json.dumps({'choices': choices, 'prompt_token_ids': [1], 'timings': {'predicted_n': 1}})}\n\n",
            place,
        )
    for place, body in enumerate(_bodies(True)):
        yield begun(body, place, 0, place // 2, sizes=(60, 200))


def whole_seeds():
    for place in range(len(PARAMS)):
        choices = [{"index": 0, "message": _RICH, "finish_reason": {"type": "stop"}}, {"text": "a"}]
        yield begun(json.dumps({"choices": choices, "prompt_logprobs": [None], "x_groq": {"usage": {}}}), place)
    for place, body in enumerate(_bodies(False)):
        yield begun(body, place, 0, place // 2, sizes=(60, 200))
    for one in EXCHANGES.values():
        if one.status >= 400 and one.body:
            yield begun(one.body, 1)
    for line in LINES:
        yield begun(json.dumps(line), 1, 0, 0, 1)


LINES = (
    {"model": "m", "message": {"role": "assistant", "content": "Hi"}, "done": False},
    {"message": {"role": "assistant", "content": "", "thinking": "Well"}, "done": False},
    {"message": {"content": "", "tool_calls": [{"id": "call_1", "function": {"index": 0, "name": "f", "arguments": {"a": "b"}}}]}},
    {"message": {"content": " you"}, "logprobs": [{"token": "Hi", "logprob": -0.5, "bytes": [72, 105], "top_logprobs": []}]},
    {"message": {"content": ""}, "done": True, "done_reason": "length", "prompt_eval_count": 7, "eval_count": 2},
    {"error": "an error was encountered while running the model"},
)  # fmt: skip


def line_seeds():
    rows = [json.dumps(line) for line in LINES]
    for place in range(len(PARAMS)):
        yield begun("\n".join(rows[:5]) + "\n", place, 0, place % 3)
        yield begun("\n".join(rows[-2:]), place)


def service_seeds():
    bodies = (
        '{"data": [{"index": 1, "embedding": [0.1, 2e-3]}, {"index": 0, "embedding": [1, 2, 3]}], "usage": {"prompt_tokens": 3}}',
        '{"data": [{"embedding": "AACAPwAAAEA="}], "usage": {"total_tokens": 3}}',
        '[{"index": 0, "embedding": [0.5, 0.5]}]',
        '{"results": [{"index": 1, "relevance_score": 0.9, "document": {"text": "b"}}, {"index": 0, "score": -1.5}]}',
        '{"results": [{"index": 2, "relevance_score": 1e-9}]}',
        '{"tokens": [1, 2, 3], "count": 3, "max_model_len": 4096}',
        '{"prompt": "a", "content": "a"}',
        '{"data": [{"embeddings": [[0.5, 1], ["AACAPw=="]]}]}',
        '[{"index": 0, "embedding": {"binary": [-3, 7], "float": [1, 2]}}]',
    )
    for place, body in enumerate(bodies):
        yield begun(body, place)


def words():
    """The names of all members that were recorded."""
    found = {"[DONE]", "data: ", "NaN", "Infinity", "\\ud83d", "null", "\n\n", "\r\n"}
    for one in EXCHANGES.values():
        if one.path in (CHAT, COMPLETIONS):
            found |= {word for word in one.body.decode("utf-8", "replace").split('"')[1::2] if word.isidentifier()}
    return sorted(found)


_target = partial(Target, words=words, mutated=mutated)
TARGETS = {
    "chunks": _target(check_chunks, chunk_seeds),
    "lines": _target(check_lines, line_seeds),
    "whole": _target(check_whole, whole_seeds),
    "services": _target(check_services, service_seeds),
}
