"""Test the commands of `gateway`: output and exit codes."""

import io
import os
import runpy
import shlex
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest
import typer

from gateway import __version__, demo
from gateway.cli.errors import exit_on_error
from gateway.config import Config, ConfigError
from gateway.formats import FORMATS
from gateway.server.process.config_source import (
    ConfigSource,
    NoServerFound,
    resolve_config,
    startup_banner,
)
from gateway.server.process.listener import CannotListen
from support.cli import config_writer, model_server, run, status_of
from support.paths import ROOT
from support.ports import free_port
from support.wait import until_blocking


@pytest.fixture
def written(tmp_path):
    """Return a function that writes a configuration and returns its path."""
    return config_writer(tmp_path)


# Help


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--help"], "Commands:\n  serve       Serve, until Ctrl-C.\n  check       Check a configuration.\n"),
        (["serve", "--help"], "Without --config and ./gateway.yaml"),
        (["check", "-h"], "--config FILE"),
        (["formats", "-h"], "--names"),
        (["doctor", "-h"], "--key-env VAR"),
        (["health", "-h"], "The exit code is 1 if it is unhealthy or does not run."),
        (["key", "-h"], "Make a key for a client, and its digest for the configuration."),
    ],
)  # fmt: skip
def test_cli_help_describes_each_command(words, message):
    code, out, err = run(*words)
    assert (code, err) == (0, "")
    assert message in out


def test_cli_prints_its_version():
    assert run("--version") == (0, f"gateway {__version__}\n", "")


@pytest.mark.parametrize(
    "words", [[], ["sreve"], ["serve", "--prot", "1"], ["serve", "--port", "http"], ["check", "x"]]
)
def test_cli_wrong_usage_exits_with_2(words):
    assert run(*words)[0] == 2


def test_cli_runs_as_a_module(capsys):
    argv, sys.argv = sys.argv, ["gateway", "--version"]
    try:
        with pytest.raises(SystemExit) as caught:
            runpy.run_module("gateway", run_name="__main__")
    finally:
        sys.argv = argv
    assert caught.value.code == 0
    assert capsys.readouterr().out == f"gateway {__version__}\n"


def test_cli_imports_no_server_packages_at_first():
    script = "import sys; from gateway import cli; print(sorted({'httpx', 'fastapi', 'pydantic'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


# formats


def test_formats_command_lists_names_families_and_aliases():
    code, out, _ = run("formats")
    lines = out.splitlines()
    assert code == 0
    assert lines[0].split() == ["NAME", "FAMILIES", "ALIASES"]
    assert [line.split()[0] for line in lines[1:]] == list(FORMATS)
    hermes = next(line for line in lines if line.startswith("hermes_json "))
    assert FORMATS["hermes_json"].families in hermes
    assert hermes.endswith("  " + ", ".join(FORMATS["hermes_json"].aliases))


def test_formats_command_describes_a_format_by_any_of_its_names():
    for name in ("hermes_json", "hermes"):
        code, out, _ = run("formats", name)
        assert code == 0
        assert FORMATS["hermes_json"].example in out and "Also called hermes" in out
    assert "A call inside a thought is part of the thought." in run("formats", "lfm2")[1]
    assert "special tokens" in run("formats", "kimi_k2")[1]
    code, out, err = run("formats", "morse")
    assert (code, out) == (2, "") and "unknown format 'morse'" in err


def test_formats_command_page_equals_the_docs():
    code, out, _ = run("formats", "--markdown")
    assert code == 0
    assert out == (ROOT / "docs/reference/formats.md").read_text("utf-8"), "make regenerate"
    for name, row in FORMATS.items():
        assert f"\n## {name}\n" in out and row.example in out and row.differs in out


def test_formats_command_lists_bare_names():
    code, out, _ = run("formats", "--names")
    assert code == 0
    assert out.split() == list(FORMATS)
    assert {"native", "auto", "think"} <= set(out.split())


# What is served


@contextmanager
def settled(
    file: Path | None = None, ports: Mapping[int, str] | None = None, **more: object
) -> Iterator[tuple[Config, str, str]]:
    """Yield the config, the greeting, and the output before it."""
    out = io.StringIO()
    wanted = bool(more.pop("demo", False))
    with resolve_config(file and ConfigSource(file, more), more, out, demo_wanted=wanted, ports=ports or {}) as (
        config,
        hello,
    ):
        yield config, hello, out.getvalue()


def test_serve_prefers_a_config_file_to_found_backends(written):
    file = Path(written("backends: {a: {url: 'http://a'}}\nmodels: {one: , two: }\nauth: {keys: [k]}"))
    with (
        model_server('{"data": [{"id": "m"}]}') as port,
        settled(file, {port: "vllm"}, demo=True, port=7) as (config, hello, output),
    ):
        assert list(config.backends) == ["a"]
        assert config.server.port == 7
        assert '{"model": "one",' in hello
        assert "Bearer $GATEWAY_KEY" in hello
        assert output == ""


def test_greeting_without_models_shows_the_list_of_models(written):
    with settled(Path(written("server: {}"))) as (config, hello, _):
        assert config == Config()
        assert "curl http://127.0.0.1:8900/v1/models\n" in hello


def test_serve_uses_found_backends_that_have_a_model():
    with (
        model_server('{"data": [{"id": "m1", "owned_by": "vllm"}, {"id": "m2"}]}') as first,
        model_server('{"data": [{"id": "n1", "owned_by": "sglang"}]}') as second,
        model_server('{"data": []}') as third,
        settled(None, {first: "vllm", third: "lmstudio", second: "sglang"}, demo=True, port=7) as (
            config,
            hello,
            output,
        ),
    ):
        assert {name: one.url for name, one in config.backends.items()} == {
            "vllm": f"http://127.0.0.1:{first}",
            "sglang": f"http://127.0.0.1:{second}",
        }
        assert config.server.port == 7
        assert '"model": "m1"' in hello
        assert output == f"lmstudio at http://127.0.0.1:{third} has no model yet: the gateway does not use it\n"


def test_serve_says_why_it_does_not_use_a_backend_that_loads():
    with (
        model_server('{"data": [{"id": "m", "owned_by": "vllm"}]}') as first,
        model_server('{"error": {"code": 503, "message": "Loading model"}}', status=503) as second,
        settled(None, {first: "vllm", second: "llamacpp"}) as (config, _, output),
    ):
        assert [one.url for one in config.backends.values()] == [f"http://127.0.0.1:{first}"]
        assert output == (
            f"the gateway does not use the server at http://127.0.0.1:{second}: "
            "the server is loading or overloaded (HTTP 503)\n"
        )


async def test_serve_finds_backends_while_an_event_loop_runs():
    with model_server('{"data": [{"id": "m"}]}') as port, settled(None, {port: "vllm"}) as (config, _, _output):
        assert list(config.backends) == ["vllm"]


def test_serve_starts_the_demo_if_no_backend_runs():
    with settled(None, {free_port(): "vllm"}, demo=True, port=free_port()) as (config, hello, output):
        (backend,) = config.backends.values()
        assert backend.kind == "llamacpp"
        assert httpx.get(f"{backend.url}/health", trust_env=False).is_success
        assert '"model": "smollm2"' in hello
        assert "demo: ready in " in output


def test_serve_reports_a_taken_port_before_the_demo_loads_its_model(monkeypatch):
    monkeypatch.setattr(demo, "start_demo", None)
    with (
        socket.create_server(("127.0.0.1", 0)) as taken,
        pytest.raises(CannotListen, match="another program listens there"),
        settled(demo=True, port=taken.getsockname()[1]),
    ):
        pass


def test_serve_without_backend_and_demo_says_what_to_do():
    port = free_port()
    with pytest.raises(NoServerFound) as caught, settled(None, {port: "vllm"}):
        pass
    message = str(caught.value)
    assert message.startswith(
        f"no model server with a model was found on this machine (ports tried: vllm {port}); do one of these:\n"
    )
    assert "gateway serve --config gateway.yaml" in message
    assert message.endswith("gateway serve --demo")


def test_serve_refuses_a_wrong_flag_before_it_starts():
    with (
        pytest.raises(ConfigError, match=r"^--host: on 0\.0\.0\.0 other machines"),
        settled(demo=True, host="0.0.0.0"),
    ):
        pass


# The greeting


@pytest.mark.parametrize(
    ("host", "root"),
    [
        ("127.0.0.1", "http://127.0.0.1:8900"),
        ("0.0.0.0", "http://127.0.0.1:8900"),
        ("::", "http://[::1]:8900"),
        ("fe80::1", "http://[fe80::1]:8900"),
        ("gateway.lan", "http://gateway.lan:8900"),
    ],
)
def test_greeting_names_an_address_that_can_be_reached(host, root):
    text = startup_banner(host, 8900, "m")
    assert text.startswith(f"gateway listens on {root}/v1 ")
    quote = "'" if "[" in root else ""  # zsh takes brackets for a pattern
    assert f"curl {quote}{root}/v1/chat/completions{quote} -H" in text


def test_greeting_names_the_address_for_a_browser():
    assert "\nOpen https://[::1]:1/ in a browser" in startup_banner("::", 1, "m", scheme="https")
    last = startup_banner("127.0.0.1", 8900, "m", pages=False).splitlines()[-1]
    assert last.startswith("With `inspector: {enabled: true}`") and "http://127.0.0.1:8900/ shows" in last


@pytest.mark.parametrize(
    ("settings", "opens"),
    [
        ("server: {}", True),
        ("auth: {keys: [k]}\nserver: {host: 0.0.0.0}", True),
        ("auth: {open: true}\nserver: {host: 0.0.0.0}", False),
        ("auth: {open: true}\nserver: {host: 0.0.0.0}\ninspector: {enabled: true}", True),
    ],
)
def test_greeting_sends_a_browser_to_pages_that_it_may_see(written, settings, opens):
    with settled(Path(written(settings))) as (_, hello, _):
        assert ("\nOpen http://127.0.0.1:8900/ in a browser" in hello) is opens
        assert ("With `inspector: {enabled: true}`" in hello) is not opens


def test_greeting_command_can_be_pasted():
    text = startup_banner("127.0.0.1", 8900, 'it\'s "ö"', key=True)
    words = shlex.split(text[text.index("curl") : text.rindex("\n\n")].replace("\\\n", "").replace("$GATEWAY_KEY", "k"))
    assert words == [
        "curl",
        "http://127.0.0.1:8900/v1/chat/completions",
        "-H",
        "content-type: application/json",
        "-H",
        "authorization: Bearer k",
        "-d",
        '{"model": "it\'s \\"ö\\"", "messages": [{"role": "user", "content": "Hello!"}]}',
    ]


def test_greeting_is_empty_if_the_port_is_not_known_yet():
    with model_server('{"data": [{"id": "m"}]}') as port, settled(None, {port: "vllm"}, port=0) as (_, hello, _output):
        assert hello == ""


# serve


def interrupt_when_up(url: str, answers: list[int]) -> None:
    """Press Ctrl-C for this process as soon as the gateway answers."""
    try:
        answers.append(until_blocking(lambda: status_of(url), 200))
    finally:
        os.kill(os.getpid(), signal.SIGINT)


def test_serve_command_exits_with_0_on_ctrl_c(written):
    port = free_port()
    file = written("server: {port: 1}\nbackends: {a: {url: 'http://127.0.0.1:9'}}\nmodels: {m: }")
    answers: list[int] = []
    thread = threading.Thread(target=interrupt_when_up, args=(f"http://127.0.0.1:{port}/health", answers))
    thread.start()
    code, out, err = run("serve", "--config", file, "--port", str(port))
    thread.join()
    assert (code, out, answers) == (0, "", [200])
    assert f"gateway listens on http://127.0.0.1:{port}/v1" in err


def test_serve_command_refuses_a_wrong_configuration(written):
    code, _, err = run("serve", "-c", written("server: {port: 1}"), "--port", "70000", "--workers", "0")
    assert code == 2
    assert err.splitlines() == [
        "--port: should be 65535 or less, not 70000",
        "--workers: should be 1 or more, not 0",
    ]


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (NoServerFound("what to do"), 2),
        (demo.DemoNotInstalled("what to install"), 2),
        (demo.DemoError("what it said"), 1),
        (ConfigError([]), 2),
        (KeyboardInterrupt(), 0),
    ],
)
def test_cli_error_has_its_exit_code(error, code, capsys):
    with pytest.raises(typer.Exit) as caught, exit_on_error():
        raise error
    assert caught.value.exit_code == code
    assert capsys.readouterr().err == (f"{error}\n" if code else "")


def test_cli_interrupt_may_exit_with_1():
    with pytest.raises(typer.Exit) as caught, exit_on_error(interrupted=1):
        raise KeyboardInterrupt
    assert caught.value.exit_code == 1
