"""Test the errors that a client gets when its backend fails: status, code, message, log and end of the stream."""

import asyncio
import json
import logging
import socket
from contextlib import ExitStack, closing

import pytest

from gateway.server.relay import relay
from support.app import HELLO_MESSAGES, gateway, listening, on_both_loops, problem
from support.sse import payloads, text_of
from support.upstream import (
    CLOSE,
    DONE,
    END,
    HANG,
    HELLO,
    KEY,
    RESET,
    call,
    chunk,
    completion_body,
    frame,
    head,
    silent,
    stream,
    whole,
)
from support.wait import idle, until

BAD, FAULT = "invalid_request_error", "server_error"
QUOTA = "insufficient_quota"
NO_CREDIT = (429, "rate_limit_error", QUOTA, None)
OVERFLOW = (400, BAD, "context_length_exceeded", "messages")
FILTERED = (400, BAD, "content_policy_violation", None)
NO_MODEL = (404, BAD, "model_not_found", "model")


def llama(code, message, type="server_error", **more):
    return code, {"error": {"code": code, "message": message, "type": type, **more}}


def vllm(code, message, type="BadRequestError", param=None):
    return code, {"error": {"message": message, "type": type, "param": param, "code": code}}


def ollama(status, message, type="api_error"):
    return status, {"error": {"message": message, "type": type, "param": None, "code": None}}


# By server and error: status and body of the upstream, and what the client gets
REFUSALS = {
    "llama.cpp: validation": (llama(400, "'messages' is required", BAD), (400, BAD, None, None)),
    "llama.cpp: overflow": (
        llama(400, "request (9010 tokens) exceeds the available context size (4096 tokens), try increasing it",
              "exceed_context_size_error", n_prompt_tokens=9010, n_ctx=4096),
        OVERFLOW,
    ),
    "llama.cpp: overflow by its type": (llama(400, "too much", "exceed_context_size_error"), OVERFLOW),
    "llama.cpp: messages": (llama(500, "Failed to parse messages: Missing 'content' in {}"), (400, BAD, None, None)),
    "llama.cpp: tools": (llama(500, "Failed to parse tools: Missing tool function: {}"), (400, BAD, None, None)),
    "llama.cpp: jinja": (llama(500, "tools param requires --jinja flag"), (400, BAD, None, None)),
    "llama.cpp: image": (llama(500, "image input is not supported - hint: …"), (400, BAD, None, None)),
    "llama.cpp: schema": (llama(400, "Unable to generate parser for this template.", BAD), (400, BAD, None, None)),
    "llama.cpp: output": (
        llama(500, "The model produced output that does not match the expected peg-native format"),
        (502, FAULT, "upstream_error", None),
    ),
    "llama.cpp: loading": (llama(503, "Loading model", "unavailable_error"), (503, FAULT, "model_loading", None)),
    "llama.cpp: busy": (llama(503, "no slot available", "unavailable_error"), (503, FAULT, "server_is_overloaded", None)),
    "llama.cpp: key": (llama(401, "Invalid API Key", "authentication_error"), (502, FAULT, "upstream_auth_error", None)),
    "llama.cpp: permission": (llama(403, "no", "permission_error"), (502, FAULT, "upstream_auth_error", None)),
    "xai: key": ((400, {"code": "invalid-argument", "error": "Incorrect API key provided: xa***ab."}), (502, FAULT, "upstream_auth_error", None)),
    "gemini: key": ((400, [{"error": {"code": 400, "message": "API key not valid. Please pass a valid API key."}}]), (502, FAULT, "upstream_auth_error", None)),
    "any: another key": ((400, {"error": {"message": "The tool's header has an incorrect API key"}}), (400, BAD, None, None)),
    "mistral: validation": (
        (422, {"object": "error", "message": {"detail": [{"loc": ["body", "messages", 0], "msg": "Field required"}]}, "type": BAD}),
        (400, BAD, None, "messages"),
    ),
    "cloudflare: overflow": (
        (400, {"errors": [{"code": 5021, "message": "AiError: The estimated number of input and maximum output tokens (9) exceeded "
                                                    "this model context window limit (8)."}], "success": False, "result": {}}),
        OVERFLOW,
    ),
    "openai: no access": ((403, {"error": {"message": "Project `p` does not have access to model `m`", "code": "model_not_found"}}), (502, FAULT, "upstream_auth_error", None)),
    "openrouter: moderation": ((403, {"error": {"code": 403, "message": "m requires moderation on P. Your input was flagged for 'x'."}}), FILTERED),
    "openrouter: code": ((403, {"error": {"code": "content_filter", "message": "No."}}), FILTERED),
    "xai: filter": ((403, {"code": "permission-denied", "error": "Content violates usage guidelines. Team: t, API key ID: k"}), FILTERED),
    "xai: credit": ((403, {"code": "x", "error": "Your team t has either used all available credits or reached its monthly spending limit."}), NO_CREDIT),
    "volcengine: credit": ((403, {"error": {"code": "AccountOverdueError", "message": "Your account t has an overdue balance."}}), NO_CREDIT),
    "siliconflow: credit": ((403, {"code": 30001, "message": "Sorry, your account balance is insufficient", "data": None}), NO_CREDIT),
    "moonshot: credit by its type": ((403, {"error": {"message": "No.", "type": "exceeded_current_quota_error"}}), NO_CREDIT),
    "together: overflow": ((403, {"error": {"message": "`inputs` must have less than 4096 tokens. Given: 5000"}}), OVERFLOW),
    "llama.cpp: not done": (llama(501, "This server does not support it", "not_supported_error"), (400, BAD, "unsupported_value", None)),
    "llama.cpp: path": (llama(404, "File Not Found", "not_found_error"), (502, FAULT, "upstream_error", None)),
    "vllm: validation": (vllm(400, "1 validation error", "Bad Request", "body.messages.0.role"), (400, BAD, None, "messages[0].role")),
    "vllm: greedy": (vllm(400, "n must be 1 when using greedy sampling, got 2."), (400, BAD, None, None)),
    "vllm: overflow": (
        vllm(400, "This model's maximum context length is 4096 tokens. However, your prompt contains at least 4097 input "
                  "tokens.", param="input_tokens"),
        OVERFLOW,
    ),
    "vllm: max_tokens": (
        vllm(400, "max_tokens=1000000 cannot be greater than max_model_len=4096.", param="max_tokens"),
        (400, BAD, None, "max_tokens"),
    ),
    "vllm: prompt": (
        vllm(400, "The decoder prompt (length 9) is longer than the maximum model length of 8."), OVERFLOW,
    ),
    "vllm: model": (vllm(404, "The model `x` does not exist.", "NotFoundError", "model"), NO_MODEL),
    "vllm: path": ((404, {"detail": "Not Found"}), (502, FAULT, "upstream_error", None)),
    "vllm: method": ((405, {"detail": "Method Not Allowed"}), (502, FAULT, "upstream_error", None)),
    "vllm: key": ((401, {"error": "Unauthorized"}), (502, FAULT, "upstream_auth_error", None)),
    "vllm: engine": (vllm(500, "EngineCore encountered an issue.", "InternalServerError"), (502, FAULT, "upstream_error", None)),
    "transformers: model": ((400, {"detail": "Server is pinned to 'a'; requested 'b'."}), NO_MODEL),
    "transformers: json": (
        (422, {"detail": [{"type": "json_invalid", "loc": ["body", 34], "msg": "JSON decode error"}, "and more", {"x": 1}]}),
        (400, BAD, None, None),
    ),
    "fastapi: validation": ((422, {"detail": [{"type": "missing", "loc": ["body", "messages", 0, "content"], "msg": "Field required"}]}), (400, BAD, None, "messages")),
    "gemini: validation": ((400, [{"error": {"code": 400, "message": "Invalid value.", "status": "INVALID_ARGUMENT"}}]), (400, BAD, None, None)),
    "transformers: fault": ((500, b"Internal Server Error"), (502, FAULT, "upstream_error", None)),
    "ollama: validation": (ollama(400, "[] is too short - 'messages'", BAD), (400, BAD, None, None)),
    "ollama: model": (ollama(404, "model 'x' not found", "not_found_error"), NO_MODEL),
    "ollama: thinking": (ollama(400, '"x" does not support thinking', BAD), (400, BAD, None, None)),
    "ollama: fault": (ollama(500, "llama runner process has terminated"), (502, FAULT, "upstream_error", None)),
    "ollama: native": ((404, {"error": "model 'x' not found, try pulling it first"}), NO_MODEL),
    "ollama: full": ((503, {"error": "server busy, please try again"}), (503, FAULT, "server_is_overloaded", None)),
    "openai: model": ((404, {"error": {"message": "No.", "code": "model_not_found"}}), NO_MODEL),
    "openai: overflow": (
        (400, {"error": {"message": "Your input is too long.", "type": BAD, "param": "messages", "code": "context_length_exceeded"}}),
        OVERFLOW,
    ),
    "openai: quota": ((429, {"error": {"message": "You exceeded your quota.", "type": QUOTA, "code": QUOTA}}), NO_CREDIT),
    "openai: quota by its type": ((429, {"error": {"message": "You exceeded your quota.", "type": QUOTA}}), NO_CREDIT),
    "moonshot: credit": ((429, {"error": {"message": "Recharge your account.", "type": "exceeded_current_quota_error"}}), NO_CREDIT),
    "z.ai: credit": ((429, {"error": {"message": "Insufficient balance. Please recharge.", "code": "1113"}}), NO_CREDIT),
    "deepseek: credit": ((402, {"error": {"message": "Insufficient Balance", "type": "unknown_error", "code": BAD}}), NO_CREDIT),
    "openrouter: credit": ((402, {"error": {"message": "This request requires more credits, or fewer max_tokens.", "code": 402}}), NO_CREDIT),
    "anthropic: credit": ((402, {"type": "error", "error": {"type": "billing_error", "message": "Pay."}}), NO_CREDIT),
    "openai: rate": ((429, {"error": {"message": "Slow down.", "type": "tokens", "code": "rate_limit_exceeded"}}), (429, "rate_limit_error", "rate_limit_exceeded", None)),
    "openai: code": ((400, {"error": {"message": "Bad image.", "code": "invalid_image_url"}}), (400, BAD, "invalid_image_url", None)),
    "sglang: overflow": ((400, {"object": "error", "message": "The input (9 tokens) is longer than the model's context length (8 tokens).", "code": 400}), OVERFLOW),
    "sglang: overflow with its answer": (
        (400, {"object": "error", "message": "Requested token count exceeds the model's maximum context length of 8 tokens. You "
                                             "requested a total of 9 tokens.", "type": "BadRequestError", "param": None, "code": 400}),
        OVERFLOW,
    ),
    "sglang: input": (
        (400, {"object": "error", "message": "Input length (9 tokens) exceeds the maximum allowed length (8 tokens).", "code": 400}), OVERFLOW,
    ),
    "vllm: what was passed": (
        vllm(400, "You passed 9 input tokens and requested 1 output tokens. However, the model's context length is only 9 tokens, "
                  "resulting in a maximum input length of 8 tokens.", param="input_tokens"),
        OVERFLOW,
    ),
    "vllm: too long": (vllm(400, "The prompt (total length 9) is too long to fit into the model (context length 8)."), OVERFLOW),
    "llama.cpp: overflow in the answer": (llama(500, "Context size has been exceeded."), OVERFLOW),
    "ollama: overflow": (ollama(400, "the input length exceeds the context length", BAD), OVERFLOW),
    "ollama: overflow of its runner": (
        (400, {"error": '{"error":{"code":400,"message":"request (9 tokens) exceeds the available context size (8 tokens)",'
                        '"type":"exceed_context_size_error","n_prompt_tokens":9,"n_ctx":8}}'}),
        OVERFLOW,
    ),
    "ollama: overflow on a Mac": (ollama(500, "input length (9 tokens) exceeds the model's maximum context length (8 tokens)"), OVERFLOW),
    "transformers: overflow": (
        (500, {"detail": "Input length of input_ids is 9, but `max_length` is set to 8."}), OVERFLOW,
    ),
    "tgi: overflow": (
        (422, {"error": "Input validation error: `inputs` tokens + `max_new_tokens` must be <= 8. Given: 9 `inputs` tokens and 1 "
                        "`max_new_tokens`", "error_type": "validation"}),
        OVERFLOW,
    ),
    "tgi: input": ((422, {"error": "Input validation error: `inputs` must have less than 8 tokens. Given: 9", "error_type": "validation"}), OVERFLOW),
    "lmstudio: kept": (
        (400, {"error": "The number of tokens to keep from the initial prompt is greater than the context length. Try to load the "
                        "model with a larger context length, or provide a shorter input"}),
        OVERFLOW,
    ),
    "lmstudio: first": (
        (400, {"error": "Trying to keep the first 9 tokens when context the overflows. However, the model is loaded with context "
                        "length of only 8 tokens, which is not enough."}),
        OVERFLOW,
    ),
    "lmstudio: n_keep": ((400, {"error": "Cannot truncate prompt with n_keep (9) >= n_ctx (8)"}), OVERFLOW),
    "tensorrt: overflow": ((400, {"object": "error", "message": "Prompt length (9) exceeds maximum input length (8).", "code": 400}), OVERFLOW),
    "groq: overflow": ((413, {"error": {"message": "Please reduce the length of the messages or completion.", "type": BAD, "code": "context_length_exceeded"}}), OVERFLOW),
    "copilot: overflow": ((400, {"error": {"message": "prompt token count of 9 exceeds the limit of 8", "code": "model_max_prompt_tokens_exceeded"}}), OVERFLOW),
    "xai: overflow": ((400, {"error": "This model's maximum prompt length is 8 but the request contains 9 tokens."}), OVERFLOW),
    "any: overflow by its word": ((400, {"error": {"message": "No.", "code": "context_length_exceeded"}}), OVERFLOW),
    "lmstudio: overflow": ((400, {"error": "The number of tokens to keep is larger than the context length. Prompt is too long."}), OVERFLOW),
    "proxy: size": ((413, b"<html>413</html>"), (413, BAD, "request_too_large", None)),
    "proxy: page": ((502, b"<html><h1>Bad Gateway</h1></html>"), (502, FAULT, "upstream_error", None)),
    "proxy: late": ((504, b""), (504, FAULT, "upstream_timeout", None)),
    "openrouter: late": ((408, {"error": {"code": 408, "message": "Timed out."}}), (504, FAULT, "upstream_timeout", None)),
    "proxy: redirect": ((302, b""), (502, FAULT, "upstream_error", None)),
    "proxy: accepted": ((202, b"{}"), (502, FAULT, "upstream_error", None)),
    "proxy: teapot": ((418, {"error": {"message": "short and stout"}}), (502, FAULT, "upstream_error", None)),
    "any: empty": ((500, b""), (502, FAULT, "upstream_error", None)),
    "any: no JSON": ((400, b"{"), (400, BAD, None, None)),
    "any: no JSON in JSON": ((400, {"error": "{"}), (400, BAD, None, None)),
    "any: no UTF-8": ((400, b'"\xff"'), (400, BAD, None, None)),
    "any: deep": ((400, b"[" * 200_000), (400, BAD, None, None)),
    "any: null": ((400, b"null"), (400, BAD, None, None)),
    "any: text": ((400, b'"just words"'), (400, BAD, None, None)),
    "any: number": ((429, b"5"), (429, "rate_limit_error", "rate_limit_exceeded", None)),
    "any: object in object": ((400, {"error": {"message": {"text": "odd"}}}), (400, BAD, None, None)),
    "any: status without words": ((429, {}), (429, "rate_limit_error", "rate_limit_exceeded", None)),
    "any: 429 that speaks of context": ((429, {"error": "maximum context length per minute"}), (429, "rate_limit_error", "rate_limit_exceeded", None)),
}  # fmt: skip


OVERFLOWS = [case for case, (_, expected) in REFUSALS.items() if expected == OVERFLOW]


@pytest.mark.parametrize("case", OVERFLOWS)
async def test_prompt_too_long_has_the_same_error_before_and_within_a_stream(case):
    (_, body), _ = REFUSALS[case]
    listed = body.get("detail") or body.get("errors")
    error_frame = frame(**({"error": listed} if listed else body))
    async with gateway(stream(error_frame), stream(chunk("Hi"), error_frame)) as site:
        for before in (False, True):
            answer = await site.chat(stream=True)
            error = payloads(answer.text)[-1]["error"] if before else answer.json()["error"]
            assert (400, error["type"], error["code"], error["param"]) == OVERFLOW
            assert answer.status_code == (200 if before else 400)


@pytest.mark.parametrize("case", OVERFLOWS)
async def test_prompt_too_long_names_input_as_the_param_in_the_responses_api(case):
    (status, body), _ = REFUSALS[case]
    async with gateway(whole(body, status)) as site:
        assert problem(await site.respond(input="Hello")) == (400, BAD, "context_length_exceeded", "input")


@pytest.mark.parametrize("case", REFUSALS)
async def test_backend_error_becomes_its_status_in_the_shape_of_the_api(case):
    (status, body), expected = REFUSALS[case]
    async with gateway(whole(body, status)) as site:
        for streamed in (True, False):
            answer = await site.chat(stream=streamed)
            assert problem(answer) == expected, streamed
            assert isinstance(answer.json()["error"]["message"], str)
            assert answer.json()["error"]["message"]
            assert answer.headers["content-type"] == "application/json"
            assert answer.headers["x-request-id"]
        assert len(site.upstream.posts) == 2


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ({"error": {"message": "The temperature is too hot."}}, "The temperature is too hot."),
        ({"message": "flat"}, "flat"),
        ({"detail": [{"msg": "one"}, "two", {"x": 1}]}, "one; two; {'x': 1}"),
        ({"error": {"detail": "nested"}}, "nested"),
        (
            {
                "detail": [
                    {"loc": ["body", "messages", 0, "content"], "msg": "Field required"},
                    {"loc": ["body", 3], "msg": "no"},
                ]
            },
            "messages.0.content: Field required; no",
        ),
        ([{"error": {"code": 400, "message": "in a list"}}], "in a list"),
        ({"errors": [{"code": 7003, "message": "No route."}, {"code": 1}], "messages": []}, "No route.; {'code': 1}"),
        ({"message": {"detail": [{"loc": ["body", "n"], "msg": "Too many"}]}}, "n: Too many"),
        (b"<html>secret page</html>", "The backend returned HTTP 400 without a readable error."),
        (b"", "The backend returned HTTP 400 without a readable error."),
    ],
)
async def test_backend_error_message_reaches_the_client_but_no_page_does(body, message):
    async with gateway(whole(body, 400)) as site:
        assert (await site.chat()).json()["error"]["message"] == message


@pytest.mark.parametrize("body", [b"\x0b\x02\x80", b""])
async def test_backend_error_names_an_encoding_that_cannot_be_decoded(body):
    async with gateway(whole(body, 400, content_encoding="br")) as site:
        message = (await site.chat()).json()["error"]["message"]
    assert message == (
        "The backend returned HTTP 400 with an error that the gateway cannot decode (content-encoding: br). Switch "
        "compression off at the server or its proxy."
        if body
        else "The backend returned HTTP 400 without a readable error."
    )


async def test_backend_error_of_a_compressed_response_names_its_encoding():
    async with gateway(whole(b"\x1f\x8b", content_encoding="gzip")) as site:
        response = await site.chat()
    assert response.status_code == 502
    assert response.json()["error"]["message"] == (
        "Backend 'up' sent an invalid response: its body is compressed (gzip); switch compression off at the server or "
        "its proxy."
    )


@pytest.mark.parametrize("body", [{"detail": "Not Found"}, {"error": "Not Found."}])
async def test_backend_error_404_names_the_settings_that_may_be_wrong(body):
    async with gateway(whole(body, 404)) as site:
        message = (await site.chat()).json()["error"]["message"]
    assert message == ("Not Found. If the backend has no such path, its 'url' or 'kind' in the configuration is wrong.")


@pytest.mark.parametrize(("after", "expected"), [("7", "7"), ("Sun, 06 Nov 1994 08:49:37 GMT", "0"), (None, None)])
@pytest.mark.parametrize("status", [429, 503])
async def test_backend_error_keeps_its_retry_after_header(status, after, expected):
    more = {"retry_after": after} if after else {}
    async with gateway(whole({"error": "busy"}, status, **more)) as site:
        answer = await site.chat(stream=True)
        assert (answer.status_code, answer.headers.get("retry-after")) == (status, expected)


@pytest.mark.parametrize("streamed", [True, False])
async def test_backend_error_excerpt_is_only_in_the_log_and_without_the_key(streamed, caplog):
    page = b"<html>inner secret " + KEY.encode() + b" " + b"x" * 1000
    async with gateway(whole(page, 500), logs={"content": True}) as site:
        answer = await site.chat(stream=streamed)
    assert "inner secret" not in answer.text
    assert warnings_of(caplog) == ["backend up returned HTTP 500"]
    assert request_ids_of(caplog) == [answer.headers["x-request-id"]]
    (record,) = excerpts_of(caplog)
    assert "backend up: b'<html>inner secret ... xxx" in record
    assert len(record) < 400
    assert KEY not in answer.text + record


async def test_backend_error_without_credit_hides_the_account_and_is_final():
    refusal = whole({"code": "x", "error": "Your team team-1 has used all available credits."}, 403)
    async with gateway(refusal) as site:
        answer = await site.chat()
    assert "no credit left at the backend" in answer.json()["error"]["message"] and "team-1" not in answer.text
    assert answer.headers["x-should-retry"] == "false"


@pytest.mark.parametrize(
    ("status", "message"),
    [
        (401, "The backend rejected the gateway's API key. The operator must check 'api_key'."),
        (
            403,
            "The backend refuses access (HTTP 403): the account of the gateway's API key may lack the right to this model, or "
            "the region may not be served. The operator must check 'api_key'.",
        ),
    ],
)
async def test_backend_error_about_its_key_is_logged_and_hidden_from_the_client(status, message, caplog):
    refusal = whole({"error": {"message": f"Incorrect API key provided: {KEY}"}}, status)
    async with gateway(refusal, logs={"content": True}) as site:
        answer = await site.chat()
        assert problem(answer) == (502, FAULT, "upstream_auth_error", None)
        assert answer.json()["error"]["message"] == message
    (record,) = excerpts_of(caplog)
    assert "Incorrect API key provided: ..." in record
    assert KEY not in record


async def test_backend_error_400_logs_nothing(caplog):
    async with gateway(whole({"error": "no"}, 400)) as site:
        await site.chat()
    assert warnings_of(caplog) == []


def excerpts_of(caplog):
    return [record.getMessage() for record in caplog.records if record.name == "gateway.content"]


def warnings_of(caplog):
    return [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]


def request_ids_of(caplog):
    return [record.request_id for record in caplog.records if record.levelno >= logging.WARNING]


@pytest.mark.parametrize("end", [CLOSE, RESET])
async def test_backend_error_cut_in_its_body_keeps_its_status(end):
    half = head(status=429, type="application/json", retry_after="3")
    async with gateway([half, b'{"error": {"mess', end]) as site:
        answer = await site.chat()
        assert problem(answer) == (429, "rate_limit_error", "rate_limit_exceeded", None)
        assert answer.headers["retry-after"] == "3"


async def test_backend_error_of_endless_size_is_read_to_a_limit():
    async with gateway([head(status=500, type="text/html"), flood]) as site:
        assert problem(await site.chat()) == (502, FAULT, "upstream_error", None)


# A body with status 200 that is no response

NOT_AN_ANSWER = {
    "html": (whole(b"<html>Hello</html>", type="text/html"), "upstream_error"),
    "empty": (whole(b""), "upstream_error"),
    "no JSON": (whole(b"{"), "upstream_error"),
    "no UTF-8": (whole(b"\xff\xfe"), "upstream_error"),
    "no object": (whole(b"[]"), "upstream_error"),
    "null": (whole(b"null"), "upstream_error"),
    "no choices": (whole({"id": "x"}), "upstream_error"),
    "choices of no list": (whole({"choices": "none"}), "upstream_error"),
    "empty choices": (whole({"choices": []}), "upstream_error"),
    "stream: nothing": ([head(), END], "upstream_error"),
    "stream: only comments": ([head(), b": hi\n\n", END], "upstream_error"),
    "stream: no JSON": ([head(), b"data: {\n\n", DONE, END], "upstream_error"),
    "stream: html": ([head(), b"<html>\n\n</html>", END], "upstream_error"),
    "stream: only a role": ([head(), chunk(role="assistant", content=""), END], "upstream_lost"),
    "aborted": (stream(chunk(finish="abort")), "upstream_error"),
}


@pytest.mark.parametrize("streamed", [True, False])
@pytest.mark.parametrize("case", NOT_AN_ANSWER)
async def test_upstream_response_that_cannot_be_read_is_a_502(case, streamed, caplog):
    script, code = NOT_AN_ANSWER[case]
    async with gateway(script) as site:
        answer = await site.chat(stream=streamed)
        assert problem(answer) == (502, FAULT, code, None)
        assert "<html>" not in answer.text
    assert warnings_of(caplog) == [f"backend up: {code}"]
    assert request_ids_of(caplog) == [answer.headers["x-request-id"]]


async def test_chunk_content_behind_a_failure_is_dropped():
    choices = [{"index": 0, "delta": {}, "finish_reason": "abort"}, {"index": 1, "delta": {"content": "more"}}]
    async with gateway([head(), chunk("Hel"), frame(choices=choices), DONE, END]) as site:
        answer = await site.chat(stream=True, n=2)
    assert text_of(answer.text) == "Hel" and "more" not in answer.text
    assert payloads(answer.text)[-1]["error"]["code"] == "upstream_error"


async def test_upstream_response_that_cannot_be_read_is_excerpted_in_the_log(caplog):
    page = whole(b"<html>Who are you, " + KEY.encode() + b"?" + b"x" * 5000, type="text/html")
    async with gateway(page, logs={"content": True}) as site:
        await site.chat()
    (record,) = excerpts_of(caplog)
    assert "b'<html>Who are you, ...?xx" in record
    assert len(record) < 600


@pytest.mark.parametrize("wrapped", [True, False])
@pytest.mark.parametrize(
    ("error", "expected"),
    [
        ({"message": "Bad grammar", "type": "BadRequestError", "code": 400}, (400, BAD, None, None)),
        ({"message": "Slow down", "code": 429}, (429, "rate_limit_error", "rate_limit_exceeded", None)),
        ({"message": "Slow down", "code": "429"}, (429, "rate_limit_error", "rate_limit_exceeded", None)),
        (
            {"message": "Slow down", "code": "rate_limit_exceeded"},
            (429, "rate_limit_error", "rate_limit_exceeded", None),
        ),
        ({"message": "Full", "type": "overloaded_error", "code": "x"}, (503, FAULT, "server_is_overloaded", None)),
        ({"message": "No", "type": BAD, "code": "bad_value", "param": "n"}, (400, BAD, "bad_value", "n")),
        ({"message": "Loading model", "type": "unavailable_error", "code": 503}, (503, FAULT, "model_loading", None)),
        ({"message": "maximum context length is 8", "code": "bad"}, OVERFLOW),
        ({"message": "boom", "type": "InternalServerError", "code": 500}, (502, FAULT, "upstream_error", None)),
        ({"message": "boom", "code": "strange"}, (502, FAULT, "upstream_error", None)),
        ({"message": "boom", "code": 7}, (502, FAULT, "upstream_error", None)),
        ({}, (502, FAULT, "upstream_error", None)),
        ("just words", (502, FAULT, "upstream_error", None)),
        (True, (502, FAULT, "upstream_error", None)),
    ],
)
async def test_error_in_a_response_with_status_200_gets_its_own_status(error, expected, wrapped):
    body = {"error": error} if error else {"object": "error", "message": ""}
    script = [head(), b"data: %b\n\n" % json.dumps(body).encode(), DONE, END] if wrapped else whole(body)
    async with gateway(script) as site:
        for streamed in (True, False):
            answer = await site.chat(stream=streamed)
            assert problem(answer) == expected, streamed
            assert answer.json()["error"]["message"]
        assert len(site.upstream.posts) == 2


async def test_error_object_without_a_wrapper_is_recognized():
    body = {"object": "error", "message": "Only one choice, please", "type": "BadRequestError", "code": 400}
    async with gateway(whole(body)) as site:
        answer = await site.chat()
        assert problem(answer) == (400, BAD, None, None)
        assert answer.json()["error"]["message"] == "Only one choice, please"


async def test_stream_is_built_from_a_whole_upstream_response():
    async with gateway(whole(completion_body("Hello"))) as site:
        answer = await site.chat(stream=True)
        assert (text_of(answer.text), payloads(answer.text)[-1]) == ("Hello", "[DONE]")


async def test_whole_response_is_built_from_an_upstream_stream():
    async with gateway(HELLO) as site:
        answer = (await site.chat()).json()
        assert answer["choices"][0]["message"]["content"] == "Hi"
        assert answer["usage"]["total_tokens"] == 9


# An error after content


async def raw(writer, data):
    writer.write(data)
    await writer.drain()


async def flood(writer):
    while not writer.transport.is_closing():
        await raw(writer, b"4000\r\n%b\r\n" % (b"x" * 0x4000))


ERROR_FRAME = frame(
    error={"message": "The model is out of memory", "type": "InternalServerError", "param": None, "code": 500}
)
BEGUN = [head(), chunk("Hel"), chunk("lo")]
LATE = {
    "the connection closes": ([*BEGUN, CLOSE], "upstream_lost"),
    "the connection is reset": ([*BEGUN, RESET], "upstream_lost"),
    "inside of a frame": ([*BEGUN, b'data: {"choices": [{"ind', RESET], "upstream_lost"),
    "inside of a chunk": ([*BEGUN, lambda writer: raw(writer, b"500\r\ndata: {"), CLOSE], "upstream_lost"),
    "a clean end without a finish": ([*BEGUN, END], "upstream_lost"),
    "an error frame": ([*BEGUN, ERROR_FRAME, END], "upstream_error"),
    "an error frame and [DONE]": ([*BEGUN, ERROR_FRAME, DONE, END], "upstream_error"),
    "an error frame and silence": ([*BEGUN, ERROR_FRAME, HANG], "upstream_error"),
    "a frame that cannot be read": ([*BEGUN, b"data: {]\n\n", HANG], "upstream_error"),
    "an abort": ([*BEGUN, chunk(finish="abort"), HANG], "upstream_error"),
    "broken chunks": ([*BEGUN, lambda writer: raw(writer, b"zz\r\n"), HANG], "upstream_error"),
    "silence": ([head(), chunk("Hello"), HANG], "upstream_timeout"),
    "an endless frame": ([*BEGUN, flood], "frame_too_long"),
}


def late_settings(code):
    """Only the case that ends by the timeout has a short one, so that a slow machine ends no other case."""
    timeouts = {"timeouts": {"idle": 0.1}} if code == "upstream_timeout" else {}
    return {"backend": timeouts, "limits": {"frame_bytes": 100_000}}


@pytest.mark.parametrize("case", LATE)
@on_both_loops
async def test_stream_error_after_content_is_the_last_frame_of_a_complete_body(case, caplog):
    script, code = LATE[case]
    async with listening(script, logs={"content": True}, **late_settings(code)) as site:
        answer = await site.chat(stream=True)  # raises if the body has no proper end
    assert answer.status_code == 200
    assert text_of(answer.text) == "Hello", "the content before the error is delivered"
    *_, last = payloads(answer.text)
    assert set(last) == {"error"}
    assert set(last["error"]) == {"message", "type", "param", "code"}
    assert (last["error"]["type"], last["error"]["code"]) == (FAULT, code)
    assert "[DONE]" not in answer.text
    assert 'finish_reason":"' not in answer.text
    assert len(warnings_of(caplog)) == 1
    assert "Hel" not in caplog.text, "the log has no content"


@pytest.mark.parametrize("case", LATE)
async def test_whole_response_that_breaks_off_is_only_an_error(case):
    script, code = LATE[case]
    async with gateway(script, **late_settings(code)) as site:
        answer = await site.chat()
        assert problem(answer)[1:] == (FAULT, code, None)
        assert answer.status_code == (504 if code == "upstream_timeout" else 502)


@on_both_loops
async def test_stream_delivers_all_that_came_before_a_reset_to_a_slow_client():
    pieces = [f"{i:06d} " * 100 for i in range(300)]
    sent = asyncio.Event()

    async def all_sent(_):
        sent.set()

    async with listening([head(), *map(chunk, pieces), all_sent, RESET]) as site:
        body = {"model": "m", "messages": HELLO_MESSAGES, "stream": True}
        async with site.client.stream("POST", "/v1/chat/completions", json=body) as answer:
            await sent.wait()
            text = (await answer.aread()).decode()
    assert text_of(text) == "".join(pieces)
    assert payloads(text)[-1]["error"]["code"] == "upstream_lost"


@pytest.mark.parametrize("end", [CLOSE, RESET, HANG])
@pytest.mark.parametrize("last", [[chunk(finish="stop")], [chunk(finish="stop"), DONE], [DONE]])
async def test_connection_lost_after_the_end_of_the_response_is_no_error(last, end):
    timeouts, steps = {}, [*BEGUN[1:], *last]
    if end is HANG:  # in a single piece, so that the short timeout cannot end the response before its last chunk
        timeouts, steps = {"timeouts": {"idle": 0.2}}, [b"".join(steps)]
    async with gateway([head(), *steps, end], backend=timeouts) as site:
        answer = await site.chat(stream=True)
        assert text_of(answer.text) == "Hello"
        assert payloads(answer.text)[-1] == "[DONE]"
        assert payloads(answer.text)[-2]["choices"][0]["finish_reason"] == "stop"


@pytest.mark.parametrize("streamed", [True, False])
@pytest.mark.parametrize("ask", ["chat", "respond"])
async def test_response_does_not_wait_for_the_end_of_a_body_after_done(ask, streamed, monkeypatch):
    monkeypatch.setattr(relay, "_LAST_WAIT", 0.05)
    async with gateway([*BEGUN, chunk(finish="stop"), DONE, HANG], backend={"timeouts": {"idle": 0}}) as site:
        answer = await getattr(site, ask)(stream=streamed)
        assert answer.status_code == 200 and "lo" in answer.text and '"error":{' not in answer.text
        await site.upstream.gone.wait()


async def test_connection_is_kept_if_the_body_ends_late(monkeypatch):
    """The end of the body comes in a read of its own after [DONE]."""
    monkeypatch.setattr(relay, "_LAST_WAIT", 60)
    async with gateway([*BEGUN, chunk(finish="stop"), DONE, silent(0.05), END], HELLO) as site:
        for text in ("Hello", "Hi"):
            assert text_of((await site.chat(stream=True)).text) == text
        assert len({post.peer for post in site.upstream.posts}) == 1


async def test_tool_call_that_breaks_off_is_delivered_as_far_as_it_came():
    script = [head(), chunk(tool_calls=call("get", '{"city": "Ber', id="call_1")), RESET]
    tools = [{"type": "function", "function": {"name": "get"}}]
    async with gateway(script) as site:
        *chunks, last = payloads((await site.chat(stream=True, tools=tools)).text)
        deltas = [one for chunk in chunks for one in chunk["choices"][0]["delta"].get("tool_calls", ())]
        assert "".join(one["function"]["arguments"] for one in deltas) == '{"city": "Ber'
        assert last["error"]["code"] == "upstream_lost"


async def test_stream_delivers_held_back_markup_before_the_error():
    async with gateway([head(), chunk("a <thi"), RESET]) as site:
        answer = await site.chat(stream=True)
        assert text_of(answer.text) == "a <thi"
        assert payloads(answer.text)[-1]["error"]["code"] == "upstream_lost"


# No response at all


@pytest.mark.parametrize("streamed", [True, False])
async def test_backend_that_refuses_connections_is_a_502(streamed, caplog):
    with closing(socket.create_server(("127.0.0.1", 0))) as sock:
        free = f"http://127.0.0.1:{sock.getsockname()[1]}"
    async with gateway(HELLO, backend={"url": free}) as site:
        answer = await site.chat(stream=streamed)
        assert problem(answer) == (502, FAULT, "upstream_unreachable", None)
        assert "127.0.0.1" not in answer.text
    assert len(warnings_of(caplog)) == 1


async def test_backend_with_an_unknown_host_name_is_a_502():
    async with gateway(HELLO, backend={"url": "http://no-such-host.invalid"}) as site:
        assert problem(await site.chat()) == (502, FAULT, "upstream_unreachable", None)


@pytest.mark.parametrize("end", [CLOSE, RESET])
@pytest.mark.parametrize("before", [[], [b"HTTP/1.1 200 OK\r\n"], [head()]])
async def test_connection_that_ends_before_content_is_a_502(before, end):
    async with gateway([*before, end]) as site:
        assert problem(await site.chat(stream=True)) == (502, FAULT, "upstream_lost", None)


async def test_upstream_response_that_is_not_http_is_a_502():
    async with gateway([b"SSH-2.0-OpenSSH_9.2\r\n", HANG]) as site:
        assert problem(await site.chat(stream=True)) == (502, FAULT, "upstream_error", None)


SILENT = {
    "first_byte, no head": ([HANG], {"first_byte": 0.1}),
    "first_byte, no body": ([head(), HANG], {"first_byte": 0.1}),
    "idle": ([head(), chunk(role="assistant", content=""), HANG], {"idle": 0.1}),
    "total": ([head(), chunk(role="assistant", content=""), HANG], {"total": 0.1}),
    "total, no head": ([HANG], {"total": 0.1}),
}


@pytest.mark.parametrize("streamed", [True, False])
@pytest.mark.parametrize("case", SILENT)
@on_both_loops
async def test_timeout_of_a_silent_backend_is_a_504(case, streamed):
    script, limits = SILENT[case]
    async with gateway(script, backend={"timeouts": limits}) as site:
        assert problem(await site.chat(stream=streamed)) == (504, FAULT, "upstream_timeout", None)
        await until(lambda: site.upstream.connections == 0)


async def test_timeout_total_ends_a_stream_that_still_arrives():
    async def send_slowly(writer):
        frame = chunk("a ")
        while not writer.transport.is_closing():
            await raw(writer, b"%x\r\n%b\r\n" % (len(frame), frame))
            await idle(0.01)

    async with gateway([head(), chunk("a ") * 3, send_slowly], backend={"timeouts": {"total": 0.5}}) as site:
        answer = await site.chat(stream=True)
        assert text_of(answer.text).startswith("a a a ")
        assert payloads(answer.text)[-1]["error"]["code"] == "upstream_timeout"


async def test_timeout_is_not_reached_by_a_shorter_pause():
    go = asyncio.Event()
    script = [head(), chunk("Hi"), go, chunk(finish="stop"), DONE, END]
    async with listening(script, backend={"timeouts": {"idle": 5, "total": 0, "first_byte": 0}}) as site:
        task = asyncio.create_task(site.chat(stream=True))
        await site.upstream.arrived.wait()
        go.set()
        assert payloads((await task).text)[-1] == "[DONE]"


async def test_timeout_connect_is_a_504():
    with ExitStack() as stack:
        full = stack.enter_context(closing(socket.socket()))
        full.bind(("127.0.0.1", 0))
        full.listen(0)
        for _ in range(2):  # the queue is full now, and the kernel lets further connections wait
            waiting = stack.enter_context(closing(socket.socket()))
            waiting.setblocking(False)
            waiting.connect_ex(full.getsockname())
        url = f"http://127.0.0.1:{full.getsockname()[1]}"
        async with gateway(HELLO, backend={"url": url, "timeouts": {"connect": 0.1}}) as site:
            answer = await site.chat(stream=True)
            assert problem(answer) == (504, FAULT, "upstream_timeout", None)


async def test_connection_closed_by_the_backend_is_replaced():
    async with gateway([*HELLO, CLOSE], HELLO) as site:
        for _ in range(2):
            assert text_of((await site.chat(stream=True)).text) == "Hi"


async def test_request_after_a_failed_one_succeeds():
    async with gateway([RESET], whole(b"", 500), HELLO) as site:
        statuses = [(await site.chat(stream=True)).status_code for _ in range(3)]
        assert statuses == [502, 502, 200]


async def test_stream_ignores_chunks_after_an_error_frame():
    script = [*BEGUN, ERROR_FRAME, chunk("never"), chunk(finish="stop"), DONE, END]
    async with gateway(script) as site:
        answer = await site.chat(stream=True)
        assert text_of(answer.text) == "Hello"
        assert set(payloads(answer.text)[-1]) == {"error"}


async def test_error_reaches_a_client_of_http_1_0():
    async with listening(whole(b"", 503)) as site:
        reader, writer = await asyncio.open_connection("127.0.0.1", site.client.base_url.port)
        body = json.dumps({"model": "m", "messages": HELLO_MESSAGES}).encode()
        writer.write(b"POST /v1/chat/completions HTTP/1.0\r\nhost: x\r\ncontent-length: %d\r\n\r\n" % len(body) + body)
        raw = await reader.read()
        writer.close()
        await writer.wait_closed()
        assert b" 503 " in raw.split(b"\r\n")[0]
        assert json.loads(raw.split(b"\r\n\r\n")[1])["error"]["code"] == "server_is_overloaded"
