"""Test the fast path of the relay: a chunk that comes alone goes from socket to socket without waking a task."""

import asyncio
import json
import socket
from contextlib import asynccontextmanager
from functools import partial
from time import perf_counter

import pytest

from gateway.api.messages.event_frames import PING
from gateway.config.schema import StreamSettings
from gateway.errors import STOPPED, Problem
from gateway.recording import ResponseDataEntry, UpstreamDataEntry
from gateway.recording.entries import cause_of
from gateway.recording.recording import LONGEST_RUN
from gateway.server.observability.request_record import RequestRecord
from gateway.server.observability.request_recorder import RequestRecorder
from gateway.server.relay.relay import open_relay
from gateway.server.upstream import DECLINED, HANDLED, WAKE
from support.app import HELLO_MESSAGES, listening, streaming
from support.messages import encoder_of
from support.raw_requests import asking
from support.recordings import recordings
from support.sse import text_of
from support.turns import make_turn
from support.upstream import CLOSE, DONE, END, HANG, call, chunk, head, silent
from support.wait import idle, undisturbed, until

PAUSE = 0.03  # seconds, so that most chunks are a read of their own
WORD, THOUGHT = chunk(" word"), chunk(reasoning_content="x")
BEFORE = [WORD] * 4  # the fast path begins after them
LAST = [chunk(finish="stop"), DONE, END]


def apart(*steps, pause=PAUSE):
    """Return the steps, each after a pause."""
    return [one for step in steps for one in (silent(pause), step)]


class Client:
    """Reads a stream; `data` is what has come, and `arrivals` are its lengths with their times."""

    def __init__(self):
        self.data, self.arrivals = b"", []

    async def read(self, site, path="/v1/chat/completions", **fields):
        async with streaming(site, path, **fields) as response:
            async for piece in response.aiter_raw():
                self.data += piece
                self.arrivals.append((len(self.data), asyncio.get_running_loop().time()))

    @property
    def lines(self):
        return [line for line in self.data.decode().split("\n") if line]

    def time_of(self, place):
        """Return when the byte at this place has come."""
        return next(time for length, time in self.arrivals if length > place)

    def one_by_one(self, count):
        """Return steps of an upstream that send so many words, each when the client has the one before."""
        return [step for number in range(1, count + 1) for step in (WORD, partial(self._has_words, number))]

    async def _has_words(self, number, _):
        await until(lambda: self.data.count(b'" word"') >= number)


async def lines_of(site, **fields):
    """Return the lines of a response."""
    client = Client()
    await client.read(site, **fields)
    return client.lines


async def test_timeout_total_ends_a_stream_of_single_chunks():
    async def read_to_the_end():
        client = Client()
        script = [head(), *client.one_by_one(6), *apart(*[WORD] * 60)]
        async with listening(script, backend={"timeouts": {"total": 1}}, stream={"keepalive_seconds": 0.1}) as site:
            await client.read(site)
        words = text_of(client.data.decode()).split()
        assert 6 <= len(words) < 66 and set(words) == {"word"}
        assert json.loads(client.lines[-1][6:])["error"]["code"] == "upstream_timeout"

    await undisturbed(read_to_the_end, 0.3)


async def test_timeout_idle_counts_from_the_last_chunk():
    """The chunks before it take longer than the limit."""
    times = {"backend": {"timeouts": {"idle": 0.6}}, "stream": {"keepalive_seconds": 0.1}}

    async def read_to_the_end():
        client, sent = Client(), []

        async def has_keepalive(_):
            await until(lambda: b": keep-alive" in client.data.rpartition(b'" word"')[2])
            sent.append(asyncio.get_running_loop().time())

        async with listening([head(), *apart(*[WORD] * 25), has_keepalive, WORD, HANG], **times) as site:
            await client.read(site)
        return client, sent[0]

    client, sent_at = await undisturbed(read_to_the_end, 0.3)
    last = max(place for place, line in enumerate(client.lines) if "word" in line)
    assert text_of(client.data.decode()) == " word" * 26
    assert client.lines[last - 1] == ": keep-alive"
    assert {*client.lines[last + 1 : -1]} == {": keep-alive"}
    assert json.loads(client.lines[-1][6:])["error"]["code"] == "upstream_timeout"
    keepalive = client.data.index(b": keep-alive", client.data.rindex(b'" word"'))
    assert client.time_of(keepalive) - sent_at > 0.09
    assert client.time_of(client.data.rindex(b"upstream_timeout")) - sent_at > 0.59


@pytest.mark.parametrize("recording", [{}, {"recording": {"mode": "all"}}], ids=["plain", "recorded"])
async def test_stream_has_keepalives_while_reasoning_is_hidden(recording, tmp_path):
    """The backend is never silent, but the client would be for all of its reasoning."""
    keep = {"recording": {**recording["recording"], "directory": str(tmp_path)}} if recording else {}
    hidden = {"messages": HELLO_MESSAGES, "max_tokens": 100, "thinking": {"type": "adaptive", "display": "omitted"}}
    client, script = Client(), [head(), *apart(*[THOUGHT] * 30), WORD, *LAST]
    async with listening(script, stream={"keepalive_seconds": 0.1}, **keep) as site:
        await client.read(site, "/v1/messages", **hidden)
    names = [line.removeprefix("event: ") for line in client.lines if line.startswith("event: ")]
    thinking = names[: names.index("content_block_stop")]
    others = [name for name in thinking if name != "ping"]
    assert others == ["message_start", "content_block_start", "content_block_delta"] and names[-1] == "message_stop"
    assert "ping" in thinking[1:-1] and thinking[0] == "message_start"


async def test_relay_sends_all_chunks_before_the_upstream_breaks_off():
    async with listening([head(), *apart(*[WORD] * 5), CLOSE]) as site:
        lines = await lines_of(site)
    assert text_of("\n\n".join(lines)) == " word" * 5
    assert json.loads(lines[-1][6:])["error"]["code"] == "upstream_lost"


async def test_relay_ends_an_open_call_when_too_much_waits_for_it():
    """Other calls wait for the open one up to the limit."""
    calls = [call("f", "{", id="call_1"), call("f", "{", place=1, id="call_2")]
    opened = [chunk(tool_calls=one) for one in calls]
    more = [chunk(tool_calls=call(arguments='"' + "a" * 300 + '": 1, ', place=1))] * 10
    limits = {"limits": {"frame_bytes": 1024}, "model": {"format": "native"}}
    async with listening([head(), *apart(*opened, *more, *LAST)], **limits) as site:
        tools = [{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}]
        lines = await lines_of(site, tools=tools)
    deltas = [json.loads(line[6:])["choices"] for line in lines if line.startswith("data: {")]
    called = [one for choices in deltas for choice in choices for one in choice["delta"].get("tool_calls", ())]
    arguments = ["".join(one["function"].get("arguments", "") for one in called if one["index"] == at) for at in (0, 1)]
    assert arguments[0] == "{" and len(arguments[1]) > 3000
    assert "invalid:tool_calls.function.arguments" in lines[-2] + lines[-1]


@pytest.mark.parametrize(
    ("path", "more"),
    [("/v1/chat/completions", {}), ("/v1/responses", {}), ("/v1/responses", {"responses": {"reasoning_memory": True}})],
    ids=["chat", "responses", "reasoning memory"],
)
async def test_relay_records_each_chunk_as_it_went(tmp_path, path, more):
    keep = {"recording": {"mode": "all", "directory": str(tmp_path), "content": True}}
    client = Client()
    async with listening([head(), *client.one_by_one(8), *LAST], **keep, **more) as site:
        await client.read(site, path)
    (found,) = recordings(tmp_path)
    reads = [entry.data for entry in found.entries if isinstance(entry, UpstreamDataEntry)]
    wrote = [entry for entry in found.entries if isinstance(entry, ResponseDataEntry)]
    assert reads[:8] == [WORD] * 8
    assert b"".join(reads[8:]) == b"".join(LAST[:2]) and reads[-1] == b""
    assert b"".join(entry.data for entry in wrote) == client.data
    words = [place for place, entry in enumerate(found.entries) if entry in wrote and b'" word"' in entry.data]
    assert len(words) == 8
    assert [found.entries[cause_of(found.entries, place)].data for place in words] == [WORD] * 8


async def test_client_that_reads_late_gets_the_whole_response():
    text = [f"{number} {'x' * 100_000} " for number in range(80)]
    async with listening([head(), *apart(*map(chunk, text), *LAST, pause=0.01)]) as site, asking(site) as sock:
        await idle(0.5)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 20)  # from now on it reads fast
        got = b""
        while not got.endswith(b"0\r\n\r\n"):
            got += await asyncio.get_running_loop().sock_recv(sock, 1 << 20)
    body = b"".join(got.partition(b"\r\n\r\n")[2].split(b"\r\n")[1::2]).decode()
    assert text_of(body) == "".join(text)


# One turn of the event loop


class CollectingOutlet:
    """An outlet that keeps what it gets; `open`: it takes chunks at once."""

    def __init__(self):
        self.open, self.at_once, self.pieces = True, [], []

    def try_write(self, piece):
        if self.open:
            self.at_once.append(piece)
        return self.open

    async def write(self, piece):
        self.pieces.append(piece)

    async def end(self, piece):
        """Keep the last piece."""
        self.pieces += [piece] * bool(piece)


class ScriptedCall:
    """An upstream call whose reader waits for data; `come` gives it a chunk."""

    over = False

    def __init__(self, *first):
        self.first = [*first]

    def ready(self, _, callback=None):
        self.callback, self.wait = callback, asyncio.get_running_loop().create_future()
        if self.first:
            self.wait.set_result(True)
        return self.wait

    def come(self, data):
        outcome = self.callback(data, perf_counter())
        if outcome is not HANDLED:
            self.wait.set_result(True)
            self.first += [data] * (outcome is DECLINED)

    def read(self):
        return self.first.pop(0)

    def report_outcome(self, _):
        pass

    def close(self):
        pass


class Attempts:
    def __init__(self, call, recorder=None):
        self.record, self._call = RequestRecord("req_1", "POST", "chat", lambda _: None, recorder=recorder), call

    def next_call(self):
        return self._call


async def turns():
    """Let the event loop run until nothing is left to do."""
    for _ in range(20):
        await asyncio.sleep(0)


@asynccontextmanager
async def pumping(call, outlet, recorder=None, settings=None, **options):
    """Yield an exchange that has begun and the task that waits for its next chunk."""
    turn = make_turn(format="native", recorder=recorder, **options)
    turn.start()
    turn.set_content_type("text/event-stream")

    async def kept(_):
        return True

    exchange = open_relay(turn, Attempts(call, recorder), settings or StreamSettings(), kept)
    await exchange.until_first_content()
    pump = asyncio.create_task(exchange.stream(outlet))
    await turns()
    outlet.at_once.clear()
    yield exchange, pump
    pump.cancel()


@pytest.mark.parametrize("recorded", [False, True], ids=["plain", "recorded"])
@pytest.mark.parametrize(("silence", "kept_alive"), [(1e-9, 2), (600, 0)], ids=["overdue", "not yet"])
async def test_relay_keeps_the_client_while_the_backend_sends_what_is_hidden(silence, kept_alive, recorded, recorder):
    call, outlet = ScriptedCall(*[THOUGHT] * 4), RecordedOutlet(recorder)
    settings = StreamSettings(keepalive_seconds=silence)
    async with pumping(call, outlet, recorder if recorded else None, settings, encoder=encoder_of(shown=False)):
        for _ in range(2):
            call.come(THOUGHT)
            await turns()
        assert outlet.at_once == [PING] * kept_alive
        call.come(WORD)
        await turns()
    assert b" word" in outlet.at_once[-1] and len(outlet.at_once) == kept_alive + 1


async def test_relay_begins_the_response_when_its_grace_ends_with_data_that_says_nothing():
    call, settings = ScriptedCall(chunk(role="assistant")), StreamSettings(grace_seconds=0)
    turn = make_turn(encoder=encoder_of())
    turn.start()
    turn.set_content_type("text/event-stream")
    first = await open_relay(turn, Attempts(call), settings, lambda _: None).until_first_content()
    assert first.startswith(b"event: message_start\n")


async def test_relay_leaves_a_problem_in_hidden_data_to_its_task():
    async with pumping(ScriptedCall(*[THOUGHT] * 4), CollectingOutlet(), encoder=encoder_of(shown=False)) as (relay, _):
        relay._pipeline.problem = Problem(502, "Lost.")
        assert relay._on_data(THOUGHT, 0.0) is WAKE


async def test_relay_leaves_chunks_to_its_task_when_the_client_is_full():
    call, outlet = ScriptedCall(*BEFORE), CollectingOutlet()
    async with pumping(call, outlet):
        call.come(WORD)
        assert len(outlet.at_once) == 1 and not outlet.pieces
        outlet.open = False
        call.come(chunk(" full"))
        assert not outlet.pieces
        await turns()
        assert len(outlet.at_once) == 1 and [b" full" in piece for piece in outlet.pieces] == [True]


async def test_relay_sends_held_chunks_before_the_final_error():
    call, outlet = ScriptedCall(*BEFORE), CollectingOutlet()
    async with pumping(call, outlet) as (exchange, pump):
        outlet.open = False
        call.come(chunk(" full"))
        pump.cancel()
        await asyncio.gather(pump, return_exceptions=True)
        assert not outlet.pieces
        await exchange.abort(STOPPED, outlet)
        (last,) = outlet.pieces
        assert 0 < last.index(b" full") < last.index(STOPPED.message.encode())


# With a recording


@pytest.fixture
def recorder():
    return RequestRecorder("req_1", 1 << 20, chosen=False)


class RecordedOutlet(CollectingOutlet):
    """An outlet whose pieces are recorded unless the relay does that."""

    def __init__(self, recorder):
        super().__init__()
        self.try_write_unrecorded, self._recording = super().try_write, recorder.recording

    def try_write(self, piece):
        self._recording.add(ResponseDataEntry(0.0, piece))
        return super().try_write(piece)


def sides(entries):
    return [type(entry) for entry in entries if isinstance(entry, UpstreamDataEntry | ResponseDataEntry)]


async def test_relay_keeps_lone_chunks_until_a_reader_asks(recorder):
    call, outlet = ScriptedCall(*BEFORE), RecordedOutlet(recorder)
    async with pumping(call, outlet, recorder):
        recorder.read_from(1)
        known = len(recorder.recording.entries)
        for _ in range(100):
            call.come(WORD)
        assert len(outlet.at_once) == 100 and 0 < len(recorder.recording.chunks) < LONGEST_RUN
        recorder.recording.settle()
        added = recorder.recording.entries[known:]
    assert sides(added) == [UpstreamDataEntry, ResponseDataEntry] * 100
    assert b"".join(entry.data for entry in added[1::2]) == b"".join(outlet.at_once)
    assert [json.loads(entry.events)[0]["text"] for entry in added[::2]] == [" word"] * 100
    assert {entry.call for entry in added[::2]} == {1}
    assert [entry.t for entry in added] == sorted(entry.t for entry in added)


async def test_relay_records_what_its_task_writes_once(recorder):
    call, outlet = ScriptedCall(*BEFORE), RecordedOutlet(recorder)
    async with pumping(call, outlet, recorder):
        known = len(recorder.recording.entries)
        outlet.open = False
        call.come(chunk(" full"))
        await turns()
        added = recorder.recording.entries[known:]
        assert [b" full" in piece for piece in outlet.pieces] == [True]
    assert [type(entry) for entry in added] == [UpstreamDataEntry, ResponseDataEntry]
    assert all(b" full" in entry.data for entry in added)


async def test_relay_leaves_data_of_another_form_to_its_task_and_source(recorder):
    call, outlet = ScriptedCall(*BEFORE), RecordedOutlet(recorder)
    async with pumping(call, outlet, recorder):
        known = len(recorder.recording.entries)
        call.come(chunk(finish="stop"))
        await turns()
        added = recorder.recording.entries[known:]
    assert b"".join(entry.data for entry in added if isinstance(entry, UpstreamDataEntry)) == chunk(finish="stop")
