"""The requests to each kind of backend: for requests of real clients, for all sorts of messages, for each field.

The requests are in tests/backends/requests/.  Their outcomes are in kinds/, one file a kind, so that a new kind adds a
file.  A file has the body as the difference to another body: for the requests of clients/ and messages.json to that of
the kind `openai`, which is stored as a whole; for fields.json and responses.json to the same kind's body for a request
without these fields.

A request:
    asks      the client's request, or the fields that it has besides its message
    path      the endpoint; by default chat completions, in responses.json Responses
    model     the settings of the model, if they matter
    before    a response that this one continues

An outcome:
    body      the request to the backend, without the model's name
    says      the members of the body that are new or differ, by their paths
    lacks     the paths of missing members
    listed    the warnings
    refused   status, code and param of the error; the backend gets no request
"""

import asyncio
import json
from contextlib import asynccontextmanager
from functools import cache
from hashlib import sha256
from typing import Any

from msgspec import field

from gateway.backends import KINDS
from support import anthropic_server
from support.app import HELLO_MESSAGES, gateway, problem
from support.ollama import NAME, Turn, content_line, ollama
from support.paths import TESTS
from support.upstream import HELLO, Upstream, completion_body, whole

REQUESTS = TESTS / "backends" / "requests"
CHAT, RESPONSES, MESSAGES = "/v1/chat/completions", "/v1/responses", "/v1/messages"
WHOLE = (*sorted(REQUESTS.glob("clients/*.json")), REQUESTS / "messages.json")
FIELDS = REQUESTS / "fields.json"
BY_FIELD = {FIELDS: CHAT, REQUESTS / "responses.json": RESPONSES}
_BARE = {CHAT: {"messages": HELLO_MESSAGES}, RESPONSES: {"input": "Hello"}, MESSAGES: {"max_tokens": 100}}
_FORMATS = {
    "format",
    "guided_json",
    "json_schema",
    "response_format",
    "structured_outputs",
    "text",
    "output_config",
    "output_format",
}
_OBJECT = '{"city": "", "days": 0}'  # fits every schema in the files
_WIDTH = 140


@cache
def cases(file):
    """Return the cases of a file by name.

    The name of an unnamed case consists of its fields, and its model if that matters.
    """
    document = json.loads(file.read_text("utf-8"))
    return (
        document
        if isinstance(document, dict)
        else {json.dumps([*map(case.get, ("asks", "model"))]): case for case in document}
    )


# Requests to the backends


@cache
def outcomes(file):
    """Return name → kind → the request and the warnings, or the error; "" is the name of the plain request."""
    return asyncio.run(_outcomes({"": {"asks": {}}, **cases(file)}, BY_FIELD.get(file, CHAT)))


async def _outcomes(cases, path):
    models = {
        _model(case, kind): {**case.get("model", {}), "backends": [kind], "upstream_model": NAME}
        for case in cases.values()
        for kind in KINDS
    }
    async with _Servers().serving() as servers:
        backends = {kind: {"kind": kind, "url": servers.url(kind)} for kind in KINDS}
        async with gateway(HELLO, more_backends=backends, more_models=models) as site:
            return {
                name: {kind: await _outcome(site, kind, {"path": path, **case}, servers) for kind in KINDS}
                for name, case in cases.items()
            }


def _model(case, kind):
    """Return a name that does not suggest a model family."""
    return sha256(f"{kind}{case.get('model')}".encode()).hexdigest()


async def _outcome(site, kind, case, servers):
    path, model, bodies = case["path"], _model(case, kind), servers.bodies(kind)
    ask = {**_BARE[path], **case["asks"], "model": model}
    servers.say("Hi")
    if before := case.get("before"):
        ask["previous_response_id"] = (await site.client.post(path, json={**before, "model": model})).json()["id"]
    if _FORMATS & ask.keys():
        servers.say(_OBJECT)
    known = len(bodies)
    answer = await site.client.post(path, json=ask)
    if len(bodies) == known:
        if path == MESSAGES:
            return {"refused": [answer.status_code, answer.json()["error"]["type"], None]}
        status, _, code, param = problem(answer)
        return {"refused": [status, code, param]}
    assert answer.status_code == 200, answer.text
    body = bodies[-1]
    assert body.pop("model") == NAME
    warnings = answer.headers.get("x-gateway-warnings")
    return {"body": body, "listed": warnings.split(", ") if warnings else []}


class _Servers:
    """An Ollama, and one server for all other kinds.  Their responses fulfil the request, so they cause no warnings."""

    def __init__(self):
        self._turn, self._bodies = _Obliging([content_line("Hi")]), []
        self._other = Upstream([[self._answer]], ())

    @asynccontextmanager
    async def serving(self):
        """Run the servers within the block."""
        async with ollama(self._turn) as self._ollama, self._other.serving():
            self._turn.bodies = self._ollama.bodies
            yield self

    def url(self, kind):
        """Return the URL of the server for a kind."""
        return self._ollama.url if kind == "ollama" else self._other.url

    def bodies(self, kind):
        """Return the bodies that the server received so far."""
        return self._ollama.bodies if kind == "ollama" else self._bodies

    def say(self, text):
        """Set the text of the next responses."""
        self._turn.lines = [content_line(text)]

    async def _answer(self, writer):
        """Send the requested number of choices, with a tool call if one is required."""
        self._bodies.append(body := self._other.posts[-1].json)
        if self._other.posts[-1].path == anthropic_server.PATH:
            writer.write(b"".join(self._message(body)))
            return
        answer = completion_body(_demanded(body) or self._turn.lines[0]["message"]["content"])
        choice = answer["choices"][0]
        if (forced := body.get("tool_choice")) not in (None, "auto", "none"):
            name = forced["function"]["name"] if isinstance(forced, dict) else None
            tools = (tool["function"] for tool in body["tools"])
            message = {
                "role": "assistant",
                "tool_calls": [_call(next(one for one in tools if name in (None, one["name"])))],
            }
            choice = {"message": message, "finish_reason": "tool_calls"}
        choices = [{**choice, "index": i} for i in range(body.get("n", 1))]
        writer.write(b"".join(whole({**answer, "choices": choices})))

    def _message(self, body):
        """Return a message of Anthropic's API, or the error for a request that it refuses."""
        body = {**body, "stream": False}
        tool, text = anthropic_server.forced_tool(body), self._turn.lines[0]["message"]["content"]
        if not tool:
            return anthropic_server.reply(body, anthropic_server.text(text))
        called = anthropic_server.tool_use(tool["name"], **_least(tool["input_schema"]))
        return anthropic_server.reply(body, called, reason="tool_use")


class _Obliging(Turn):
    """A turn of a model that calls a tool when the messages demand it."""

    bodies: list[Any] = field(default_factory=list)

    def answers(self, model=NAME):
        """Return the response to the last request."""
        call = _demanded(self.bodies[-1])
        return Turn([content_line(call)] if call else self.lines).answers(model)


_LEAST: dict[str, Any] = {"string": "", "integer": 0, "number": 0, "boolean": False, "array": [], "object": {}}


def _demanded(body):
    """Return the tool call that the messages demand, as a model writes it; None if they do not."""
    if not any("Answer with a call of" in str(message.get("content")) for message in body["messages"]):
        return None
    called = _call(body["tools"][0]["function"])["function"]
    return json.dumps({**called, "arguments": json.loads(called["arguments"])})


def _call(function):
    """Return a call with the least arguments that fit the function."""
    called = {"name": function["name"], "arguments": json.dumps(_least(function["parameters"]))}
    return {"id": "call_1", "type": "function", "function": called}


def _least(schema):
    known = schema.get("properties", {})
    return {name: _LEAST[known[name]["type"]] for name in schema.get("required", ())}


# Files of outcomes


def golden_file(kind):
    """Return the file of a kind."""
    return REQUESTS / "kinds" / f"{kind}.json"


@cache
def stored(kind):
    """Return the stored outcomes of a kind: file → name → outcome."""
    file = golden_file(kind)
    return json.loads(file.read_text("utf-8")) if file.exists() else {}


def goldens(kind):
    """Return the outcomes of all requests at a kind, as its file has them."""
    return {file.stem: {name: golden(file, name, kind) for name in cases(file)} for file in (*WHOLE, *BY_FIELD)}


def golden(file, name, kind):
    """Return the outcome of one request at a kind."""
    found = outcomes(file)[name]
    if file in BY_FIELD:
        return _by_difference(outcomes(file)[""][kind]["body"], found[kind])
    return found[kind] if kind == "openai" else _by_difference(found["openai"].get("body", {}), found[kind])


def _by_difference(other, outcome):
    if "refused" in outcome:
        return outcome
    additions, lacks = difference(other, outcome["body"])
    members = {"says": additions, "lacks": lacks, "listed": outcome["listed"]}
    return {name: value for name, value in members.items() if value}


def difference(one, other, path=""):
    """Return the changes that make one object, or list, the other: new values by path, and missing paths."""
    additions, lacks = {}, []
    before, after = _members(one), _members(other)
    for name in {**before, **after}:
        here, was, now = f"{path}{name}", before.get(name), after.get(name)
        if name not in after:
            lacks.append(here)
        elif type(was) is type(now) and isinstance(now, dict | list):
            more, less = difference(was, now, f"{here}.")
            additions, lacks = {**additions, **more}, [*lacks, *less]
        elif name not in before or type(was) is not type(now) or was != now:
            additions[here] = now
    return additions, lacks


def applied(additions, lacks, one):
    """Return the object with these differences from `one`."""
    made = json.loads(json.dumps(one))
    for path in reversed(lacks):
        place, name = _place(made, path)
        del place[name]
    for path, value in additions.items():
        place, name = _place(made, path)
        if name == len(place) and isinstance(place, list):
            place.append(value)
        else:
            place[name] = value
    return made


def _members(value):
    return value if isinstance(value, dict) else {str(i): one for i, one in enumerate(value)}


def _place(value, path):
    """Return the object or list that a path leads to, and the name or index in it."""
    *most, last = path.split(".")
    for name in most:
        value = value[int(name) if isinstance(value, list) else name]
    return value, int(last) if isinstance(value, list) else last


def written(value, indent="", head=""):
    """Return JSON with a value on one line if it is short, or if it is an entry of a list, like a message or a tool."""
    line = indent + head + json.dumps(value, ensure_ascii=False)
    if len(line) <= _WIDTH or (len(indent) > 1 and not head) or not value or not isinstance(value, dict | list):
        return line
    opening, closing = "{}" if isinstance(value, dict) else "[]"
    inner = [
        written(one, f"{indent} ", f"{json.dumps(name)}: " if opening == "{" else "")
        for name, one in _members(value).items()
    ]
    return f"{indent}{head}{opening}\n" + ",\n".join(inner) + f"\n{indent}{closing}"
