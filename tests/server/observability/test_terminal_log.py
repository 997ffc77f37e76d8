"""Test the log at a terminal: short lines, colors and request ids."""

import logging
import sys

import pytest

from gateway.config import LogSettings
from gateway.errors import Problem
from gateway.events import Usage
from gateway.server.observability import access_log, logs, terminal_log
from gateway.server.observability.logs import log_formatter
from gateway.server.observability.request_record import RequestRecord
from support.cli import Terminal

MODEL = {"model": "qwen", "backend": "laptop", "format": "hermes_json"}


def record(**fields):
    """Return the record of a request that took 1.5 seconds."""
    fields = {"status": 200, **fields}
    return RequestRecord("req_1", "POST", "/v1/chat/completions", lambda _: None, arrived=10.0, ended=11.5, **fields)


@pytest.fixture
def terminal(monkeypatch):
    """Return a function that makes standard error a terminal with colors; pytest replaces it before each test."""
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")

    def make() -> Terminal:
        made = Terminal()
        monkeypatch.setattr(sys, "stderr", made)
        return made

    yield make
    monkeypatch.undo()
    logs.apply_settings(LogSettings())


def test_request_line_has_what_a_person_looks_for():
    seen = record(**MODEL, streamed=True, usage=lambda: Usage(12, 34))
    seen.pace.first_content = 10.25
    for name in "ab":
        seen.ledger.add("repaired", name)
    seen.ledger.add("dropped", "c")
    assert terminal_log.request_line(seen, None, color=False) == (
        "200  qwen at laptop  hermes_json  12+34 tokens  first token 0.25 s  1.50 s  repaired 2, dropped 1  req_1"
    )


def test_request_line_of_a_failure_has_its_status_and_code():
    seen = record(problem=Problem(404, "no", "model_not_found"), status=404)
    assert terminal_log.request_line(seen, "model_not_found", color=False) == (
        "404  /v1/chat/completions  1.50 s  model_not_found  req_1"
    )


@pytest.mark.parametrize(("status", "color"), [(200, "32"), (404, "33"), (499, "33"), (503, "31")])
def test_request_line_shows_the_status_in_color(status, color):
    line = terminal_log.request_line(record(status=status), None, color=True)
    assert line.startswith(f"\x1b[{color}m{status}\x1b[0m  ") and line.endswith("\x1b[2mreq_1\x1b[0m")


def test_request_line_has_no_control_characters_of_others():
    line = terminal_log.request_line(record(**{**MODEL, "model": "m\x1b[2J\n"}), "\x1b]0;", color=False)
    assert line.isprintable()


@pytest.mark.parametrize(
    ("level", "color", "line"),
    [
        ("INFO", True, "11:05:18 it runs"),
        ("WARNING", False, "11:05:18 warning: it runs"),
        ("WARNING", True, "11:05:18 \x1b[33mwarning: \x1b[0mit runs"),
        ("ERROR", False, "11:05:18 error: it runs"),
    ],
)
def test_log_line_at_a_terminal_has_the_time_and_a_level_that_matters(level, color, line):
    assert terminal_log.log_line("11:05:18", level, "it runs", color=color) == line


@pytest.mark.parametrize(
    ("environ", "color"), [({}, True), ({"NO_COLOR": ""}, True), ({"NO_COLOR": "1"}, False), ({"TERM": "dumb"}, False)]
)
def test_log_colors_follow_the_terminal(environ, color, terminal):
    terminal()
    assert terminal_log.wants_color(environ) is color


def test_log_has_no_colors_in_a_file(capsys):
    assert not terminal_log.wants_color({})


@pytest.mark.parametrize(("chosen", "enabled"), [(None, True), (True, True), (False, False)])
def test_access_log_at_a_terminal_has_short_lines_unless_configured(chosen, enabled, terminal, caplog):
    terminal()
    logs.apply_settings(LogSettings(requests=chosen))
    assert logs.requests.isEnabledFor(logging.INFO) is enabled
    access_log.log_request(record(**MODEL, problem=Problem(400, "their words", "their_code")))
    lines = [log_formatter(LogSettings(requests=chosen)).format(one) for one in caplog.records]
    assert len(lines) == enabled and not any("their" in line for line in lines)
    assert all(("\x1b[33m400" in line) is (chosen is None) for line in lines)
    assert all(line.startswith("{") is bool(chosen) for line in lines)


def test_access_log_without_a_terminal_is_off_unless_configured():
    logs.apply_settings(LogSettings())
    assert not logs.requests.isEnabledFor(logging.INFO)


def test_log_format_is_short_at_a_terminal_only(terminal):
    log_record = logging.makeLogRecord(
        {"msg": "it is %s", "args": ("lost",), "levelname": "WARNING", "name": "gateway", "request_id": "req_1"}
    )
    assert log_formatter(LogSettings()).format(log_record).endswith(" WARNING gateway: request req_1: it is lost")
    terminal()
    time, _, text = log_formatter(LogSettings()).format(log_record).partition(" ")
    assert len(time) == len("11:05:18") and text == "\x1b[33mwarning: \x1b[0mrequest req_1: it is lost"
