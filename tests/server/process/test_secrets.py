"""Test that API keys, prompts and responses are in no log, and that headers are not passed on to the other side."""

import io
import json
import logging
from contextlib import contextmanager

import pytest

from gateway.config import LogSettings
from gateway.server.observability import logs
from support.app import bearer, gateway, listening
from support.jobs import ended
from support.upstream import (
    CLOSE,
    COUNTS,
    DONE,
    END,
    HELLO,
    KEY,
    RESET,
    call,
    chunk,
    completion_body,
    frame,
    head,
    list_of,
    stream,
    whole,
)

CLIENTS = "client-secret-0123456789"
SEALING = "sealing-secret-0123456789-0123456789"
PROMPT, ANSWERED = "the patient in room seven", "has the measles"
SECRETS = (KEY, CLIENTS, SEALING)
TOOL = {"type": "function", "function": {"name": "f", "parameters": {"type": "object", "description": PROMPT}}}
FIELDS = {
    "messages": [
        {"role": "system", "content": PROMPT},
        {"role": "user", "content": PROMPT, "name": "n"},
    ],
    "tools": [TOOL],
    "metadata": {"note": PROMPT},
    "user": PROMPT,
}
ERROR = {"error": {"message": f"cannot tell why {PROMPT} {ANSWERED}: {KEY}", "code": 500}}
ANSWERS = {
    "well": HELLO,
    "refused": whole(ERROR, 400),
    "failed": whole(ERROR, 500),
    "unauthorised": whole(ERROR, 401),
    "html": whole(f"<html>{PROMPT} {ANSWERED} {KEY}</html>".encode(), type="text/html"),
    "no JSON": whole(f"{PROMPT} {ANSWERED} {KEY}".encode()),
    "an error in a stream": [head(), chunk(ANSWERED), frame(**ERROR), DONE, END],
    "an error instead of a stream": [head(), frame(**ERROR), DONE, END],
    "no JSON in a stream": [head(), f"data: {ANSWERED} {KEY}\n\n".encode(), DONE, END],
    "lost": [head(), chunk(ANSWERED), CLOSE],
    "reset": [head(), chunk(ANSWERED), RESET],
    "broken arguments": stream(chunk(tool_calls=call("f", f'{{"a": "{ANSWERED}', id="c")), chunk(finish="tool_calls")),
    "a header that is none": [f"HTTP/1.1 200 Said\r\n{ANSWERED}\r\n\r\n".encode(), CLOSE],
}


@contextmanager
def captured_log():
    """Yield the text of the log, formatted as `logs.begin` does, from level INFO on."""
    text, root = io.StringIO(), logging.getLogger()
    handler = logging.StreamHandler(text)
    handler.setFormatter(logs.RedactingFormatter("%(name)s: %(message)s"))
    before = root.level
    root.addHandler(handler)
    root.setLevel(logging.INFO)
    try:
        yield text
    finally:
        root.removeHandler(handler)
        root.setLevel(before)
        logs.apply_settings(LogSettings())


def site(script, **more):
    keys = {"keys": [{"name": "ci", "key": CLIENTS}]}
    where = {"sealing_keys": [SEALING]}
    return gateway(script, auth=keys, store=where, responses={"reasoning_memory": True}, **more)


async def ask_in_every_way(one):
    """Send a request to every endpoint, streamed and whole."""
    known = bearer(CLIENTS)
    for streamed in (True, False):
        await one.chat(headers=known, stream=streamed, store=True, **FIELDS)
        await one.respond(headers=known, stream=streamed, input=PROMPT, instructions=PROMPT, metadata={"a": PROMPT})
    job = await one.respond(headers=known, background=True, input=PROMPT)
    if job.status_code == 200:
        await ended(one, job.json()["id"], headers=known)
    for path, field in (("completions", "prompt"), ("embeddings", "input"), ("tokenize", "prompt")):
        body = {"model": "m", field: PROMPT}
        await one.client.post(f"/v1/{path}", json=body, headers={**known, "idempotency-key": PROMPT})
    await one.chat(headers=bearer(f"{CLIENTS}x"), **FIELDS)  # which is no key


@pytest.mark.parametrize("answer", ANSWERS)
async def test_log_has_no_content_and_no_key(answer):
    with captured_log() as text:
        async with site(ANSWERS[answer]) as one:
            await ask_in_every_way(one)
    for secret in (PROMPT, ANSWERED, *SECRETS):
        assert secret not in text.getvalue()


@pytest.mark.parametrize("answer", ["failed", "html", "an error instead of a stream"])
async def test_log_has_content_but_no_key_if_content_is_enabled(answer):
    with captured_log() as text:
        async with site(ANSWERS[answer], logs={"content": True}) as one:
            await ask_in_every_way(one)
    assert ANSWERED in text.getvalue()
    for secret in SECRETS:
        assert secret not in text.getvalue()


# Exceptions


def raised():
    """Raise a group of exceptions."""
    try:
        try:
            json.loads(f"{{{PROMPT}")
        except ValueError as error:
            raise KeyError(PROMPT) from error
    except KeyError:
        raise ExceptionGroup(PROMPT, [RuntimeError(PROMPT), OSError(PROMPT)]) from None


def log_text_of(log):
    with captured_log() as text:
        try:
            raised()
        except ExceptionGroup as error:
            log(error)
    return text.getvalue()


def test_log_of_an_exception_has_its_type_and_place_only():
    text = log_text_of(lambda error: logging.getLogger("gateway").error("it failed", exc_info=error))
    assert text.startswith("gateway: it failed\n")
    assert [line for line in text.splitlines() if line.startswith("builtins.")] == [
        "builtins.ExceptionGroup",
        "builtins.RuntimeError",
        "builtins.OSError",
    ]
    assert ", in raised\n" in text and PROMPT not in text


def test_log_of_an_exception_has_the_types_of_its_causes_first():
    error = KeyError(PROMPT)
    error.__cause__ = ValueError(PROMPT)
    error.__cause__.__context__ = OSError(PROMPT)
    with captured_log() as text:
        logging.getLogger("gateway").error("it failed", exc_info=error)
    assert [line for line in text.getvalue().splitlines() if line] == [
        "gateway: it failed",
        "builtins.OSError",
        "builtins.ValueError",
        "builtins.KeyError",
    ]


def test_log_of_an_exception_has_its_message_if_content_is_enabled():
    logs.apply_settings(LogSettings(content=True))
    text = log_text_of(lambda error: logging.getLogger("gateway").error("it failed", exc_info=error))
    assert f"RuntimeError: {PROMPT}" in text


@pytest.mark.parametrize("content", [True, False])
def test_log_of_asyncio_has_no_results_of_tasks(content):
    logs.apply_settings(LogSettings(content=content))
    with captured_log() as text:
        logging.getLogger("asyncio").error("Task exception was never retrieved\nfuture: <%s>", PROMPT)
    logs.apply_settings(LogSettings())
    assert text.getvalue().startswith("asyncio: Task exception was never retrieved\n")
    assert (PROMPT in text.getvalue()) is content


# Headers


TO_BACKENDS = {"host", "content-type", "content-length", "authorization", "accept", "user-agent"}
TO_CLIENTS = {
    "content-type", "content-length", "transfer-encoding", "cache-control", "connection", "x-accel-buffering",
    "x-request-id", "request-id", "openai-processing-ms", "openai-version", "x-gateway-warnings",
}  # fmt: skip
HEADERS = {
    "authorization": f"Bearer {CLIENTS}",
    "api-key": CLIENTS,
    "cookie": f"session={CLIENTS}",
    "proxy-authorization": f"Basic {CLIENTS}",
    "x-api-key": CLIENTS,
    "x-forwarded-for": "10.9.8.7",
    "forwarded": "for=10.9.8.7",
    "openai-organization": CLIENTS,
    "openai-project": CLIENTS,
    "x-stainless-lang": CLIENTS,
    "user-agent": CLIENTS,
    "traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
    "x-made-up": CLIENTS,
}
THEIRS = {
    "set_cookie": f"session={KEY}",
    "server": "uvicorn",
    "x_powered_by": "a model",
    "www_authenticate": f"Bearer {KEY}",
    "access_control_allow_origin": "*",
    "location": "http://10.9.8.7/",
    "x_request_id": "of the backend",
    "openai_organization": KEY,
    "x_made_up": KEY,
    "link": "<http://10.9.8.7/>",
}


FIELD = {
    "chat/completions": ("messages", [{"role": "user", "content": "Hello"}]),
    "responses": ("input", "Hello"),
    "completions": ("prompt", "Hello"),
    "embeddings": ("input", "Hello"),
    "tokenize": ("prompt", "Hello"),
}


@pytest.mark.parametrize("path", FIELD)
@pytest.mark.parametrize("streamed", [True, False])
async def test_headers_of_client_and_backend_are_not_passed_on(path, streamed):
    answers = {
        "embeddings": whole({"data": [{"index": 0, "embedding": [1.0]}], "usage": COUNTS}, **THEIRS),
        "tokenize": whole({"tokens": [1, 2]}, **THEIRS),
    }
    chat = [head(**THEIRS), *HELLO[1:]] if streamed else whole(completion_body(), **THEIRS)
    field, given = FIELD[path]
    body = {"model": "m", field: given, **({} if path in answers else {"stream": streamed})}
    keys = {"keys": [{"name": "ci", "key": CLIENTS}]}
    async with listening(answers.get(path, chat), models=("m",), auth=keys, backend={"kind": "vllm"}) as one:
        one.upstream.shown["/tokenize"] = answers["tokenize"]
        answer = await one.client.post(f"/v1/{path}", json=body, headers=HEADERS)
        assert answer.status_code == 200, answer.text
        requests = [*one.upstream.posts, *one.upstream.gets, *one.upstream.aside]
    assert set(answer.headers) <= TO_CLIENTS and "of the backend" not in answer.headers["x-request-id"]
    for request in requests:
        assert {name.lower() for name in request.headers} <= {*TO_BACKENDS, "accept-encoding", "connection"}
        assert not [value for value in request.headers.values() if CLIENTS in value or "10.9.8.7" in value]
        assert request.headers.get("authorization") == f"Bearer {KEY}"


async def test_headers_of_a_backend_are_not_in_the_models_list():
    async with listening(HELLO, model=False) as one:
        one.upstream.answer_lists_with(
            [list_of("m")[0].replace(b"content-type", b"set-cookie: a=b\r\ncontent-type", 1)]
        )
        answer = await one.client.get("/v1/models", headers=HEADERS)
        (request,) = one.upstream.gets
    assert answer.status_code == 200 and "set-cookie" not in answer.headers
    assert CLIENTS not in str(request.headers)
