"""Test `gateway launch`: which gateway and model it uses, and what it prints, writes and starts."""

import json
import os
import stat
import subprocess
import sys

import httpx
import pytest

from gateway.cli.client_file import LaunchError
from gateway.cli.launch import ClientRunner, LaunchOptions, launch
from gateway.launch import CLIENTS
from support.cli import run
from support.paths import ROOT

CODEX = {"id": "coder", "context_length": 65536, "capabilities": ["tools"]}
SMALL = {"id": "small", "context_length": 2048, "capabilities": []}


class Recorder(ClientRunner):
    """Record the commands instead of running them."""

    def __init__(self, status=0):
        self.status, self.ran, self.replaced = status, [], []

    def run(self, command, environment):
        self.ran.append((command, environment))
        return self.status

    def replace(self, command, environment):
        self.replaced.append((command, environment))


class Gateway:
    """A gateway that lists models, and the requests to it.  ready: the body of GET /ready; None: no response."""

    def __init__(self, *models, status=200, body=None, error=None, ready='{"backends": {"a": "ok"}}'):
        self.status, self.error, self.ready, self.requests = status, error, ready, []
        self.body = json.dumps({"data": models}).encode() if body is None else body

    def __call__(self, request):
        self.requests.append(request)
        if self.error:
            raise self.error
        if request.url.path == "/ready":
            if self.ready is None:
                raise httpx.ReadError("")
            return httpx.Response(503, content=self.ready)
        return httpx.Response(self.status, content=self.body)

    def launch(self, client="codex", environment=None, runner=None, **options):
        wanted = LaunchOptions(client=client, **options)
        launch(wanted, environment or {}, runner or Recorder(), httpx.MockTransport(self))


@pytest.fixture
def file(tmp_path):
    return tmp_path / "home" / "config.toml"


@pytest.fixture
def programs(tmp_path):
    """Return the PATH of a folder with the programs of all clients, and a folder for the file of Claude Code."""
    folder = tmp_path / "bin"
    folder.mkdir()
    for client in CLIENTS.values():
        for name in client.command[:1]:
            (folder / name).write_text('#!/bin/sh\necho "$ANTHROPIC_BASE_URL $ANTHROPIC_MODEL $*"\n')
            (folder / name).chmod(0o755)
    return {"PATH": str(folder), "CLAUDE_CONFIG_DIR": str(tmp_path)}


def refused(call, *arguments, **options):
    """Return the text and the exit code of a LaunchError."""
    with pytest.raises(LaunchError) as caught:
        call(*arguments, **options)
    return str(caught.value), caught.value.code


# The gateway and the model


@pytest.mark.parametrize("url", [None, "http://127.0.0.1:8900", "http://127.0.0.1:8900/", "http://127.0.0.1:8900/v1"])
def test_launch_prints_settings_with_a_model_of_the_gateway_that_fits(url, capsys):
    gateway = Gateway(SMALL, CODEX)
    gateway.launch(url=url)
    out, err = capsys.readouterr()
    assert out.startswith("# Codex at http://127.0.0.1:8900 with the model coder\n\n")
    assert 'base_url = "http://127.0.0.1:8900/v1"' in out and "env_key" not in out
    assert err == ""
    assert [str(one.url) for one in gateway.requests] == [
        "http://127.0.0.1:8900/v1/models",
        "http://127.0.0.1:8900/ready",
    ]
    assert "authorization" not in gateway.requests[0].headers


def test_launch_sends_the_key_and_never_prints_it(capsys):
    gateway = Gateway(CODEX)
    gateway.launch("claude", {"GATEWAY_KEY": "s3cret\n"})
    assert gateway.requests[0].headers["authorization"] == "Bearer s3cret"
    out, err = capsys.readouterr()
    assert 'export ANTHROPIC_AUTH_TOKEN="$GATEWAY_KEY"' in out
    assert "s3cret" not in out + err


def test_launch_warns_of_a_model_that_does_not_fit(capsys):
    Gateway(SMALL).launch()
    tools, window = capsys.readouterr().err.splitlines()
    assert tools == "warning: Codex needs a model that calls tools; the template of 'small' has no tools."
    assert window.startswith("warning: The window of 'small' has 2048 tokens.")


def test_launch_warns_of_a_model_that_is_not_listed(capsys):
    Gateway(CODEX, SMALL).launch(model="cdoer")
    out, err = capsys.readouterr()
    assert out.startswith("# Codex at http://127.0.0.1:8900 with the model cdoer\n")
    assert err == "warning: The gateway lists no model 'cdoer', but it may be an alias. It lists: coder, small.\n"


def test_launch_takes_the_wanted_model_if_the_gateway_lists_it(capsys):
    Gateway(CODEX, SMALL).launch("aider", model="small")
    out, err = capsys.readouterr()
    assert "aider --model openai/small " in out and err == ""


@pytest.mark.parametrize(
    ("ready", "chosen"),
    [
        ('{"backends": {"off": "unreachable", "on": "ok"}}', "second"),
        ('{"backends": {"off": "ok", "on": "ok"}}', "coder"),
        ('{"backends": {"other": "ok"}}', "coder"),  # the gateway has another configuration
        ('{"status": "draining"}', "coder"),
        ("<html>", "coder"),
        (None, "coder"),
    ],
)
def test_launch_prefers_models_with_a_reachable_backend(ready, chosen, tmp_path, capsys):
    config = tmp_path / "gateway.yaml"
    config.write_text(
        "backends: {off: {url: 'http://a'}, on: {url: 'http://b'}}\n"
        "models: {first: {backends: [off], aliases: [coder]}, second: {backends: ['off', 'on']}}\n"
    )
    gateway = Gateway(CODEX, CODEX | {"id": "first"}, SMALL | {"id": "second"}, ready=ready)
    gateway.launch("aider", config=config)
    out, err = capsys.readouterr()
    assert f"aider --model openai/{chosen} " in out and "reachable" not in err


def test_launch_warns_if_no_backend_of_the_model_is_reachable(capsys):
    Gateway(CODEX, ready='{"backends": {"a": "unreachable"}}').launch("aider")
    out, err = capsys.readouterr()
    assert "aider --model openai/coder " in out
    assert err == ("warning: No backend of 'coder' is reachable. GET http://127.0.0.1:8900/ready lists the backends.\n")


def refusal():
    """Return the error of httpx for a port at which nothing listens."""
    error = httpx.ConnectError("[Errno 111] Connection refused")
    error.__cause__ = ConnectionRefusedError(111, "Connection refused")
    return error


def test_launch_without_a_gateway_needs_the_name_of_a_model(capsys):
    down = Gateway(error=refusal())
    problem = (
        "No gateway responds at http://127.0.0.1:8900: connection refused; is it running? Start it: gateway serve."
    )
    assert refused(down.launch) == (f"{problem} Or name a model with --model.", 1)
    down.launch(model="m")
    out, err = capsys.readouterr()
    assert 'model = "m"' in out and err == f"warning: {problem}\n"


def test_launch_says_why_the_gateway_does_not_respond():
    text, _ = refused(Gateway(error=httpx.ReadError("")).launch)
    assert text.startswith("No gateway responds at http://127.0.0.1:8900: no valid HTTP response; is it a gateway? ")


def test_launch_needs_a_model_that_chats():
    embedder = {"id": "e", "capabilities": ["embeddings"]}
    text, code = refused(Gateway(embedder).launch)
    assert (text, code) == (
        "The gateway at http://127.0.0.1:8900 has no model that chats. Or name a model with --model.",
        1,
    )


@pytest.mark.parametrize("status", [401, 403])
def test_launch_asks_for_a_key_if_the_gateway_refuses_the_list(status, capsys):
    problem = f"The gateway at http://127.0.0.1:8900 does not list its models: HTTP {status}."
    advice = " Set GATEWAY_KEY to an API key that it accepts."
    assert refused(Gateway(status=status).launch) == (f"{problem}{advice} Or name a model with --model.", 1)
    Gateway(status=status).launch(model="m")
    out, err = capsys.readouterr()
    assert 'env_key = "GATEWAY_KEY"' in out and err == f"warning: {problem}{advice}\n"


def test_launch_says_that_a_server_without_a_list_may_be_no_gateway(capsys):
    Gateway(status=404).launch(url="http://127.0.0.1:8900/docs", model="m")
    assert capsys.readouterr().err == (
        "warning: The server at http://127.0.0.1:8900/docs may be no gateway: it has no /v1/models (HTTP 404). "
        "Give --url the root of a gateway.\n"
    )


def test_launch_reports_any_other_failure_of_the_list(capsys):
    Gateway(status=503).launch(model="m")
    out, err = capsys.readouterr()
    assert "env_key" not in out
    assert err == "warning: The gateway at http://127.0.0.1:8900 does not list its models: HTTP 503.\n"


@pytest.mark.parametrize(
    ("options", "environment", "gateway", "message"),
    [
        ({"client": "codx"}, {}, Gateway(), "Unknown client 'codx'; did you mean 'codex'?"),
        ({"client": "zzz"}, {}, Gateway(), "Unknown client 'zzz'; `gateway launch --list` lists all clients."),
        ({"url": "127.0.0.1:8900"}, {}, Gateway(error=httpx.UnsupportedProtocol("")),
         "'127.0.0.1:8900' is not the URL of a gateway, like http://127.0.0.1:8900."),
        ({"url": "http://a:b"}, {}, Gateway(), "'http://a:b' is not the URL of a gateway, like http://127.0.0.1:8900."),
        ({}, {"GATEWAY_KEY": "k"}, Gateway(error=httpx.LocalProtocolError("")),
         "The API key in GATEWAY_KEY contains control characters."),
        ({}, {}, Gateway(body=b"<html>"),
         "The server at http://127.0.0.1:8900 is no gateway: GET /v1/models returns no list of models."),
        ({"client": "curl", "write": True}, {}, Gateway(CODEX),
         "curl is no program: paste the code that `gateway launch curl` prints."),
        ({"client": "aider", "write": True}, {}, Gateway(CODEX),
         "aider takes its settings from variables and options: use --exec."),
    ],
)  # fmt: skip
def test_launch_refuses_wrong_options(options, environment, gateway, message):
    assert refused(gateway.launch, environment=environment, **options) == (message, 2)


def test_launch_takes_address_key_and_model_from_the_configuration(tmp_path, capsys):
    config = tmp_path / "gateway.yaml"
    config.write_text(
        "server: {host: 0.0.0.0, port: 7}\nauth: {keys: [s3cret-of-the-file]}\n"
        "backends: {a: {url: 'http://a'}}\nmodels: {first: , second: }\n"
    )
    down = Gateway(error=httpx.ConnectError("refused"))
    down.launch(config=config)
    out, _ = capsys.readouterr()
    assert out.startswith("# Codex at http://127.0.0.1:7 with the model first\n") and 'env_key = "GATEWAY_KEY"' in out
    assert "s3cret" not in out
    down.launch(config=config, url="https://gateway.lan", model="second")
    assert capsys.readouterr().out.startswith("# Codex at https://gateway.lan with the model second\n")
    Gateway(CODEX).launch(config=config)
    assert " with the model coder\n" in capsys.readouterr().out


# The file


def test_write_merges_into_the_file_shows_the_changes_and_keeps_a_copy(file, capsys):
    gateway = Gateway(CODEX)
    gateway.launch(file=file, write=True)
    out = capsys.readouterr().out
    assert out.startswith(f'--- /dev/null\n+++ {file}\n@@ -0,0 +1,8 @@\n+model = "coder"\n')
    assert out.endswith(f"Written to {file}.\nStart it:\n\ncodex\n")

    gateway.launch(file=file, write=True)
    assert capsys.readouterr().out == f"{file} has all entries already.\nStart it:\n\ncodex\n"
    assert [one.name for one in file.parent.iterdir()] == ["config.toml"]

    mine = f'# mine\napproval_policy = "never"\n{file.read_text()}'
    file.write_text(mine)
    file.chmod(0o600)
    for number, name in (("", "other"), ("2", "third")):
        before = file.read_text()
        gateway.launch(file=file, write=True, model=name)
        assert f"Written to {file}; {file}.bak{number} has the text before.\n" in capsys.readouterr().out
        assert file.with_name(f"config.toml.bak{number}").read_text() == before
        assert file.read_text() == before.replace(before.split('model = "')[1].partition('"')[0], name)
    assert {stat.S_IMODE(one.stat().st_mode) for one in file.parent.iterdir()} == {0o600}


@pytest.mark.parametrize(
    ("client", "environment", "place"),
    [
        ("codex", {}, ".codex/config.toml"),
        ("codex", {"CODEX_HOME": "{}/elsewhere"}, "elsewhere/config.toml"),
        ("codex", {"CODEX_HOME": ""}, ".codex/config.toml"),
        ("opencode", {"XDG_CONFIG_HOME": "{}/xdg"}, "xdg/opencode/opencode.json"),
        ("continue", {}, ".continue/config.yaml"),
    ],
)
def test_write_finds_the_usual_file_of_each_client(client, environment, place, tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    Gateway(CODEX).launch(client, {key: value.format(tmp_path) for key, value in environment.items()}, write=True)
    assert [str(one.relative_to(tmp_path)) for one in tmp_path.rglob("*") if one.is_file()] == [place]


def test_write_refuses_a_file_that_it_cannot_parse_and_shows_the_entries(tmp_path):
    file = tmp_path / "opencode.json"
    file.write_text('{"theme": "dark", // why\n}')
    text, code = refused(Gateway(CODEX).launch, "opencode", file=file, write=True)
    first, second, rest = text.split("\n", 2)
    assert first.startswith(f"{file} is not valid JSON: ")
    assert second == "It stays as it is. Add these entries by hand:"
    assert json.loads(rest)["model"] == "gateway/coder"
    assert code == 2 and file.read_text() == '{"theme": "dark", // why\n}'


def test_write_refuses_a_file_that_it_cannot_read_or_write(tmp_path):
    write = Gateway(CODEX).launch
    assert refused(write, file=tmp_path, write=True) == (f"{tmp_path} cannot be read: Is a directory.", 2)
    latin = tmp_path / "latin.toml"
    latin.write_bytes(b"# \xe4\n")
    assert refused(write, file=latin, write=True) == (f"{latin} is not UTF-8 at byte 2.", 2)
    below = latin / "config.toml"
    assert refused(write, file=below, write=True)[0].startswith(f"{below} cannot be ")


# The process


def test_exec_starts_the_client_with_variables_and_arguments(programs):
    recorder = Recorder()
    others = {"ANTHROPIC_API_KEY": "sk-ant", "CLAUDE_CODE_USE_BEDROCK": "1"}
    Gateway(CODEX).launch("claude", programs | others, recorder, start=True, arguments=("-p", "Hello!"))
    ((command, environment),) = recorder.replaced
    assert command == ["claude", "-p", "Hello!"]
    assert environment == programs | {
        "ANTHROPIC_BASE_URL": "http://127.0.0.1:8900",
        "ANTHROPIC_AUTH_TOKEN": "none",
        "ANTHROPIC_MODEL": "coder",
        "ANTHROPIC_SMALL_FAST_MODEL": "coder",
        "ANTHROPIC_DEFAULT_HAIKU_MODEL": "coder",
        "CLAUDE_CODE_MAX_CONTEXT_TOKENS": "65536",
    }


def test_exec_gives_the_key_to_the_client_alone(programs, capsys):
    recorder = Recorder()
    Gateway(CODEX).launch("claude", programs | {"GATEWAY_KEY": "s3cret"}, recorder, start=True)
    assert recorder.replaced[0][1]["ANTHROPIC_AUTH_TOKEN"] == "s3cret"
    assert capsys.readouterr() == ("", "")


def test_exec_needs_the_entries_in_the_file_or_writes_them(programs, file):
    recorder = Recorder()
    start = Gateway(CODEX).launch
    lacking = f"{file} lacks entries for http://127.0.0.1:8900 and 'coder': add --write."
    assert refused(start, "codex", programs, recorder, file=file, start=True) == (lacking, 2)
    start("codex", programs, recorder, file=file, start=True, write=True)
    start("codex", programs, recorder, file=file, start=True)
    assert recorder.replaced == [(["codex"], programs)] * 2


def test_exec_refuses_a_file_that_wins_over_the_variables(programs, tmp_path):
    file, recorder, start = tmp_path / "settings.json", Recorder(), Gateway(CODEX).launch
    file.write_text('{"env": {"ANTHROPIC_BASE_URL": "https://else", "ANTHROPIC_MODEL": "coder", "A": "b"}}')
    text = f"{file} sets ANTHROPIC_BASE_URL to other values, which Claude Code prefers: add --write, or remove them."
    assert refused(start, "claude", programs, recorder, start=True) == (text, 2)
    start("claude", programs, recorder, start=True, write=True)
    start("claude", programs, recorder, start=True)
    assert len(recorder.replaced) == 2
    text = text.replace("BASE_URL", "AUTH_TOKEN")
    assert refused(start, "claude", programs | {"GATEWAY_KEY": "k"}, recorder, start=True, write=True) == (text, 2)
    file.write_text('{"env": {"ANTHROPIC_API_KEY": "sk-ant", "CLAUDE_CODE_USE_VERTEX": ""}}')
    text = text.replace("AUTH_TOKEN", "API_KEY")
    assert refused(start, "claude", programs | {"GATEWAY_KEY": "k"}, recorder, start=True, write=True) == (text, 2)


@pytest.mark.parametrize("text", ['{"env": {"A": "b"}}', '{"env": null}', "[]", "{ // none\n}", ""])
def test_exec_starts_the_client_beside_a_file_without_its_variables(text, programs, tmp_path):
    (tmp_path / "settings.json").write_text(text)
    recorder = Recorder()
    Gateway(CODEX).launch("claude", programs, recorder, start=True)
    assert len(recorder.replaced) == 1


def test_exec_runs_the_setup_before(programs):
    recorder = Recorder()
    Gateway(CODEX).launch("cline", programs | {"GATEWAY_KEY": "k"}, recorder, start=True)
    ((setup, _),) = recorder.ran
    assert setup == ["cline", "auth", "-p", "openai", "-k", "k", "-m", "coder", "-b", "http://127.0.0.1:8900/v1"]
    assert [command for command, _ in recorder.replaced] == [["cline"]]
    failing = Recorder(3)
    text = "`cline auth` failed with status 3."
    assert refused(Gateway(CODEX).launch, "cline", programs, failing, start=True) == (text, 1)
    assert failing.replaced == []


def test_exec_needs_the_program_and_the_key(programs):
    absent = "Claude Code is not installed: the PATH has no program 'claude'."
    assert refused(Gateway(CODEX).launch, "claude", {"PATH": "/nowhere"}, start=True) == (absent, 1)
    keyless = "The gateway at http://127.0.0.1:8900 needs an API key: set GATEWAY_KEY."
    assert refused(Gateway(status=401).launch, "claude", programs, start=True, model="m") == (keyless, 2)


@pytest.mark.system  # the runner starts a process
def test_runner_runs_a_command_and_returns_its_status():
    assert ClientRunner().run([sys.executable, "-c", "raise SystemExit(3)"], {}) == 3


def test_runner_replaces_the_process(monkeypatch):
    calls = []
    monkeypatch.setattr(os, "execvpe", lambda *arguments: calls.append(arguments))
    ClientRunner().replace(["codex", "-h"], {"A": "b"})
    assert calls == [("codex", ["codex", "-h"], {"A": "b"})]


# The command


def test_launch_command_lists_all_clients():
    for words in ([], ["--list"], ["codex", "--list"]):
        code, out, err = run("launch", *words)
        assert (code, err) == (0, "")
        assert [line.split()[0] for line in out.splitlines()] == ["NAME", *CLIENTS]


def test_launch_command_reports_errors_with_their_code(tmp_path):
    assert run("launch", "codx") == (2, "", "Unknown client 'codx'; did you mean 'codex'?\n")
    code, _, err = run("launch", "codex", "--config", str(tmp_path / "no.yaml"))
    assert (code, err) == (2, f"{tmp_path / 'no.yaml'}: cannot be read: No such file or directory\n")


def test_launch_command_starts_the_client(programs):
    path = f"{programs['PATH']}:{os.environ['PATH']}"
    command = [
        sys.executable,
        "-m",
        "gateway",
        "launch",
        "claude",
        "--url",
        "http://127.0.0.1:9",
        "--model",
        "m",
        "--exec",
    ]
    done = subprocess.run(
        [*command, "--", "-p", "Hi there"],
        env=os.environ | {"PATH": path},
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == "http://127.0.0.1:9 m -p Hi there\n"
    assert done.stderr.startswith("warning: No gateway responds at http://127.0.0.1:9: ")
