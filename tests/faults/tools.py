"""What goes wrong with the tools that run at the gateway: with servers of tools, services that search, approvals, clients."""

import asyncio
import gc
from contextlib import nullcontext, suppress
from copy import copy

from msgspec import Struct
from starlette.responses import Response, StreamingResponse

from faults.clients import connection, goes
from faults.matrix import Cell, here, left, level, now, site_of, sound
from faults.rows import BRIEF
from faults.ways import HTTP, TOOLS, WAYS, Chat, Outcome
from support.app import running
from support.mcp_server import TOOL, Liar
from support.search_services import OSLO, Searching, endless, never, respond_with
from support.upstream import HELLO, SOON, call, chunk, stream
from support.wait import until

OF_A_REQUEST = (
    *(f"gateway.{name}" for name in ("api", "builtin_tools", "warnings", "request", "pipeline.pipeline")),
    *(f"gateway.server.relay.{name}" for name in ("attempts", "model_request", "responses_request", "rounds")),
    *(f"gateway.server.tools.{name}" for name in ("mcp_session.McpProvider", "toolset")),
)
NOBODY = "http://127.0.0.1:9"


class Kind(Struct, frozen=True):
    """Of tools.  name, arguments: of the model's call; result: what the client of a response sees of these.

    model: what a model's settings say of them; settings: a url → the section `tools`.
    """

    definition: dict
    name: str
    arguments: str
    result: str
    model: dict
    settings: object

    def calls(self):
        return stream(chunk(tool_calls=call(self.name, self.arguments, id="call_a")), chunk(finish="tool_calls"))

    def offered(self, way):
        """The way, with these tools."""
        if isinstance(way, Chat):
            return way
        other = copy(way)
        other.tools = [TOOLS, self.definition]
        return other


def _servers(url, approval="never", connect=10, **options):
    server = {"url": f"{url}/mcp", "require_approval": approval}
    return {"mcp": {"servers": {"toys": server}, "connect_seconds": connect}, **options}


def _services(url, **options):
    return {"web_search": {"service": "searxng", "url": url}, **options}


ECHO = '{"text": "a"}'
MCP = Kind({"type": "mcp", "server_label": "toys"}, "toys__echo", ECHO, ECHO, {"mcp": ["toys"]}, _servers)
SEARCH = Kind({"type": "web_search"}, "web_search__search", '{"query": "a"}', "", {}, _services)
RESPONSES = tuple(way for way in WAYS if not isinstance(way, Chat))


class Row(Struct, frozen=True):
    """service: makes what its tools need; None: nobody listens.  options: of the section `tools`; input: of the request.

    calls: the model does; result: what it is told of that, or of an earlier call.
    needs_approval: the client has to approve the call.
    run: gives a Cell; ways: to ask.
    """

    name: str
    kind: Kind
    service: object
    result: str = ""
    options: dict = {}
    input: object = "Hello"
    calls: bool = True
    needs_approval: bool = False
    run: object = None
    ways: tuple = WAYS

    def wanted(self, way):
        if self.needs_approval:
            return Outcome(200, text="" if way.streamed else self.kind.result)
        seen = self.calls and not isinstance(way, Chat)
        return Outcome(200, text=f"{self.kind.result * seen}Hi")


async def cells(row):
    service = row.service and row.service()
    async with (
        running(service) if service else nullcontext(NOBODY) as url,
        site_of({"tools": row.kind.settings(url, **row.options)}, row.kind.model) as site,
    ):
        return {way.name: await cell(row, row.kind.offered(way), site, service) for way in row.ways}


async def cell(row, way, site, service):
    """The second one: after the first there is a session, or none."""
    run = row.run or answer_cell
    await run(row, way, site, service)
    gc.collect()
    before = await level()
    found = await run(row, way, site, service)
    await site.upstream.set_scripts(HELLO)
    found.wrong += (*await sound(way, site), *await (left if row.kind is SEARCH else left_by_sessions)(before))
    return found


async def left_by_sessions(before):
    """The SDK makes cycles of each session that fails, and of what that was given; what belongs to a request is in none."""
    with suppress(TimeoutError):
        async with asyncio.timeout(SOON):
            await until(lambda: not of_a_request(before))
    kept = of_a_request(before)
    gc.collect()
    return [f"{name} is kept" for name in kept] + await left(before)


def of_a_request(before):
    return [name for name in here() - before if name.startswith(OF_A_REQUEST)]


async def answer_cell(row, way, site, _):
    await site.upstream.set_scripts(*[row.kind.calls()] * row.calls, HELLO)
    got, wanted = await way.ask(site, row.input), row.wanted(way)
    messages = site.upstream.posts[-1].json["messages"]
    results = [message["content"] for message in messages if message["role"] == "tool"]
    wrong = [f"wanted {wanted} {wanted.text!r}, got {got.text!r}"] * (got != wanted)
    wrong += [f"the model was told {results}"] * (row.result not in "".join(results))
    return Cell(str(got), "told" if row.result else "asked" if row.needs_approval else "", wrong=tuple(wrong))


async def left_alone(row, way, site, service):
    """The client goes, and the call is broken off; the model is not asked again."""
    service.begun.clear()
    service.broken.clear()
    await site.upstream.set_scripts(row.kind.calls(), HELLO)
    count = len(site.upstream.posts)
    async with asyncio.timeout(SOON), connection(site, way, way.body()) as (_, writer):
        await service.begun.wait()
        since = now()
        goes(writer, "closes")
        await service.broken.wait()
        seconds = now() - since
    return Cell("", seconds=seconds, wrong=("the model was asked again",) * (len(site.upstream.posts) - count - 1))


def server(name, result, options=None, **answers):
    return Row(f"a server {name}", MCP, lambda: Liar(**answers), result, options or {}, calls=bool(result))


def service(name, result, answer, **options):
    return Row(
        f"a search service {name}", SEARCH, lambda: Searching(**{"/search": answer}), result, options, ways=RESPONSES
    )


def approval(name, result="", *decided):
    """A request for approval, and what the client says of it."""
    approval_request = {
        "type": "mcp_approval_request",
        "id": "mcpr_1",
        "server_label": "toys",
        "name": "echo",
        "arguments": ECHO,
    }
    return Row(name, MCP, Liar, result, ALWAYS, [QUESTION, approval_request, *decided], calls=False, ways=RESPONSES)


def leaving(name, kind, service, ways=HTTP):
    return Row(f"the client leaves amid a {name}", kind, service, run=left_alone, ways=ways)


async def broken(send, *_):
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"99")]})
    await send({"type": "http.response.body", "body": b'{"results": [', "more_body": True})
    raise ConnectionError


async def halved(_):
    async def half():
        yield b'{"jsonrpc":'
        raise ConnectionError

    return StreamingResponse(half(), media_type="application/json")


QUICK = {"seconds": BRIEF}
SMALL = {"result_bytes": 1000}
STRICT = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}
REFUSED = {"type": "mcp_approval_response", "approval_request_id": "mcpr_1", "approve": False}
HUGE = {"results": [{**OSLO, "url": f"https://a.example/{i}", "content": "x" * 90_000} for i in range(9)]}
QUESTION = {"role": "user", "content": "Hello"}
ALWAYS = {"approval": "always"}
SLOW = f"did not respond within {BRIEF} s"
LISTED = {"tools": [{**TOOL, "outputSchema": STRICT}]}
WRONG = {"content": [], "structuredContent": {"a": "x"}}

ROWS = [
    Row("a server is down", MCP, None, calls=False),
    # As long as a session takes to begin on a busy machine: it is to be there after the first run already.
    server("does not list its tools in time", "", {"connect": 4 * BRIEF, **QUICK}, tools_list=None),
    server("lists what are no tools", "", tools_list={"tools": "no"}),
    server("breaks off amid its list", "", tools_list=halved),
    server("lies about the schema of its result", "violates the protocol", tools_list=LISTED, tools_call=WRONG),
    server("does not answer a call in time", SLOW, QUICK, tools_call=None),
    server("answers a call with 500", "The server reported an error", tools_call=Response(status_code=500)),
    server("answers a call in HTML", "The server reported an error", tools_call=Response("<html>", media_type="text/html")),
    server("gives a result of 4 MB", "[The rest is cut off", SMALL, tools_call={"content": [{"type": "text", "text": "x" * (4 << 20)}]}),
    server("gives a result of 9 MB", "The server", tools_call=Response('"' + "x" * (9 << 20), media_type="application/json")),
    server("breaks off amid a call", "The server", tools_call=halved),
    Row("a call has to be approved", MCP, Liar, options=ALWAYS, needs_approval=True, ways=RESPONSES),
    approval("a call is not approved", "the user did not approve it", REFUSED),
    approval("a call is neither approved nor refused", "has not approved it"),
    leaving("call", MCP, lambda: Liar(obeys=True, tools_call=None)),
    Row("a search service is down", SEARCH, None, "cannot be reached", ways=RESPONSES),
    service("does not answer in time", SLOW, never, **QUICK),
    service("answers with 500", "returned HTTP 500", respond_with({}, 500)),
    service("answers in HTML", "did not return JSON", respond_with(b"<html>")),
    service("finds 800 kB", "[The rest is cut off", HUGE, **SMALL),
    service("has no end", "is larger than", endless),
    service("breaks off", "cannot be reached", broken),
    leaving("search", SEARCH, lambda: Searching(**{"/search": never}), HTTP[2:]),
]  # fmt: skip
