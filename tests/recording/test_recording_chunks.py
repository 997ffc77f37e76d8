"""Test that chunks become entries on demand, within the limit, and never twice."""

import json

import pytest

from gateway.events import TextDelta, ToolCallStart
from gateway.recording import EndEntry, Recording, RequestEntry, ResponseDataEntry, UpstreamDataEntry, summarize
from gateway.recording.chunk_run import ChunkRun
from gateway.recording.entries import ENTRY
from gateway.recording.recording import LONGEST_RUN

REQUEST = RequestEntry(0.0, "/v1/chat/completions", b"{}")


def recording(most=1 << 20, *, deferred=True):
    made = Recording("1", "2026-11-22T10:00:00.000+00:00", most, begun=10.0, deferred=deferred)
    made.add(REQUEST, 2)
    made.call = 1
    return made


def chunk(made, time, data, events, written):
    if written:
        made.chunks += 10.0 + time, data, events, written
    else:
        made.keep_unseen(10.0 + time, data, events)


def texts(*words):
    return tuple(TextDelta(0, word) for word in words)


def filled(most=1 << 20, *, deferred=True):
    made = recording(most, deferred=deferred)
    chunk(made, 0.5, b"one", texts("a"), b"A")
    chunk(made, 1.0, b"two", (), b"")
    chunk(made, 1.5, b"three", texts("b", "c"), b"BC")
    made.settle()
    return made


def plain(entries):
    return [
        ("wrote", entry.t, entry.data)
        if isinstance(entry, ResponseDataEntry)
        else ("read", entry.t, entry.data, [one["text"] for one in json.loads(entry.events or b"[]")])
        for entry in entries
        if isinstance(entry, ResponseDataEntry | UpstreamDataEntry)
    ]


WHOLE = [
    ("read", 0.5, b"one", ["a"]),
    ("wrote", 0.5, b"A"),
    ("read", 1.0, b"two", []),
    ("read", 1.5, b"three", ["b", "c"]),
    ("wrote", 1.5, b"BC"),
]


@pytest.mark.parametrize("deferred", [True, False])
def test_chunks_have_the_same_entries_deferred_or_not(deferred):
    made = filled(deferred=deferred)
    assert [isinstance(part, ChunkRun) for part in made.parts[1:]] == ([True] if deferred else [False] * 5)
    assert (made.count, made.size, made.last.t) == (6, 2 + len(b"onetwothreeABC") + 6 * ENTRY, 1.5)
    assert plain(made.entries) == WHOLE and made.entries[0] is REQUEST
    assert {entry.call for entry in made.entries if isinstance(entry, UpstreamDataEntry)} == {1}


@pytest.mark.parametrize("deferred", [True, False])
def test_chunks_beyond_the_limit_are_left_out(deferred):
    most = 2 + len(b"oneA") + 3 * ENTRY
    made = filled(most, deferred=deferred)
    assert plain(made.entries) == WHOLE[:2] and made.cut and made.count == 3
    chunk(made, 2.0, b"four", (), b"")
    made.settle()
    assert made.count == 3 and made.size == 2 + len(b"onetwothreeABCfour") + 7 * ENTRY


def test_chunks_without_output_are_counted_in_short_runs():
    made = recording()
    for n in range(LONGEST_RUN):
        chunk(made, float(n), b"x", (), b"")
        assert len(made.chunks) < LONGEST_RUN
    assert made.count > LONGEST_RUN - LONGEST_RUN // 4


def test_entries_keep_their_place_while_chunks_come():
    made = filled()
    before = [*made.entries]
    chunk(made, 2.0, b"four", texts("d"), b"D")
    assert made.entries == before, "the chunk is not counted yet"
    made.add(ResponseDataEntry(2.5, b"E"), 1)
    assert made.entries[: len(before)] == before
    assert plain(made.entries[len(before) :]) == [
        ("read", 2.0, b"four", ["d"]),
        ("wrote", 2.0, b"D"),
        ("wrote", 2.5, b"E"),
    ]


def test_end_follows_all_chunks():
    made = recording()
    chunk(made, 0.5, b"one", (), b"A")
    made.end(EndEntry(1.0, 200, cut=False))
    assert [type(entry) for entry in made.entries] == [RequestEntry, UpstreamDataEntry, ResponseDataEntry, EndEntry]
    assert made.over and made.last is made.entries[-1]


def test_summary_finds_tool_calls_among_chunks_without_their_entries():
    made = filled()
    chunk(made, 2.0, b"call", (ToolCallStart(0, 0, "call_1", "get_weather"), *texts("x")), b"C")
    made.end(EndEntry(3.0, 200, cut=False))
    found = summarize(made, ())
    assert (found.tools_called, found.entries, found.duration) == (["get_weather"], 9, 3.0)
    assert [type(part) for part in made.parts] == [RequestEntry, ChunkRun, ChunkRun, EndEntry]


def test_recording_without_entries_has_no_last_one():
    assert Recording("1", "", 1).last is None
