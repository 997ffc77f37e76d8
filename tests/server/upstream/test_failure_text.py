"""Test the words for the cause of a failed connection, and their place in the errors of clients."""

import errno
import socket
import ssl

import httpx
import pytest

from gateway.config import BackendSettings
from gateway.errors import UpstreamUnreachable
from gateway.server.upstream.backend import Backend
from gateway.server.upstream.failure_text import cause_text
from gateway.server.upstream.model_registry import unknown_model_error
from support.app import HELLO_MESSAGES, bearer, gateway
from support.upstream import CLOSE, HELLO

REFUSED = "connection refused; is the server running?"
FEW = (
    "Multiple exceptions: [Errno 111] Connect call failed ('::1', 1), [Errno 111] Connect call failed ('127.0.0.1', 1)"
)


def caused(error, cause):
    """Return an error with a cause."""
    error.__cause__ = cause
    return error


def unverified():
    error = ssl.SSLCertVerificationError(1, "x")
    error.verify_message = "self-signed certificate"
    return error


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (ConnectionRefusedError(errno.ECONNREFUSED, "x"), REFUSED),
        (OSError(FEW), REFUSED),
        (caused(ValueError("x"), ConnectionRefusedError(errno.ECONNREFUSED, "x")), REFUSED),
        (caused(OSError("x"), ExceptionGroup("x", [ConnectionRefusedError(errno.ECONNREFUSED, "x")])), REFUSED),
        (OSError(errno.EHOSTUNREACH, "No route to host"), "no connection: no route to host"),
        (OSError(errno.EADDRNOTAVAIL, "Cannot assign requested address"), "no connection: cannot assign requested address"),
        (socket.gaierror(-2, "Name or service not known"), "the host name cannot be resolved; check its url"),
        (unverified(), "the certificate is not trusted: self-signed certificate"),
        (ssl.SSLError(1, "WRONG_VERSION_NUMBER"), "the server does not speak TLS; does its url need http instead of https?"),
        (TimeoutError(), "no response in time; is the server busy, or does a firewall block the port?"),
    ],
)  # fmt: skip
def test_failure_text_of_a_connection_needs_no_settings(error, message):
    assert cause_text(error) == message


async def test_failure_names_the_backend_and_the_cause():
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{closed.getsockname()[1]}"
        other = {"gone": {"url": url}}
        model = {"backends": ["gone"], "retries": 0}
        async with gateway(HELLO, more_backends=other, more_models={"n": model}) as site:
            failed = await site.chat(model="n")
    expected = f"Backend 'gone' cannot be reached: {REFUSED}"
    assert (failed.status_code, failed.json()["error"]["message"]) == (502, expected)


# An unknown model


@pytest.mark.parametrize(
    ("names", "message"),
    [
        ([], "There are no models."),
        (["a", "qwen3", "a"], "There are: qwen3, a."),
        ([f"model-{i}" for i in range(9)], f"There are: {', '.join(f'model-{i}' for i in range(8))}, …."),
        (["x" * 101], f"There are: {'x' * 101}."),
    ],
)
def test_unknown_model_error_names_models_the_nearest_first(names, message):
    error = unknown_model_error("qwen4", names)
    assert error.problem.message == f"The model 'qwen4' does not exist or you do not have access to it. {message}"
    assert (error.problem.code, error.problem.param) == ("model_not_found", "model")


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/chat/completions", {"messages": HELLO_MESSAGES}),
        ("/v1/responses", {"input": "Hello"}),
        ("/v1/messages", {"max_tokens": 9, "messages": HELLO_MESSAGES}),
        ("/v1/embeddings", {"input": "Hello"}),
    ],
)
async def test_unknown_model_error_shows_a_client_its_own_models(path, body):
    keys = {"keys": [{"name": "a", "key": "sk-a", "models": ["m", "n"]}]}
    more = {"secret": {"backends": ["up"]}, "n": {"backends": ["up"], "aliases": ["n2"]}}
    async with gateway(HELLO, auth=keys, more_models=more, models=[CLOSE]) as site:
        answer = await site.client.post(path, json={"model": "zzz", **body}, headers=bearer("sk-a"))
    message = answer.json()["error"]["message"]
    assert answer.status_code == 404 and "There are: m, n, n2." in message and "secret" not in message


# A list of models that cannot be read


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (httpx.Response(401), "the server needs an API key (HTTP 401); set backends.up.api_key."),
        (httpx.Response(500), "the server failed (HTTP 500); its log has the reason."),
        (httpx.Response(200, text="<html>"), "/v1/models returned no JSON; is it a model server?"),
        (
            caused(httpx.ReadTimeout(""), TimeoutError()),
            "no response within 5 s; is the server busy, or does a firewall block the port?",
        ),
    ],
)
async def test_list_of_models_that_fails_says_why(answer, message):
    def respond(_):
        if isinstance(answer, httpx.HTTPError):
            raise answer
        return answer

    backend = Backend("up", BackendSettings(url="http://h"))
    backend._http = httpx.AsyncClient(base_url="http://h", transport=httpx.MockTransport(respond))
    with pytest.raises(UpstreamUnreachable) as failed:
        await backend.models()
    assert str(failed.value) == f"Backend 'up' did not list its models: {message}"
    await backend.close()
