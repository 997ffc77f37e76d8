"""Test the framing of upstream bytes: SSE events, NDJSON lines and whole bodies, under every cut."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.sse import SSE, FrameTooLong, NDJSONDecoder
from support.pipeline import cut, singly
from support.sse_streams import CASES, LINES

streams = st.lists(
    st.sampled_from([b"data: a", b"data:b", b"\n", b"\r\n", b"\r", b": c", b"id: 1", b"\xef\xbb\xbf"])
).map(b"".join)


def payloads_of(pieces, limit=1000, framing=SSE):
    frames = framing(limit)
    return [*(payload for piece in pieces for payload in frames.feed(piece)), *frames.close()]


@pytest.mark.parametrize(("stream", "payloads"), CASES)
def test_sse_payloads_are_the_same_under_every_cut(stream, payloads):
    assert payloads_of([stream]) == payloads
    assert payloads_of(singly(stream)) == payloads
    for i in range(len(stream)):
        assert payloads_of([stream[:i], b"", stream[i:]]) == payloads


@given(stream=streams, data=st.data())
def test_sse_payloads_of_arbitrary_lines_are_the_same_under_any_cut(stream, data):
    assert payloads_of([stream]) == payloads_of(cut(data, stream)) == payloads_of(singly(stream))


def test_sse_event_longer_than_the_limit_is_refused():
    assert payloads_of([b"data: 4567890\n\n"], limit=13) == [b"4567890"]
    for pieces in ([b"data: 45678901\n\n"], singly(b"data: 45678901\n\n")):
        with pytest.raises(FrameTooLong, match="13 bytes"):
            payloads_of(pieces, limit=13)


def test_sse_limit_applies_to_each_event():
    assert payloads_of(singly(b"data: 45678\n\n") * 100, limit=13) == [b"45678"] * 100


@pytest.mark.parametrize(("stream", "payloads"), LINES)
def test_ndjson_lines_are_the_same_under_every_cut(stream, payloads):
    assert (
        payloads_of([stream], framing=NDJSONDecoder) == payloads_of(singly(stream), framing=NDJSONDecoder) == payloads
    )
    for i in range(len(stream)):
        assert payloads_of([stream[:i], b"", stream[i:]], framing=NDJSONDecoder) == payloads


@pytest.mark.parametrize(("framing", "what", "end"), [(SSE, "an event", b"\n\n"), (NDJSONDecoder, "a line", b"\n")])
def test_frame_too_long_error_names_an_event_or_a_line(framing, what, end):
    for pieces in ([b"data: 45678901" + end], singly(b"data: 45678901" + end)):
        with pytest.raises(FrameTooLong, match=f"^The backend sent {what} larger than the limit of 13 bytes.$"):
            payloads_of(pieces, limit=13, framing=framing)


def test_ndjson_limit_applies_to_each_line():
    assert payloads_of([b"123\n456\n", b"7", b"89\n"], limit=3, framing=NDJSONDecoder) == [b"123", b"456", b"789"]
