"""Recorded answers of real servers, and what the core makes of them.

A body in recordings/ is what a server sent; ids, dates and names of models are made equal, and what goes on and on is
shortened.  exchanges.json says what belongs to it: how the answer was announced, what of the request matters, and
which format the text is in.  Beside each body lies what must come of it: `<body>.golden.json`.
"""

import json
from itertools import count
from pathlib import Path

import msgspec
from streams import merge

from gateway.backends.openai.body import wanted
from gateway.backends.openai.decode import Decoder
from gateway.backends.openai.failures import problem
from gateway.calls import Setting
from gateway.endpoints import chat
from gateway.errors import Problem
from gateway.events import Event
from gateway.formats import FORMATS
from gateway.formats.format import Context
from gateway.ledger import Ledger
from gateway.translate import translate
from gateway.turn import Send, Turn
from gateway.upstream import Upstream

RECORDINGS = Path(__file__).parent / "recordings"
BROKEN = Problem(502, "The connection broke.", "upstream_lost")
_TOOLS = {
    "get_weather": {"city": {"type": "string"}, "unit": {"type": "string", "enum": ["celsius", "fahrenheit"]}},
    "get_time": {"timezone": {"type": "string"}},
}


class Exchange(msgspec.Struct, frozen=True, kw_only=True):
    """request: the fields that matter, tools by their names.  broken: the body did not come to its end."""

    content_type: str
    request: dict = {}
    status: int = 200
    format: str = "native"
    thought: str = "closed"
    broken: bool = False


class Told(msgspec.Struct):
    """What came of an answer: the events, what was listed, and what the client got."""

    events: list[Event]
    ledger: list[str]
    data: bytes
    problem: Problem | None


EXCHANGES = msgspec.json.decode((RECORDINGS / "exchanges.json").read_bytes(), type=dict[str, Exchange])


def body(name):
    return (RECORDINGS / name).read_bytes()


def asked(name, **fields):
    """The client's request, `fields` instead of its own."""
    said = {"model": "m", "messages": [{"role": "user", "content": "Hello"}], **EXCHANGES[name].request, **fields}
    said["tools"] = [
        {"type": "function", "function": {"name": tool, "parameters": {"type": "object", "properties": _TOOLS[tool]}}}
        for tool in said.get("tools", ())
    ]
    return chat.parse(json.dumps(said).encode())


def replay(name, pieces=None, *, broken=None, **fields):
    """What comes of an answer that comes in these pieces, `broken` or not, for a request with these fields."""
    exchange, ledger, events = EXCHANGES[name], Ledger(), []
    question = asked(name, **fields)
    request, filters = translate(question.request, ledger)
    tools = {tool.name: tool.definition["parameters"] for tool in request.callable_tools}
    context = Context(tools, exchange.thought == "open")
    new_id = map("call_{}".format, count()).__next__
    setting = Setting(FORMATS[exchange.format].parse, context, new_id, ledger)
    encoder = chat.encoder(chat.Head("chatcmpl-1", 1, request.model), question, ledger, str)

    def told(event, encode=encoder.encode):
        events.append(event)
        return encode(event)

    encoder.encode = told
    decoder = Decoder(ledger, request.n, wanted(request))
    turn = Turn(request, lambda _: Upstream(decoder, setting, lambda: 40, filters), encoder)
    turn.start()
    turn.answered(exchange.content_type)
    data = b"".join(turn.feed(piece) for piece in (pieces if pieces is not None else [body(name)]))
    ended = turn.fail(BROKEN) if (exchange.broken if broken is None else broken) else turn.close()
    data += b"".join(action.data for action in ended if isinstance(action, Send))
    return Told(merge(events), ledger.entries(), data, turn.problem)


def golden(name):
    """What must come of an answer, as plain data."""
    if EXCHANGES[name].status != 200:
        return {"problem": msgspec.to_builtins(problem(EXCHANGES[name].status, body(name)))}
    whole = replay(name, stream=False, stream_options=None)
    result = {"events": [_plain(event) for event in whole.events], "ledger": whole.ledger}
    if whole.problem:
        return {**result, "problem": msgspec.to_builtins(whole.problem)}
    return {**result, "completion": json.loads(whole.data)}


def written(result):
    """A golden as its file has it: one line for each event, so that a change of one shows as a change of one."""
    text = json.dumps({**result, "events": []} if "events" in result else result, indent=1, ensure_ascii=False)
    events = ",\n".join("  " + json.dumps(event, ensure_ascii=False) for event in result.get("events", ()))
    return text.replace('"events": []', f'"events": [\n{events}\n ]', 1) + "\n"


def golden_file(name):
    return RECORDINGS / f"{name}.golden.json"


def _plain(event):
    """An event without the members that say nothing."""
    members = {
        name: value for name, value in json.loads(msgspec.json.encode(event)).items() if value not in ("", [], None)
    }
    return [type(event).__name__, members]
