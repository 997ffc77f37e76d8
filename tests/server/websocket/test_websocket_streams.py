"""Test the lanes of a WebSocket: which requests run at once, and which wait."""

from hypothesis import given
from hypothesis import strategies as st

from gateway.errors import Problem
from gateway.server.websocket.connection import MAX_NAMED, MAX_RUNNING, MAX_WAITING, StreamScheduler
from gateway.server.websocket.messages import CreateMessage, InvalidMessage

LIMIT = 1000


def create(lane=None, size=1):
    return CreateMessage(lane, b"x" * size)


def lanes(*entries):
    made = StreamScheduler(LIMIT)
    for entry in entries:
        assert made.add(entry) is None
    return made


def test_websocket_lane_runs_one_request_at_a_time():
    first, second, third = (create(size=size) for size in (1, 2, 3))
    made = lanes(first, second, third)
    assert made.begun() == [first] and made.begun() == []
    made.over(None)
    assert made.begun() == [second]
    made.over(None)
    assert made.begun() == [third]


def test_websocket_lanes_run_concurrently():
    entries = [create(), create("a"), create("a"), create("b"), InvalidMessage("b", Problem(400, "No."))]
    made = lanes(*entries)
    assert made.begun() == [entries[0], entries[1], entries[3]]
    made.over("a")
    assert made.begun() == [entries[2]]
    made.over("b")
    assert made.begun() == [entries[4]]


def test_websocket_lanes_limit_running_requests():
    entries = [create(str(n)) for n in range(MAX_RUNNING + 2)]
    made = lanes(*entries)
    assert made.begun() == entries[:MAX_RUNNING]
    made.over("3")
    assert made.begun() == [entries[MAX_RUNNING]]
    made.over("no such lane")
    assert made.begun() == []


def test_websocket_lanes_limit_lane_names():
    made = lanes(create(), *(create(str(n)) for n in range(MAX_NAMED)))
    for n in range(MAX_NAMED):
        made.begun()
        made.over(str(n))
    problem = made.add(create("another"))
    assert (problem.status, problem.code, problem.param) == (400, "websocket_stream_limit_reached", "stream_id")
    assert made.add(create("0")) is None and made.add(create()) is None


def test_websocket_lanes_limit_waiting_requests():
    made = lanes(create())
    made.begun()
    for _ in range(MAX_WAITING):
        assert made.add(create()) is None
    problem = made.add(create())
    assert (problem.status, problem.type, problem.code) == (429, "rate_limit_error", "rate_limit_exceeded")
    assert made.add(create("a")) is None, "it does not have to wait"
    assert len(made.begun()) == 1
    assert made.add(create("b")) is None


def test_websocket_lane_name_is_not_taken_by_a_refused_request():
    made = lanes(create("a"))
    made.begun()
    for _ in range(MAX_WAITING):
        assert made.add(create("a")) is None
    for n in range(MAX_RUNNING - 1):
        assert made.add(create(f"r{n}")) is None and made.begun()
    for n in range(MAX_NAMED):
        assert made.add(create(f"w{n}")).status == 429


def test_websocket_lanes_limit_waiting_bytes():
    made = lanes(create(size=5 * LIMIT))
    made.begun()
    assert made.add(create(size=LIMIT)) is None
    assert made.add(create(size=1)).status == 429
    assert made.add(InvalidMessage(None, Problem(400, "No."))) is None
    made.over(None)
    made.begun()
    assert made.add(create(size=LIMIT)) is None


def test_websocket_lanes_begin_no_request_after_clear():
    made = lanes(create(), create(), create("a"))
    made.begun()
    made.clear()
    made.over(None)
    assert made.begun() == []


@given(st.data())
def test_websocket_lanes_begin_every_request_in_the_order_of_its_lane(data):
    made, waiting, running, numbers = StreamScheduler(10**9), [], set(), iter(range(10**6))
    for lane in data.draw(st.lists(st.sampled_from([None, *map(str, range(20))]), max_size=60)):
        entry = CreateMessage(lane, b"", str(next(numbers)))
        assert made.add(entry) is None
        waiting.append(entry)
        if data.draw(st.booleans()):
            _begin(made, waiting, running)
        if running and data.draw(st.booleans()):
            ended = data.draw(st.sampled_from(sorted(running, key=str)))
            running.discard(ended)
            made.over(ended)
    while waiting:
        _begin(made, waiting, running)
        for lane in sorted(running, key=str):
            made.over(lane)
        running.clear()


def _begin(made, waiting, running):
    """Begin every request that may run, and check its order and the limit."""
    for entry in made.begun():
        assert entry == next(one for one in waiting if one.stream_id == entry.stream_id), "the first of its lane"
        assert entry.stream_id not in running
        waiting.remove(entry)
        running.add(entry.stream_id)
    assert len(running) <= MAX_RUNNING
    free = [one for one in waiting if one.stream_id not in running]
    assert not free or len(running) == MAX_RUNNING, "nothing waits for nothing"
