"""Test the handler of SIGHUP: a reload while the terminal is open, one stop once it has closed."""

import os
import signal

from gateway.server.process.supervisor import HangupHandler


def test_hangup_without_a_terminal_reloads_each_time(monkeypatch):
    raised, reloads = [], []
    monkeypatch.setattr(signal, "raise_signal", raised.append)
    handle = HangupHandler(lambda: reloads.append(1), [])
    for _ in range(2):
        handle(signal.SIGHUP, None)
    assert (reloads, raised) == ([1, 1], [])


def test_hangup_of_a_closed_terminal_that_is_repeated_stops_once(monkeypatch, tmp_path):
    raised, reloads = [], []
    monkeypatch.setattr(signal, "raise_signal", raised.append)
    closed = os.open(tmp_path / "closed", os.O_CREAT)
    handle = HangupHandler(lambda: reloads.append(1), [closed])
    for _ in range(2):
        handle(signal.SIGHUP, None)
    os.close(closed)
    assert (reloads, raised) == ([], [signal.SIGTERM])
