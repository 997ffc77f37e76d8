"""Test the transport of WebSockets: frames of one turn of the loop are one write."""

from types import SimpleNamespace
from unittest.mock import Mock

import pytest

from gateway.server.http.coalescing_transport import CoalescingTransport
from gateway.server.http.server_config import FrameTransport


@pytest.fixture
def wire():
    """Return a transport that records its calls."""
    return Mock(is_closing=Mock(return_value=False), get_write_buffer_size=Mock(return_value=0))


def turns():
    """Return a loop that collects callbacks for the end of the turn."""
    callbacks = []
    return SimpleNamespace(call_soon=callbacks.append, callbacks=callbacks)


def test_coalescing_joins_the_frames_of_one_turn(wire):
    loop = turns()
    transport = FrameTransport(wire, loop)
    for frame in (b"a", b"b", b"c"):
        transport.write(frame)
    assert not wire.write.called and transport.get_write_buffer_size() == 3
    (end,) = loop.callbacks
    end()
    transport.write(b"d")
    loop.callbacks[1]()
    assert [call.args[0] for call in wire.write.call_args_list] == [b"abc", b"d"]


def test_coalescing_delays_no_more_than_a_batch(wire):
    loop = turns()
    transport = FrameTransport(wire, loop)
    for _ in range(5):
        transport.write(b"x" * 4096)
    wire.write.assert_called_once_with(b"x" * 5 * 4096)
    loop.callbacks[0]()
    assert wire.write.call_count == 1


def test_coalescing_writes_delayed_frames_before_the_close(wire):
    transport = FrameTransport(wire, turns())
    transport.write(b"a")
    transport.close()
    assert [call[0] for call in wire.method_calls] == ["is_closing", "write", "close"]


def test_coalescing_drops_frames_of_a_lost_connection(wire):
    loop = turns()
    transport = FrameTransport(wire, loop)
    transport.write(b"a")
    wire.is_closing.return_value = True
    loop.callbacks[0]()
    assert not wire.write.called


def test_coalescing_passes_pauses_on(wire):
    transport = FrameTransport(wire, turns())
    transport.pause_reading()
    transport.resume_reading()
    assert [call[0] for call in wire.method_calls] == ["pause_reading", "resume_reading"]


HEAD = b"HTTP/1.1 200 OK\r\n\r\n"


def test_coalescing_joins_the_headers_with_the_first_data(wire):
    transport = CoalescingTransport(wire, turns())
    transport.write(HEAD)
    transport.write(b"x" * (1 << 14))
    wire.write.assert_called_once_with(HEAD + b"x" * (1 << 14))


@pytest.mark.parametrize("delayed", [True, False])
def test_coalescing_copies_no_large_data(wire, delayed):
    transport, large = CoalescingTransport(wire, turns()), b"x" * ((1 << 14) + 1)
    if delayed:
        transport.write(HEAD)
        transport.write(large)
    else:
        transport.write_parts(HEAD, large)
    wire.writelines.assert_called_once_with((HEAD, large))
    assert transport.flush() is wire and not wire.write.called


def test_coalescing_drops_large_data_of_a_lost_connection(wire):
    transport = CoalescingTransport(wire, turns())
    transport.write(HEAD)
    wire.is_closing.return_value = True
    transport.write_parts(b"x")
    assert transport.get_write_buffer_size() == 0 and not wire.writelines.called
