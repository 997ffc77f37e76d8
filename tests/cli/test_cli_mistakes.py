"""Test the messages for the mistakes that users make on the command line."""

import pytest

from support.cli import run
from support.kinds import ONE_OF_THE_KINDS

ROOT = "like http://127.0.0.1:8000"
DOCTOR = ("doctor", "http://127.0.0.1:9")
# words of the command line → the last line of its error, or the beginning of that line before an ellipsis
MISTAKES = {
    ("servee",): "Error: No such command 'servee'. Did you mean 'serve'?",
    ("serve", "--port", "70000"): "--port: should be 65535 or less, not 70000",
    ("serve", "--workers", "0"): "--workers: should be 1 or more, not 0",
    ("serve", "--host", "127.0.0.1:80"): "--host: should be an address without a port, like 127.0.0.1; put the port …",
    ("serve", "--config", "no.yaml"): "no.yaml: cannot be read: No such file or directory",
    ("check", "--config", "/"): "/: cannot be read: Is a directory",
    ("formats", "Hermes_Json"): "Error: Invalid value: unknown format 'Hermes_Json'; did you mean 'hermes_json'? `ga…",
    ("formats", "zzz"): "Error: Invalid value: unknown format 'zzz'; `gateway formats` lists all formats.",
    ("doctor", "127.0.0.1:9"): f"URL: should start with http:// or https:// and name a host, {ROOT}",
    ("doctor", "http://127.0.0.1:9/v1/models"): "URL: should be the root URL of the server without /v1/models, like …",
    ("doctor", "http://h/api", "--kind", "ollama"): "URL: url should be the root URL of Ollama without /api, like ht…",
    (*DOCTOR, "--kind", "Ollama"): f"--kind: unknown value 'Ollama'; did you mean 'ollama'? {ONE_OF_THE_KINDS}",
    (*DOCTOR, "--only", "tols"): "Error: Invalid value: unknown check 'tols'; did you mean 'tools'? one of: chat, …",
    (*DOCTOR, "--only", "zzz"): "Error: Invalid value: unknown check 'zzz'; one of: chat, streaming, …",
    (*DOCTOR, "--only", "a,b"): "Error: Invalid value: unknown check 'a,b'; repeat --only for each check.",
    (*DOCTOR, "--key-env", "NO_KEY"): "--key-env: the environment variable NO_KEY is not set",
    ("replay", "no.jsonl"): "no.jsonl: No such file or directory",
    (
        "replay",
        "--format",
        "Hermes",
        "x",
    ): "Error: Invalid value: unknown format 'Hermes'; did you mean 'hermes'? `gat…",
    ("replay", "--endpoint", "chatt", "x"): "Error: Invalid value: unknown endpoint 'chatt'; one of: chat, responses,…",
    (
        "replay",
        "--cut",
        "0",
        "x",
    ): "Error: Invalid value: --cut should be a number of bytes, `bytes` or `whole`, not '0'.",
    ("health", "ftp://x"): "Error: Invalid value: 'ftp://x' is not the URL of a gateway, like http://127.0.0.1:8900.",
    ("top", "--once", "--url", "no"): "'no' is not the URL of a gateway, like http://127.0.0.1:8900.",
}


@pytest.mark.parametrize("words", MISTAKES)
def test_command_line_mistake_says_what_to_do(words):
    code, _, err = run(*words, COLUMNS="500", NO_KEY=None)
    message, expected = err.strip().splitlines()[-1], MISTAKES[words]
    assert code == 2
    assert message == expected if expected[-1] != "…" else message.startswith(expected[:-1])
