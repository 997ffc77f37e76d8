"""Test the check of a backend, and the words for what is wrong with it."""

import asyncio
import http.client
import json
import socket
import ssl

import pytest

from gateway.config import BackendSettings
from gateway.errors import UpstreamUnreachable
from gateway.server.upstream.backend import Backend
from gateway.server.upstream.backend_check import BackendCheck, check_backend
from gateway.server.upstream.failure_text import failure_text, status_text
from support.ports import free_port
from support.upstream import CLOSE, HANG, KEY, Upstream, head, list_of, whole

LAPTOP = BackendSettings(kind="ollama", url="http://127.0.0.1:11434")
LOCKED = BackendSettings(url="https://lab.lan", api_key="k")
CERTIFICATE = ssl.SSLCertVerificationError(1, "verify failed")
CERTIFICATE.verify_message = "self-signed certificate"


def chained(error, cause):
    """Return an error of a library with the cause that it hides."""
    error.__cause__ = RuntimeError("of a layer between")
    error.__cause__.__context__ = cause
    return error


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (ConnectionRefusedError(111, "Connection refused"), "connection refused; is `ollama serve` running?"),
        (chained(KeyError(), ConnectionRefusedError()), "connection refused; is `ollama serve` running?"),
        (socket.gaierror(-2, "Name or service not known"), "the host name cannot be resolved; check backends.laptop.url"),
        (UnicodeError("label too long"), "the host name cannot be resolved; check backends.laptop.url"),
        (CERTIFICATE, "the certificate is not trusted: self-signed certificate"),
        (ssl.SSLError(1, "wrong version number"), "the server does not speak TLS; does backends.laptop.url need http instead of https?"),
        (TimeoutError(), "no response within 5 s; is the server busy, or does a firewall block the port?"),
        (http.client.RemoteDisconnected("x"), "the connection was closed without a response; is it a model server, with https instead of http?"),
        (http.client.BadStatusLine("220 smtp"), "no valid HTTP response; is it a model server?"),
        (OSError(113, "No route to host"), "no connection: no route to host"),
        (OSError(), "no connection: the cause is unknown"),
        (json.JSONDecodeError("x", "y", 0), "/v1/models returned no JSON; is it a model server?"),
        (UnicodeDecodeError("utf-8", b"\xff", 0, 1, "x"), "/v1/models returned no JSON; is it a model server?"),
        (KeyError("a library's own"), "no valid HTTP response; is it a model server?"),
    ],
)  # fmt: skip
def test_failure_text_names_the_cause_and_what_to_do(error, words):
    assert failure_text(error, "laptop", LAPTOP, 5) == words


@pytest.mark.parametrize(
    ("status", "settings", "words"),
    [
        (401, LAPTOP, "the server needs an API key (HTTP 401); set backends.b.api_key"),
        (403, LOCKED, "the server refuses the API key (HTTP 403); check backends.b.api_key"),
        (404, LAPTOP, "the server has no /v1/models (HTTP 404); is backends.b.url the root of a model server?"),
        (503, LAPTOP, "the server is loading or overloaded (HTTP 503)"),
        (500, LAPTOP, "the server failed (HTTP 500); its log has the reason"),
        (308, LAPTOP, "the server redirects (HTTP 308); set backends.b.url to the new address"),
    ],
)
def test_failure_text_of_a_status_names_the_key_to_change(status, settings, words):
    assert status_text(status, "b", settings) == words


def test_failure_text_of_a_redirect_has_its_target_without_control_characters():
    assert status_text(301, "b", LAPTOP, "https://x/\x1b[2J").startswith(
        "the server redirects to https://x/?[2J (HTTP 301)"
    )


@pytest.mark.parametrize(
    ("models", "line"),
    [
        ((), "no models yet"),
        (("m",), "1 model: m"),
        (("a", "b\x1b[2J"), "2 models: a, b?[2J"),
        (tuple("abcdefg"), "7 models: a, b, c, d, e and 2 more"),
    ],
)
def test_check_line_has_name_kind_address_and_models(models, line):
    check = BackendCheck(name="laptop", kind="ollama", url=LAPTOP.url, models=models)
    assert check.line == f"laptop: ollama at http://127.0.0.1:11434: {line}"


def test_check_line_warns_of_a_context_that_is_too_short_for_agents():
    check = BackendCheck(name="lab", kind="vllm", url="http://lab", models=("a",), short=("a", 4096))
    assert check.line.endswith("1 model: a; 4,096 tokens of context are too few for agents (a); ask `gateway doctor`")


async def checked(script, seconds=5, **settings):
    """Return the check of a backend that answers like this, and its requests."""
    async with Upstream([], ()).serving() as upstream:
        upstream.answer_lists_with(script)
        one = BackendSettings(url=f"{upstream.url}/v1", **settings)
        return await asyncio.to_thread(check_backend, "up", one, seconds), upstream.gets


async def test_check_lists_models_with_the_key():
    check, (request,) = await checked(list_of("a", "b"), api_key=KEY)
    assert (check.models, check.problem, check.may_recover) == (("a", "b"), "", False)
    assert request.path == "/v1/models" and request.headers["authorization"] == f"Bearer {KEY}"


async def test_check_reads_a_list_without_an_object_around_it():
    check, _ = await checked(whole([{"id": "a"}]))
    assert (check.models, check.problem) == (("a",), "")


async def test_check_names_the_model_with_the_shortest_context():
    windows = {"a": 8191, "b": 2048, "c": 8192, "d": None}
    entries = [{"id": name, "max_model_len": tokens} for name, tokens in windows.items()]
    check, _ = await checked(whole({"data": entries}))
    assert (check.models, check.short) == (("a", "b", "c", "d"), ("b", 2048))


async def test_check_lists_models_of_the_messages_api_by_its_rules():
    check, (request,) = await checked(list_of("a"), kind="anthropic", api_key=KEY)
    assert (check.models, request.path) == (("a",), "/v1/models?limit=1000")
    headers = request.headers
    assert (headers["x-api-key"], headers["anthropic-version"]) == (KEY, "2023-06-01")
    assert "authorization" not in headers


@pytest.mark.parametrize(
    ("script", "words", "may_recover"),
    [
        (whole({"error": "no"}, 401), "the server needs an API key (HTTP 401)", False),
        (whole({"error": "loading"}, 503), "the server is loading or overloaded (HTTP 503)", True),
        (whole(b"", 302, location="https://new"), "the server redirects to https://new (HTTP 302)", False),
        (whole(b"<html>"), "/v1/models returned no JSON", False),
        (whole("odd"), "/v1/models returned no list of models", False),
        (whole({"detail": "hi"}), "/v1/models returned no list of models", False),
        (whole({"data": None}), "", False),
        ([CLOSE], "the connection was closed without a response", True),
        ([b"220 mail.lan ESMTP\r\n", CLOSE], "no valid HTTP response", True),
    ],
)
async def test_check_says_what_is_wrong_with_a_server(script, words, may_recover):
    check, _ = await checked(script)
    assert check.problem.startswith(words) and bool(check.problem) == bool(words)
    assert check.may_recover is may_recover


@pytest.mark.parametrize("script", [[HANG], [head(type="application/json"), HANG]])
async def test_check_ends_with_its_time_limit(script):
    check, _ = await checked(script, seconds=0.1)
    assert check.problem.startswith("no response within 0.1 s") and check.may_recover


@pytest.mark.parametrize("scheme", ["http", "https"])
def test_check_says_that_nothing_listens(scheme):
    check = check_backend("up", BackendSettings(kind="vllm", url=f"{scheme}://127.0.0.1:{free_port()}"))
    assert check.problem == "connection refused; is `vllm serve` running?" and check.may_recover


async def test_backend_that_lists_no_models_says_the_same_words():
    async with Upstream([], ()).serving() as upstream:
        upstream.answer_lists_with(whole({"error": "no"}, 401))
        first = await problem_of(upstream.url)
    assert (
        first
        == "Backend 'up' did not list its models: the server needs an API key (HTTP 401); set backends.up.api_key."
    )
    assert (await problem_of(upstream.url)).endswith("models: connection refused; is the server running?")


async def problem_of(url):
    """Return the problem of a backend that has no list of models."""
    backend = Backend("up", BackendSettings(url=url))
    with pytest.raises(UpstreamUnreachable) as caught:
        await backend.models()
    await backend.close()
    return str(caught.value)
