"""Send requests with the load generator, and read its report."""

import http.client
import json
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from bench import compiled

KEY = "sk-1234"  # as load.c sends it
CHAT, RESPONSES = "/v1/chat/completions", "/v1/responses"

_TOOL = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "The weather in a city, now.",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
    },
}
_TO_OPEN = 0.2  # seconds, for the last of many streams
_TO_FINISH = 20.0  # seconds that requests may take after the last one has started


class Traffic(Struct, frozen=True):
    """One sort of request, with `streams` of them at a time.

    own: each has its own connection.
    rate: so many requests begin in a second, each on its own connection, however many are open.
    share: of the program's core that the rate uses, in per cent.
    open: streams that are open meanwhile.
    """

    model: str
    knobs: str  # for the mock: see mock.c
    streams: int
    requests: int
    stream: bool = True
    tools: bool = False
    ramp_ms: int = 0
    seconds: float = 30.0
    path: str = CHAT
    store: bool = False
    headers: tuple[tuple[str, str], ...] = ()
    own: bool = False
    rate: float = 0.0
    share: int = 0
    open: "Traffic | None" = None

    def direct(self) -> "Traffic":
        """Return the same traffic in the API of the mock."""
        return replace(self, path=CHAT)


class Report(Struct, frozen=True):
    """The report of load.c: its head explains the names; times are milliseconds."""

    ok: int
    errs: int
    s: float
    rps: float
    lines: int
    lps: float
    dones: int
    failures: int
    ttfd50: float
    ttfd99: float
    tot50: float
    tot99: float
    lat50: float
    lat99: float
    err: str


def body(traffic: Traffic, knobs: str = "") -> bytes:
    """Return the request's body; knobs: instead of those of the traffic."""
    question = f"What is the weather in Paris? @@{knobs or traffic.knobs}@@"
    request: dict[str, object] = {"model": traffic.model, "stream": traffic.stream}
    if traffic.path == RESPONSES:
        request |= {"input": question, "store": traffic.store}
    else:
        request |= {"messages": [{"role": "user", "content": question}]}
        if traffic.stream:
            request["stream_options"] = {"include_usage": True}
    if traffic.tools:
        request["tools"] = [_TOOL]
    return json.dumps(request, separators=(",", ":")).encode()


def run(traffic: Traffic, port: int) -> Report:
    """Send all requests, and wait for the end or a timeout."""
    done = subprocess.run(_command(traffic, port), stdout=subprocess.PIPE, check=True, timeout=_limit(traffic))
    return msgspec.json.decode(done.stdout, type=Report)


@contextmanager
def opened(traffic: Traffic | None, port: int) -> Iterator[list[Report]]:
    """Keep streams open within the block, and wait for their end after it; the list has their report then."""
    reports: list[Report] = []
    if not traffic:
        yield reports
        return
    with subprocess.Popen(_command(traffic, port), stdout=subprocess.PIPE) as process:
        try:
            time.sleep(traffic.ramp_ms / 1000 + _TO_OPEN)
            yield reports
            data, _ = process.communicate(timeout=_limit(traffic))
        finally:
            process.kill()
    reports.append(msgspec.json.decode(data, type=Report))


def _command(traffic: Traffic, port: int) -> list[str]:
    command = [str(compiled.load()), "-u", f"127.0.0.1:{port}{traffic.path}", "-b", body(traffic).decode()]
    command += ["-c", str(traffic.streams), "-n", str(traffic.requests), "-r", str(traffic.ramp_ms)]
    command += ["-t", str(traffic.seconds), "-g", str(_TO_FINISH)]
    command += ["-o"] if traffic.own else []
    command += ["-a", str(traffic.rate)] if traffic.rate else []
    return command + [word for name, value in traffic.headers for word in ("-H", f"{name}: {value}")]


def _limit(traffic: Traffic) -> float:
    """Return the seconds after which the load generator has to be at its end."""
    return traffic.seconds + _TO_FINISH + 10


def ask(traffic: Traffic, port: int, knobs: str) -> bytes:
    """Return the response to one such request with other knobs."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    headers = {"content-type": "application/json", "authorization": f"Bearer {KEY}", **dict(traffic.headers)}
    try:
        connection.request("POST", traffic.path, body(traffic, knobs), headers)
        return connection.getresponse().read()
    finally:
        connection.close()
