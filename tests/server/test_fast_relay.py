"""Chunks that come alone go from socket to socket past all that sleeps: what holds there as it does elsewhere."""

import asyncio
import json
from contextlib import asynccontextmanager

import pytest

from gateway.config.schema import Stream
from gateway.errors import STOPPED
from gateway.recording import Read, Wrote
from gateway.recording.entries import came_of
from gateway.server.exchange import Exchange
from gateway.server.telemetry.observation import Observation
from support.app import HELLO_MESSAGES, listening
from support.raw_requests import asking
from support.recordings import recordings
from support.sse import text_of
from support.turns import make_turn
from support.upstream import CLOSE, DONE, END, call, chunk, head, silent

PAUSE = 0.03  # seconds, so that each chunk is a read of its own
WORD = chunk(" word")
BEFORE = [WORD] * 4  # after which it is known what they are like
LAST = [chunk(finish="stop"), DONE, END]


def apart(*steps, pause=PAUSE):
    """Each after a pause."""
    return [one for step in steps for one in (silent(pause), step)]


def streaming(site, path="/v1/chat/completions", **fields):
    asked = {"messages": HELLO_MESSAGES} if "chat" in path else {"input": "Hello"}
    return site.client.stream("POST", path, json={"model": "m", "stream": True, **asked, **fields})


async def told(site, **fields):
    """The lines of an answer."""
    async with streaming(site, **fields) as answer:
        return [line async for line in answer.aiter_lines() if line]


async def test_the_limit_of_the_whole_answer_holds():
    script = [head(), *apart(*[WORD] * 60)]
    async with listening(script, backend={"timeouts": {"total": 0.5}}, stream={"keepalive_seconds": 0.1}) as site:
        lines = await told(site)
    words = text_of("\n\n".join(lines)).split()
    assert 3 <= len(words) < 40 and set(words) == {"word"}
    assert json.loads(lines[-1][6:])["error"]["code"] == "upstream_timeout"


async def test_silence_counts_from_the_last_chunk():
    """Of what came before it there was more than the limit."""
    times = {"backend": {"timeouts": {"idle": 0.4}}, "stream": {"keepalive_seconds": 0.15}}
    async with listening([head(), *apart(*[WORD] * 20), silent(0.25), WORD, silent(0.8), *LAST], **times) as site:
        lines = await told(site)
    last = max(place for place, line in enumerate(lines) if "word" in line)
    assert text_of("\n\n".join(lines)) == " word" * 21
    assert lines[last - 1] == ": keep-alive" and lines[last - 2] != ": keep-alive"
    assert lines[last + 1 : -1] == [": keep-alive"] * 2
    assert json.loads(lines[-1][6:])["error"]["code"] == "upstream_timeout"


async def test_what_breaks_off_has_been_told_before():
    async with listening([head(), *apart(*[WORD] * 5), CLOSE]) as site:
        lines = await told(site)
    assert text_of("\n\n".join(lines)) == " word" * 5
    assert json.loads(lines[-1][6:])["error"]["code"] == "upstream_lost"


async def test_what_fails_in_a_chunk_ends_the_answer():
    """Calls that are interleaved are held back, up to a limit."""
    calls = [call("f", "{", id="call_1"), call("f", "{", place=1, id="call_2")]
    opened = [chunk(tool_calls=one) for one in calls]
    more = [chunk(tool_calls=call(arguments='"' + "a" * 300, place=1))] * 10
    limits = {"limits": {"frame_bytes": 1024}, "model": {"format": "native"}}
    async with listening([head(), *apart(*opened, *more, *LAST)], **limits) as site:
        tools = [{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}]
        lines = await told(site, tools=tools)
        assert "error" in json.loads(lines[-1][6:])
        assert not site.upstream.posts[1:]


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/responses"])
async def test_each_is_written_down_as_it_went(tmp_path, path):
    keep = {"recording": {"mode": "all", "directory": str(tmp_path), "content": True}}
    async with listening([head(), *apart(*[WORD] * 8, *LAST)], **keep) as site, streaming(site, path) as answer:
        got = await answer.aread()
    (found,) = recordings(tmp_path)
    reads = [entry.data for entry in found.entries if isinstance(entry, Read)]
    wrote = [entry for entry in found.entries if isinstance(entry, Wrote)]
    assert reads == [*[WORD] * 8, *LAST[:2], b""]
    assert b"".join(entry.data for entry in wrote) == got
    words = [place for place, entry in enumerate(found.entries) if entry in wrote and b'" word"' in entry.data]
    assert len(words) == 8
    assert [found.entries[came_of(found.entries, place)].data for place in words] == [WORD] * 8


async def test_a_client_that_reads_later_gets_all_of_it():
    text = [f"{number} {'x' * 100_000} " for number in range(80)]
    async with listening([head(), *apart(*map(chunk, text), *LAST, pause=0.01)]) as site, asking(site) as sock:
        await asyncio.sleep(0.5)
        got = b""
        while not got.endswith(b"0\r\n\r\n"):
            got += await asyncio.get_running_loop().sock_recv(sock, 1 << 20)
    body = b"".join(got.partition(b"\r\n\r\n")[2].split(b"\r\n")[1::2]).decode()
    assert text_of(body) == "".join(text)


# What goes on in one turn of the loop


class Told:
    """An outlet.  open: it takes what is not to wait."""

    def __init__(self):
        self.open, self.at_once, self.pieces = True, [], []

    def now(self, piece):
        if self.open:
            self.at_once.append(piece)
        return self.open

    async def tell(self, piece):
        self.pieces.append(piece)

    async def end(self, piece):
        """Nothing more comes."""
        self.pieces += [piece] * bool(piece)


class Asked:
    """A call whose reader sleeps; it is given what comes by `come`."""

    over = False

    def __init__(self, *first):
        self.first = [*first]

    def ready(self, _, ear=None):
        self.ear, self.wait = ear, asyncio.get_running_loop().create_future()
        if self.first:
            self.wait.set_result(True)
        return self.wait

    def come(self, data):
        heard = self.ear(data)
        if not heard:
            self.wait.set_result(True)
            self.first += [data] * (heard is None)

    def read(self):
        return self.first.pop(0)

    def judge(self, _):
        pass

    def close(self):
        pass


class Attempts:
    def __init__(self, call):
        self.seen, self._call = Observation("req_1", "POST", "chat", lambda _: None), call

    def call(self):
        return self._call


async def turns():
    """Of the loop, as many as there is something to do."""
    for _ in range(20):
        await asyncio.sleep(0)


@asynccontextmanager
async def pumping(call, outlet, **options):
    """An answer that has begun, and waits for more."""
    turn = make_turn(format="native", **options)
    turn.start()
    turn.answered("text/event-stream")

    async def kept(_):
        return True

    exchange = Exchange(turn, Attempts(call), Stream(), kept)
    await exchange.decide()
    pump = asyncio.create_task(exchange.pump(outlet))
    await turns()
    outlet.at_once.clear()
    yield exchange, pump
    pump.cancel()


async def test_what_the_client_has_no_room_for_is_told_by_who_may_wait():
    call, outlet = Asked(*BEFORE), Told()
    async with pumping(call, outlet):
        call.come(WORD)
        assert len(outlet.at_once) == 1 and not outlet.pieces
        outlet.open = False
        call.come(chunk(" full"))
        assert not outlet.pieces
        await turns()
        assert len(outlet.at_once) == 1 and [b" full" in piece for piece in outlet.pieces] == [True]


async def test_what_nobody_was_told_when_it_is_given_up_comes_before_the_last_words():
    call, outlet = Asked(*BEFORE), Told()
    async with pumping(call, outlet) as (exchange, pump):
        outlet.open = False
        call.come(chunk(" full"))
        pump.cancel()
        await asyncio.gather(pump, return_exceptions=True)
        assert not outlet.pieces
        await exchange.give_up(STOPPED, outlet)
        (last,) = outlet.pieces
        assert 0 < last.index(b" full") < last.index(STOPPED.message.encode())
