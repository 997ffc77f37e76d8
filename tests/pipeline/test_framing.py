"""Bytes → payloads, however they are cut."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.framing import SSE, FrameTooLong, Lines, Whole
from support.pipeline import cut, singly
from support.sse_streams import CASES, LINES

streams = st.lists(
    st.sampled_from([b"data: a", b"data:b", b"\n", b"\r\n", b"\r", b": c", b"id: 1", b"\xef\xbb\xbf"])
).map(b"".join)


def framed(pieces, limit=1000, framing=SSE):
    frames = framing(limit)
    return [*(payload for piece in pieces for payload in frames.feed(piece)), *frames.close()]


@pytest.mark.parametrize(("stream", "payloads"), CASES)
def test_payloads_do_not_depend_on_the_cut(stream, payloads):
    assert framed([stream]) == payloads
    assert framed(singly(stream)) == payloads
    for i in range(len(stream)):
        assert framed([stream[:i], b"", stream[i:]]) == payloads


@given(stream=streams, data=st.data())
def test_any_cut_of_any_lines_gives_the_same_payloads(stream, data):
    assert framed([stream]) == framed(cut(data, stream)) == framed(singly(stream))


def test_an_event_may_be_as_long_as_the_limit_and_no_longer():
    assert framed([b"data: 4567890\n\n"], limit=13) == [b"4567890"]
    for pieces in ([b"data: 45678901\n\n"], singly(b"data: 45678901\n\n")):
        with pytest.raises(FrameTooLong, match="13 bytes"):
            framed(pieces, limit=13)


def test_the_limit_is_for_each_event():
    assert framed(singly(b"data: 45678\n\n") * 100, limit=13) == [b"45678"] * 100


def test_a_whole_body_is_one_payload():
    body = Whole(10)
    body.keep(b"01234")
    body.keep(b"56789")
    assert body.close() == b"0123456789"
    assert body.close() == b""


def test_a_whole_body_has_the_limit_too():
    for pieces in ([b"0123456789x"], singly(b"0123456789x")):
        body = Whole(10)
        with pytest.raises(FrameTooLong, match=r"^The backend sent a body of more than 10 bytes\.$"):
            for piece in pieces:
                body.keep(piece)


@pytest.mark.parametrize(("stream", "payloads"), LINES)
def test_lines_do_not_depend_on_the_cut(stream, payloads):
    assert framed([stream], framing=Lines) == framed(singly(stream), framing=Lines) == payloads
    for i in range(len(stream)):
        assert framed([stream[:i], b"", stream[i:]], framing=Lines) == payloads


@pytest.mark.parametrize(("framing", "what", "end"), [(SSE, "an event", b"\n\n"), (Lines, "a line", b"\n")])
def test_what_is_too_long_is_told_by_its_name(framing, what, end):
    for pieces in ([b"data: 45678901" + end], singly(b"data: 45678901" + end)):
        with pytest.raises(FrameTooLong, match=f"^The backend sent {what} of more than 13 bytes.$"):
            framed(pieces, limit=13, framing=framing)


def test_lines_are_each_as_long_as_the_limit():
    assert framed([b"123\n456\n", b"7", b"89\n"], limit=3, framing=Lines) == [b"123", b"456", b"789"]
