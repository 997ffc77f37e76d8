"""Test `gateway check`: a summary, the whole configuration, errors and a probe."""

import json
from datetime import UTC, datetime

import pytest

from gateway import installation
from gateway.config import parse
from gateway.server.process.config_source import read_config
from support.cli import config_writer, model_server, run
from support.paths import ROOT
from support.ports import free_port
from support.tls import issue


@pytest.fixture
def written(tmp_path):
    """Return a function that writes a configuration and returns its path."""
    return config_writer(tmp_path)


def test_check_command_prints_the_effective_config(written):
    file = written("backends: {a: {url: 'http://a/v1', api_key: '${KEY}'}}")
    code, out, err = run("check", "--verbose", "--config", file, KEY="s3cret")
    assert (code, err) == (0, "")
    assert "s3cret" not in out
    assert parse(out, "out", {}, {"auto"}).backends["a"].url == "http://a"


def test_check_command_takes_the_file_from_the_environment():
    assert run("check", GATEWAY_CONFIG=str(ROOT / "config" / "gateway.yaml"))[0] == 0


def test_check_command_prints_the_schema_of_configurations():
    code, out, _ = run("check", "--schema")
    assert code == 0 and out == (ROOT / "gateway/config/gateway.schema.json").read_text("utf-8")
    assert json.loads(out)["properties"]["server"]["properties"]["port"]["default"] == 8900


def test_check_command_needs_a_file(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    code, out, err = run("check")
    assert (code, out) == (2, "")
    assert "use --config FILE or set GATEWAY_CONFIG." in err


def test_check_command_reports_each_fault_on_a_line(written):
    file = written(
        """
        server: {prot: 1}
        models: {a: {format: hermesjson}}
        """
    )
    code, out, err = run("check", "-c", file)
    assert (code, out) == (2, "")
    first, second, third = err.splitlines()
    assert first.startswith(f"{file}:2: server.prot: unknown key; did you mean 'port'?")
    assert second == f"{file}:3: models.a: names no backend; add a backend to backends first"
    assert third.startswith(f"{file}:3: models.a.format: unknown format 'hermesjson'; did you mean 'hermes_json'?")


def test_check_command_reports_an_unreadable_file(tmp_path):
    assert run("check", "-c", str(tmp_path)) == (2, "", f"{tmp_path}: cannot be read: Is a directory\n")
    assert run("check", "-c", "no.yaml") == (2, "", "no.yaml: cannot be read: No such file or directory\n")
    file = tmp_path / "latin.yaml"
    file.write_bytes(b"# \xe4\n")
    assert run("check", "-c", str(file)) == (2, "", f"{file}: is not UTF-8 at byte 2\n")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("server: {port: 8901}", "ok: 0 backends, 0 models"),
        ("backends: {a: {url: 'http://a'}}", "ok: 1 backend, all listed models"),
        (
            "backends: {a: {url: 'http://a'}, b: {url: 'http://b'}}\nmodels: {m: {backends: [a]}}",
            "ok: 2 backends, 1 model",
        ),
    ],
)
def test_check_command_counts_backends_and_models(text, message, written):
    assert run("check", "--config", written(text)) == (0, f"{message}\n", "")


def test_check_command_uses_the_file_of_the_directory(written, tmp_path, monkeypatch):
    written("models: {m: }\nbackends: {a: {url: 'http://a'}}")
    monkeypatch.chdir(tmp_path)
    assert run("check") == (0, "ok: 1 backend, 1 model\n", "Using ./gateway.yaml; --config names another file.\n")
    assert run("check", "-c", "gateway.yaml")[2] == ""
    assert run("check", GATEWAY_CONFIG="none.yaml")[2] == "none.yaml: cannot be read: No such file or directory\n"


def test_check_command_probes_backends_and_store(written, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with model_server('{"data": [{"id": "m1"}]}') as port:
        one, gone = (
            f"one: {{url: 'http://127.0.0.1:{port}'}}",
            f"gone: {{kind: ollama, url: 'http://127.0.0.1:{free_port()}'}}",
        )
        code, out, err = run("check", "--probe", "-c", written(f"backends: {{{one}}}"))
        assert (code, err) == (0, "")
        assert out.splitlines()[1:] == [
            f"one: openai at http://127.0.0.1:{port}: 1 model: m1",
            "store: sqlite:///./gateway.db: ok",
        ]
        code, out, err = run("check", "--probe", "-c", written(f"backends: {{{gone}, {one}}}"))
    assert (code, err) == (1, "")
    assert out.splitlines()[1].endswith(": connection refused; is `ollama serve` running?") and "1 model: m1" in out
    store = "store: {url: 'sqlite:///none/gateway.db'}"
    code, out, _ = run("check", "--probe", "-c", written(store))
    folder = tmp_path / "none"
    assert (code, out.splitlines()[1]) == (
        1,
        f"store: sqlite:///none/gateway.db: the directory {folder} does not exist; create it, or check store.url",
    )
    assert not (tmp_path / "gateway.db").exists()


def test_check_command_probes_redis_certificate_and_extras(written, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(installation, "find_spec", lambda _: None)
    issue(tmp_path, not_after=datetime(2001, 1, 1, tzinfo=UTC))
    code, out, err = run(
        *("check", "--probe", "-c"),
        written(f"""
            limits: {{url: 'redis://:secret@127.0.0.1:{free_port()}'}}
            server: {{tls: {{certificate: cert.pem, key: key.pem}}}}
            tracing: {{enabled: true}}
        """),
    )
    assert (code, err) == (1, "") and "secret" not in out
    redis, certificate, extra = out.splitlines()[2:]
    assert redis.endswith(": connection refused; is Redis running?")
    assert certificate.startswith("server.tls.certificate: ") and "is not valid: from " in certificate
    assert extra.startswith("tracing: needs packages that are not installed; run: ")


def test_config_file_may_begin_with_a_byte_order_mark(tmp_path):
    file = tmp_path / "bom.yaml"
    file.write_bytes(b"\xef\xbb\xbfserver: {port: 1}\n")
    assert read_config(file).server.port == 1


def test_check_command_names_the_format_of_each_model(written):
    models = "{qwen3-coder: {}, m: {}, k: {format: kimi_k2}, served: {upstream_model: Qwen/QwQ-32B, thought: closed}}"
    code, out, _ = run("check", "-v", "--config", written(f"backends: {{a: {{url: 'http://a'}}}}\nmodels: {models}"))
    assert code == 0
    assert [line for line in out.splitlines() if line.startswith("# ")] == [
        "# models.qwen3-coder: qwen_xml; its name matches *qwen3-coder*",
        "# models.m: auto; its name is unknown, so its output decides, unless its chat template names a format",
        "# models.k: kimi_k2; configured",
        "# models.served: hermes_json; its name matches *qwq*",
    ]
