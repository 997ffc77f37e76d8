"""Recorded responses of real servers, and their results in the core.

recordings/SERVER.txt has the responses of one server.  Its first line has the server and the format of its text.  Then
each response has a line with its name and properties, and its body: one line if it is whole, one line per event if it
is a stream.  A body line that begins with a brace is a choice, in the server's usual `chunk`.  Ids, dates and model
names are replaced, repetitions are shortened, and prompts and templates are left out.

recordings/SERVER.golden.json has the expected results.  A response that is `like` another is in it only if
its result differs.
"""

import json
from functools import partial
from itertools import count

import msgspec
from msgspec.structs import replace

from gateway.api import chat, completions
from gateway.backends.openai.decoder import ChatDecoder
from gateway.backends.openai.error_mapping import problem_from_status
from gateway.backends.openai.request_body import requested_extra_fields
from gateway.errors import Problem
from gateway.events import Event
from gateway.formats import FORMATS
from gateway.formats.parser import ParseContext
from gateway.pipeline.pipeline import Pipeline, SendBytes, StoreResponse
from gateway.pipeline.tool_calls import ParserSettings
from gateway.pipeline.upstream_reader import UpstreamReader
from gateway.transforms import lower_request
from gateway.transforms.output_validation import EnforcementTerms, output_validation
from gateway.warnings import Warnings
from support.paths import TESTS
from support.pipeline import merge
from support.responses import new_encoder

RECORDINGS = TESTS / "recordings"
CHAT, COMPLETIONS = "/v1/chat/completions", "/v1/completions"
BROKEN = Problem(502, "The connection broke.", "upstream_lost")
_EVENTS = "text/event-stream"
_TOOLS = {
    "get_weather": {"city": {"type": "string"}, "unit": {"type": "string", "enum": ["celsius", "fahrenheit"]}},
    "get_time": {"timezone": {"type": "string"}},
    "f": {},
}


class Server(msgspec.Struct, frozen=True, kw_only=True):
    """A recorded server.

    chunk: a streamed event, with … for its choices.
    format, thought: the settings for its text.
    """

    server: str
    chunk: str
    format: str
    thought: str = "closed"


class Exchange(msgspec.Struct, frozen=True, kw_only=True):
    """A recorded response.

    request: the fields that matter, tools by their names.
    broken: the body breaks off.
    like: the name of a response with the same body.
    unread: why the response is not parsed; it has no body here then.
    """

    path: str = CHAT
    status: int = 200
    content_type: str = ""
    request: dict = {}
    broken: bool = False
    like: str = ""
    unread: str = ""
    server: Server | None = None
    body: bytes = b""

    @property
    def streamed(self):
        """True for a stream."""
        return self.content_type.startswith(_EVENTS)

    @property
    def answers(self):
        """True for a response of a model."""
        return self.status == 200 and self.path in (CHAT, COMPLETIONS) and not self.unread


class DecodedResponse(msgspec.Struct):
    """The result of a response: the events, the warnings, and the bytes for the client."""

    events: list[Event]
    ledger: list[str]
    data: bytes
    problem: Problem | None


def _read(file):
    """Return the responses of one server, by names."""
    head, *sections = file.read_text("utf-8").rstrip("\n").split("\n\n== ")
    server, found = msgspec.json.decode(head, type=Server), {}
    for section in sections:
        line, *lines = section.split("\n")
        name, _, row = line.partition(" ")
        exchange = msgspec.json.decode(row, type=Exchange)
        same = f"{file.stem}/{exchange.like}" if exchange.like else ""
        body = found[same].body if same else _body(server, exchange, lines)
        found[f"{file.stem}/{name}"] = replace(exchange, server=server, like=same, body=body)
    return found


def _body(server, exchange, lines):
    if not exchange.streamed:
        return "\n".join(lines).encode()
    events = (server.chunk.replace("…", line) if line.startswith("{") else line for line in lines)
    return "".join(f"{event}\n\n" for event in events).encode()


SERVERS = sorted(file.stem for file in RECORDINGS.glob("*.txt"))
EXCHANGES = {name: one for server in SERVERS for name, one in _read(RECORDINGS / f"{server}.txt").items()}


def client_request(name, **fields):
    """Return the client's request, with `fields` instead of its own."""
    exchange = EXCHANGES[name]
    if exchange.path == COMPLETIONS:
        return completions.parse_completion(
            json.dumps({"model": "m", "prompt": "Hello", **exchange.request, **fields}).encode()
        )
    json_body = {"model": "m", "messages": [{"role": "user", "content": "Hello"}], **exchange.request, **fields}
    json_body["tools"] = [
        {"type": "function", "function": {"name": tool, "parameters": {"type": "object", "properties": _TOOLS[tool]}}}
        for tool in json_body.get("tools", ())
    ]
    return chat.parse_chat(json.dumps(json_body).encode())


def replay(name, pieces=None, *, broken=None, format=None, **fields):
    """Return the result of a response in these pieces, `broken` or not, for a request with these fields.

    format: the format of its text, if not the server's.
    """
    return _decoded(name, client_request(name, **fields), _encoder, pieces, broken, format)


def responded(name):
    """Return the result as a streamed Response, which has one choice."""
    return _decoded(
        name, client_request(name, n=1, stream=True), lambda _, ledger: new_encoder(ledger=ledger, stored=True)
    )


def _encoder(question, ledger):
    if isinstance(question, completions.CompletionParams):
        return completions.completion_encoder(completions.CompletionHead("cmpl-1", 1, "m"), question, ledger)
    return chat.chat_encoder(chat.CompletionHead("chatcmpl-1", 1, "m"), question, ledger, str)


def _decoded(name, question, encoder_of, pieces=None, broken=None, format=None):
    exchange, ledger, events = EXCHANGES[name], Warnings(), []
    encoder = encoder_of(question, ledger)

    def record_events(batch, encode=encoder.encode):
        events.extend(batch)
        return encode(batch)

    encoder.encode = record_events
    turn = Pipeline(*_round(name, question.request, ledger, format), encoder)
    turn.start()
    turn.set_content_type(exchange.content_type)
    data = b"".join(turn.feed(piece) for piece in (pieces if pieces is not None else [exchange.body]))
    actions = turn.fail(BROKEN) if (exchange.broken if broken is None else broken) else turn.close()
    if any(isinstance(action, StoreResponse) for action in actions):
        actions += turn.end_after_storing(stored=True)
    data += b"".join(action.data for action in actions if isinstance(action, SendBytes))
    return DecodedResponse(merge(events), ledger.entries(), data, turn.problem)


def _round(name, question, ledger, format):
    """Return the request to the server, and the reader of its response; a completed text has no format."""
    exchange = EXCHANGES[name]
    request, filters = lower_request(question, ledger)
    tools = {tool.name: tool.definition["parameters"] for tool in request.callable_tools}
    context = ParseContext(tools, exchange.server.thought == "open")
    own = "native" if exchange.path == COMPLETIONS else exchange.server.format
    parser_settings = ParserSettings(
        FORMATS[format or own].parse, context, map("call_{}".format, count()).__next__, ledger
    )
    decoder = ChatDecoder(ledger, request.n, requested_extra_fields(request))
    if promise := output_validation(question, EnforcementTerms, ledger):
        filters.append(promise)
    return request, lambda _: UpstreamReader(decoder, parser_settings, lambda: 40, filters)


def golden(name):
    """Return the expected result of a response as plain data; None if no model made it."""
    exchange = EXCHANGES[name]
    if exchange.status != 200:
        return {"problem": msgspec.to_builtins(problem_from_status(exchange.status, exchange.body))}
    if not exchange.answers:
        return None
    whole = replay(name, stream=False, stream_options=None)
    result = {"events": [_plain(event) for event in whole.events], "ledger": whole.ledger}
    if whole.problem:
        return {**result, "problem": msgspec.to_builtins(whole.problem)}
    body = json.loads(whole.data)
    return {**result, "choices": body["choices"], "usage": body["usage"]}


def goldens(server):
    """Return all results of one server by name, without those that equal the response they are like."""
    results = {name: golden(name) for name in EXCHANGES if name.startswith(f"{server}/")}
    return {name: one for name, one in results.items() if one and one != results.get(EXCHANGES[name].like)}


def written(goldens):
    """Return results as their file has them: one line per member, event and choice, for short differences."""
    entries = (f' "{name}": {{\n{_members(result)}\n }}' for name, result in goldens.items())
    return "{\n" + ",\n".join(entries) + "\n}\n"


def golden_file(server):
    """Return the file with the results of a server."""
    return RECORDINGS / f"{server}.golden.json"


def _members(result):
    return ",\n".join(f'  "{name}": {_lines(value)}' for name, value in result.items())


def _lines(value):
    dumped = partial(json.dumps, ensure_ascii=False)
    if not isinstance(value, list) or not value or isinstance(value[0], str):
        return dumped(value)
    return "[\n" + ",\n".join(f"   {dumped(one)}" for one in value) + "\n  ]"


def _plain(event):
    """Return an event without empty members."""
    fields = {one.encode_name: getattr(event, one.name) for one in msgspec.structs.fields(event)}
    members = json.loads(msgspec.json.encode(fields))
    return [
        event.__struct_config__.tag,
        {name: value for name, value in members.items() if value not in ("", [], None)},
    ]
