"""Test `gateway top`, the overview at a terminal."""

import io
import json
import os
import signal
import subprocess
import sys
import termios
from contextlib import closing, contextmanager
from pathlib import Path

import httpx
import pytest
from msgspec import json as msgspec_json
from msgspec import structs
from rich.console import Console

import gateway as gateway_package
from gateway.cli import top
from gateway.cli.top import (
    OverviewClient,
    OverviewUnavailable,
    keyboard,
    render_tables,
    show_once,
    strip_control_characters,
    watch,
)
from gateway.server.admin.overview_model import (
    BackendView,
    ModelBackendView,
    ModelView,
    Overview,
    ThroughputView,
    WorkersView,
)
from gateway.server.observability.snapshot import FailureInfo
from support.app import bearer, gateway
from support.cli import run
from support.overview import KEYS, PATH, seen
from support.pseudo_terminal import PseudoTerminal
from support.upstream import HELLO, whole

ROOT = "http://gateway:8900"
PACE = ThroughputView(1, 2.0, 30.0)
EVIL = "[red]\x1b]0;owned\x07\x1b[2J"
SERVER = BackendView("up", "vllm", "http://up", True, "closed", 0.0, 3, 4, PACE, 1, None, None)
SEEN = Overview(
    version="1.2.3",
    time=1000.0,
    window_seconds=10.0,
    workers=WorkersView(2, 1),
    pace=PACE,
    models=[
        ModelView("m", "listed", [], 4096, None, PACE, [ModelBackendView("up", "m", "hermes_json", "", False, "auto", "native")]),
        ModelView(EVIL, "listed", [], None, None, PACE, []),
    ],
    models_left_out=0,
    backends=[
        SERVER,
        structs.replace(SERVER, name="gone", state="unreachable", cause="It is gone.", concurrent=0),
        structs.replace(SERVER, name="ill", state="degraded", cause="2 attempts failed.",
                        last_failure=FailureInfo(990.0, 502, "upstream_lost", None)),
        structs.replace(SERVER, name="tried", state="resting"),
        structs.replace(SERVER, name="odd", last_failure=FailureInfo(990.0, 502, None, None)),
    ],
    errors=[seen(arrived=900.0, status=502, error="upstream_lost", id="broken"), seen(status=500, model="", backend="")],
    requests=[
        seen(arrived=999.0, live=True, status=None, id="alive", first_content=0.25, duration=1.0),
        seen(arrived=990.0, id="done", format="native", first_content=None),
    ],
)  # fmt: skip


@contextmanager
def answering(*answers):
    """Yield an OverviewClient that gets these responses, the last one for ever; requests: its requests."""
    requests, left = [], [*answers]

    def answer(request):
        requests.append(request)
        response = left.pop(0) if len(left) > 1 else left[0]
        if isinstance(response, Exception):
            raise response
        return response

    with closing(OverviewClient(ROOT, "secret", httpx.MockTransport(answer))) as one:
        one.requests = requests
        yield one


def well(seen=SEEN):
    return httpx.Response(200, content=msgspec_json.encode(seen))


def screen(**options):
    return Console(file=io.StringIO(), width=140, height=60, **options)


def text_of(console):
    return console.file.getvalue()


# What is shown


def test_top_shows_everything_once():
    console = screen()
    with answering(well()) as one:
        show_once(one, console)
    (request,) = one.requests
    assert (str(request.url), request.headers["authorization"]) == (ROOT + PATH, "Bearer secret")
    text = text_of(console)
    for line in (
        "gateway 1.2.3 at http://gateway:8900", "1 running, 2.0 requests/s, 30 tokens/s", "1 of 4", "unreachable: It is", "gone.",
        "degraded: 2", "healthy", "resting", "502 upstream_lost 10 s ago", "up: hermes_json", "4096", "broken", "alive", "running", "native", "0.25 s",
        "Last requests of some workers", "Last errors", "1.00 s ago",
    ):  # fmt: skip
        assert line in text, line
    assert "\x1b" not in text


def test_top_says_nothing_of_workers_if_all_are_counted():
    console = screen()
    console.print(render_tables(structs.replace(SEEN, workers=WorkersView(2, 2)), ROOT, "\x07late"))
    assert "some workers" not in text_of(console) and "late" in text_of(console)


def test_top_escapes_terminal_codes():
    console = screen(force_terminal=True, color_system=None)
    with answering(well()) as one:
        show_once(one, console)
    assert "\x07" not in text_of(console) and "\x1b" not in text_of(console)
    assert "[red]" in text_of(console)
    assert strip_control_characters("a\x1b\u202e\nb") == "a\ufffd\ufffd\ufffdb"


# As long as somebody looks


def test_top_refreshes_until_q_is_pressed():
    pressed = ["", "x", "q"]
    console = screen(force_terminal=True)
    later = structs.replace(SEEN, version="4.5.6")
    with answering(well(), well(later)) as one:
        watch(one, console, lambda seconds: pressed.pop(0) if seconds == 7.0 else "?", 7.0)
    assert len(one.requests) == 3 and pressed == []
    assert "1.2.3" in text_of(console) and "4.5.6" in text_of(console)


def test_top_waits_for_a_gateway_that_is_away():
    pressed = ["", "", "Q"]
    console = screen(force_terminal=True)
    with answering(well(), httpx.ConnectError("away"), well()) as one:
        watch(one, console, lambda _: pressed.pop(0), 0)
    assert "No gateway responds at http://gateway:8900: no valid HTTP response; is it a gateway?" in text_of(console)
    assert len(one.requests) == 3


@pytest.mark.parametrize(
    ("answer", "text", "mine"),
    [
        (httpx.Response(401), "requires an API key with the scope admin (--key or GATEWAY_KEY): HTTP 401", True),
        (httpx.Response(403), "HTTP 403", True),
        (httpx.Response(404), "not a gateway with an overview: HTTP 404", False),
        (httpx.Response(200, text="<html>"), "not a gateway with an overview: HTTP 200", False),
        (
            httpx.ConnectError("refused"),
            "No gateway responds at http://gateway:8900: no valid HTTP response; is it a gateway?",
            False,
        ),
        (httpx.ReadTimeout(""), "No gateway responds at http://gateway:8900 within 10 s.", False),
        (httpx.LocalProtocolError("Illegal header value b'secret'"), "control characters", True),
        (httpx.UnsupportedProtocol(""), "is not the URL of a gateway", True),
    ],
)
def test_top_reports_why_it_cannot_show_a_gateway(answer, text, mine):
    with answering(answer) as one, pytest.raises(OverviewUnavailable) as refused:
        watch(one, screen(), lambda _: "q", 0)
    assert text in str(refused.value) and "secret" not in str(refused.value)
    assert refused.value.mine is mine


# The command


def run_top(*words):
    """Run the command; return exit code, standard output and standard error."""
    return run("top", *words, GATEWAY_KEY=None, GATEWAY_URL=None)


@pytest.mark.edge  # the command connects by itself
def test_top_command_exits_with_1_if_no_gateway_answers():
    code, out, err = run_top("--url", "http://127.0.0.1:1")
    assert (code, out) == (1, "") and err.startswith("No gateway responds at http://127.0.0.1:1: ")


@pytest.mark.parametrize("url", ["nothing", "http://host:port", "ftp://127.0.0.1"])
def test_top_command_refuses_an_invalid_url(url):
    code, _, err = run_top("--url", url)
    assert code == 2 and "is not the URL of a gateway" in err


@pytest.mark.edge  # the command connects by itself
@pytest.mark.parametrize("key", ["a\nb", "ü"])
def test_top_command_reports_an_invalid_key_without_showing_it(key):
    code, _, err = run_top("--url", "http://127.0.0.1:1", "--key", key)
    assert code in (1, 2) and key not in err


def test_top_command_exits_with_0_on_ctrl_c(monkeypatch):
    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(top, "show_once", interrupted)
    assert run_top("--once") == (0, "", "")


async def test_top_shows_a_real_gateway():
    async with gateway(HELLO, whole("no", 500), auth={"keys": KEYS}) as site:
        await site.chat(headers=bearer("ann-key"))
        answer = await site.client.get(PATH, headers=bearer("eve-key"))
    console = screen()
    with answering(httpx.Response(200, content=answer.content)) as one:
        show_once(one, console)
    assert json.loads(answer.content)["requests"][0]["id"] in text_of(console)


# A real terminal


@contextmanager
def served(tmp_path):
    """Yield the URL of a process that answers with the overview."""
    file = tmp_path / "seen.json"
    file.write_bytes(msgspec_json.encode(SEEN))
    program = (
        "import http.server, sys\n"
        "class Answer(http.server.BaseHTTPRequestHandler):\n"
        "    def do_GET(self):\n"
        "        self.send_response(200); self.end_headers(); self.wfile.write(open(sys.argv[1], 'rb').read())\n"
        "server = http.server.HTTPServer(('127.0.0.1', 0), Answer)\n"
        "print(server.server_port, flush=True); server.serve_forever()\n"
    )
    command = [sys.executable, "-c", program, str(file)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as server:
        try:
            yield f"http://127.0.0.1:{int(server.stdout.readline())}"
        finally:
            server.terminate()


@contextmanager
def looking(tmp_path, *flags):
    env = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "LINES")}
    env |= {"PYTHONPATH": str(Path(gateway_package.__file__).parents[1]), "TERM": "xterm"}
    with served(tmp_path) as url, closing(PseudoTerminal()) as terminal:
        command = [sys.executable, "-m", "gateway", "top", "--url", url, "--seconds", "60", *flags]
        ends = dict.fromkeys(("stdin", "stdout", "stderr"), terminal.theirs)
        with subprocess.Popen(command, **ends, env=env, start_new_session=True) as child:
            try:
                yield child, terminal
            finally:
                child.kill()


@pytest.mark.parametrize("end", ["q", "interrupt"])
def test_top_on_a_terminal_restores_it_at_the_end(tmp_path, end):
    with looking(tmp_path) as (child, terminal):
        before = termios.tcgetattr(terminal.theirs)
        terminal.read_until(b"alive")
        assert b"\x1b[?1049h" in terminal.output, "on a screen of its own"
        if end == "q":
            terminal.press(b"q")
        else:
            child.send_signal(signal.SIGINT)
        terminal.read_until(b"\x1b[?1049l")
        assert child.wait(30) == 0
        assert termios.tcgetattr(terminal.theirs) == before


def test_top_once_on_a_terminal_keeps_the_screen(tmp_path):
    with looking(tmp_path, "--once") as (child, terminal):
        terminal.read_until(b"done")
        assert child.wait(30) == 0
        assert b"\x1b[?1049h" not in terminal.output


# Keys


def test_top_keyboard_returns_pressed_keys(monkeypatch):
    with closing(PseudoTerminal()) as terminal, os.fdopen(os.dup(terminal.theirs)) as theirs:
        monkeypatch.setattr(sys, "stdin", theirs)
        with keyboard() as press:
            assert press(0) == ""
            terminal.press(b"q")
            assert press(10) == "q"


def test_top_keyboard_ends_if_the_terminal_is_gone():
    reading, writing = os.pipe()
    os.close(writing)
    with os.fdopen(reading) as end:
        assert top._pressed(end.fileno(), 10) == "q"


def test_top_keyboard_without_a_terminal_returns_nothing(monkeypatch):
    monkeypatch.setattr(sys, "stdin", io.StringIO())
    with keyboard() as press:
        assert press(0) == ""
