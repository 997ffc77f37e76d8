"""Test the endpoints that are passed on: the model is replaced, and bodies stream in both directions."""

import asyncio
import json
from contextlib import asynccontextmanager

import httpx
import pytest

from gateway.server.app import create_app
from gateway.server.http import upload
from gateway.server.middleware.concurrency_limit import ConcurrencyLimit
from support.app import bearer, gateway, listening, problem, running, settings
from support.backends import fleet
from support.metrics import scrape
from support.otlp_collector import collecting
from support.recordings import recorded, recordings
from support.upstream import CLOSE, DONE, END, HANG, head, whole
from support.wait import DEADLINE, until

BAD, SPEECH, TRANSCRIPTS = "invalid_request_error", "/v1/audio/speech", "/v1/audio/transcriptions"
USAGE = {"type": "tokens", "input_tokens": 3, "output_tokens": 4, "total_tokens": 7}
TEXT = whole({"text": "Hello", "usage": USAGE})
AUDIO = [head(type="audio/mpeg"), b"ID3", b"\xff\xfb", END]
SPEECH_REQUEST = {"model": "m", "input": "Hello", "voice": "alloy"}
BOUNDARY = {"content-type": "multipart/form-data; boundary=XX"}
MODEL = b'--XX\r\nContent-Disposition: form-data; name="model"\r\n\r\nm\r\n'
FILE = b'--XX\r\nContent-Disposition: form-data; name="file"; filename="a.wav"\r\n\r\n'
LARGE = upload.KEPT + 300_000
FORM_END = b"\r\n--XX--\r\n"


def form(size, first=MODEL, last=b"\r\n"):
    """Return a multipart body with a file of this size between other fields."""
    return first + FILE + b"x" * size + last + FORM_END.removeprefix(b"\r\n")


MODEL_LAST = b"\r\n" + MODEL


async def pieces(body, size=100_000):
    """Yield a body in pieces."""
    for start in range(0, len(body), size):
        yield body[start : start + size]


async def transcribe(site, body, **headers):
    return await site.client.post(TRANSCRIPTS, content=body, headers={**BOUNDARY, **headers})


@asynccontextmanager
async def served_by(handle, request_seconds=60, **options):
    """Yield a client of a gateway whose backend is this function of a reader and a writer.

    request_seconds: as `running` has it.
    """
    server = await asyncio.start_server(handle, "127.0.0.1", 0)
    config = settings(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}", **options)
    try:
        async with (
            running(create_app(config), config, request_seconds) as url,
            httpx.AsyncClient(base_url=url, timeout=DEADLINE) as client,
        ):
            yield client
    finally:
        server.close()


# Requests


@pytest.mark.parametrize(
    ("kind", "path", "theirs"),
    [
        ("openai", SPEECH, SPEECH),
        ("vllm", "/v1/classify", "/classify"),
        ("vllm", "/pooling", "/pooling"),
        ("llamacpp", "/infill", "/infill"),
        ("sglang", "/v1/score/", "/v1/score"),
    ],
)
async def test_passed_json_stays_as_it_is_but_for_the_model(kind, path, theirs):
    body = b'{"b": 12345678901234567890123, "model":"m", "a":null, "t": "\\u00e9"}'
    async with gateway(TEXT, backend={"kind": kind}, model={"upstream_model": "large"}) as site:
        answer = await site.client.post(path, content=body, headers={"accept": "audio/*", "x-secret": "s"})
        (post,) = site.upstream.posts
    assert (post.path, post.headers["accept"], post.headers["content-type"]) == (
        theirs,
        "audio/*",
        "application/json",
    )
    assert post.body == b'{"b":12345678901234567890123,"model":"large","a":null,"t":"\\u00e9"}'
    assert "x-secret" not in post.headers and post.headers["authorization"].startswith("Bearer ")
    assert answer.json() == {"text": "Hello", "usage": USAGE}


@pytest.mark.parametrize(
    ("kind", "sent", "received"),
    [
        ("sglang", ("text_1", "text_2"), ("query", "items")),
        ("sglang", ("queries", "documents"), ("query", "items")),
        ("vllm", ("query", "items"), ("queries", "items")),
        ("vllm", ("text_1", "text_2"), ("text_1", "text_2")),
    ],
)
async def test_passed_json_has_the_fields_names_of_its_kind(kind, sent, received):
    async with gateway(TEXT, backend={"kind": kind}) as site:
        await site.client.post("/v1/score", json={"model": "m", sent[0]: "a", sent[1]: ["b"], "extra": 1})
        assert site.upstream_body == {"model": "m", received[0]: "a", received[1]: ["b"], "extra": 1}


@pytest.mark.parametrize("in_chunks", [True, False])
@pytest.mark.parametrize("size", [10, 300_000, LARGE])
@pytest.mark.parametrize("last", [b"\r\n", MODEL_LAST])
async def test_passed_multipart_stays_as_it_is_but_for_the_model(size, last, in_chunks):
    body = form(size, MODEL if last == b"\r\n" else b"", last)
    async with listening(TEXT, model={"upstream_model": "whisper"}) as site:
        answer = await transcribe(site, pieces(body) if in_chunks else body)
        (post,) = site.upstream.posts
    assert answer.json()["text"] == "Hello"
    assert post.body == body.replace(b"\r\nm\r\n", b"\r\nwhisper\r\n")
    assert post.headers["content-type"] == BOUNDARY["content-type"]


@pytest.mark.parametrize("in_chunks", [True, False])
@pytest.mark.parametrize("size", [10, LARGE])
async def test_passed_multipart_with_two_models_reaches_no_other_model(size, in_chunks):
    body = form(size, MODEL, b"\r\n" + MODEL.replace(b"\r\nm\r\n", b"\r\nother\r\n"))
    async with listening(TEXT) as site:
        answer = await transcribe(site, pieces(body) if in_chunks else body)
        assert problem(answer) == (400, BAD, "invalid_value", "model")
        assert site.upstream.posts == []
        assert (await transcribe(site, form(size))).status_code == 200


@pytest.mark.parametrize("in_chunks", [True, False])
async def test_passed_multipart_with_two_boundaries_reaches_no_other_model(in_chunks):
    body, both = form(10), "multipart/form-data; boundary=XX; boundary=YY"
    async with listening(TEXT) as site:
        sent = pieces(body) if in_chunks else body
        answer = await site.client.post(TRANSCRIPTS, content=sent, headers={"content-type": both})
        (post,) = site.upstream.posts
    assert (answer.status_code, post.body) == (200, body)
    assert post.headers["content-type"] == BOUNDARY["content-type"], "a server may take the last boundary"


async def test_passed_image_edit_may_be_a_json_object():
    body = {"model": "m", "prompt": "Add a boat.", "images": [{"image_url": "data:image/png;base64,AAAA"}]}
    async with gateway(TEXT, TEXT, model={"upstream_model": "flux"}) as site:
        await site.client.post("/v1/images/edits", json=body)
        await site.client.post("/v1/images/edits", content=form(10), headers=BOUNDARY)
        whole, parts = site.upstream.posts
        schema = (await site.client.get("/openapi.json")).json()["paths"]["/v1/images/edits"]["post"]["requestBody"]
    assert (whole.json, whole.headers["content-type"]) == ({**body, "model": "flux"}, "application/json")
    assert parts.body == form(10).replace(b"\r\nm\r\n", b"\r\nflux\r\n")
    assert [*schema["content"]] == ["multipart/form-data", "application/json"]


async def test_passed_transcription_is_streamed_as_it_comes():
    stream = b'--XX\r\nContent-Disposition: form-data; name="stream"\r\n\r\ntrue\r\n'
    delta, gate = b'data: {"type": "transcript.text.delta", "delta": "Hel"}\n\n', asyncio.Event()
    done = b'data: {"type": "transcript.text.done", "text": "Hello", "usage": ' + json.dumps(USAGE).encode() + b"}\n\n"
    body, received = form(1000, MODEL + stream), b""
    async with (
        listening([head(), delta, gate, done, END]) as site,
        site.client.stream("POST", TRANSCRIPTS, content=body, headers=BOUNDARY) as answer,
    ):
        async for piece in answer.aiter_raw():
            received += piece
            gate.set()
        tokens = (await scrape(site)).of("gateway_tokens_total", model="m", kind="output")
    assert site.upstream.posts[0].body == body and received == delta + done
    assert answer.headers["content-type"] == "text/event-stream"
    assert tokens == 4


async def test_passed_query_has_the_model_of_the_backend():
    async with gateway(
        TEXT, models=whole([{"id": 0}]), backend={"kind": "llamacpp"}, model={"upstream_model": "a b"}
    ) as site:
        site.upstream.shown["/props"] = whole({"total_slots": 4})
        answer = await site.client.get("/props?model=m&autoload=")
        assert answer.json() == {"total_slots": 4}
        assert site.upstream.aside[-1].path == "/props?model=a+b&autoload="
        assert (await site.client.get("/v1/slots?model=m")).json() == [{"id": 0}]
        assert site.upstream.gets[-1].path == "/slots?model=a+b"


async def test_passed_verbs_of_a_router_need_the_scope_admin():
    keys = [{"name": "eve", "key": "eve-key", "scopes": ["admin"]}, {"name": "ann", "key": "ann-key"}]
    loaded = whole({"success": True})
    more = {"backend": {"kind": "llamacpp"}, "model": {"upstream_model": "a b"}, "auth": {"keys": keys}}
    async with gateway(loaded, **more) as site:
        for path in "/v1/models/load", "/models/unload":
            answer = await site.client.post(path, json={"model": "m"}, headers=bearer("eve-key"))
            assert answer.json() == {"success": True}
            refused = await site.client.post(path, json={"model": "m"}, headers=bearer("ann-key"))
            assert problem(refused)[::2] == (403, "scope_not_allowed")
    assert [(post.path, post.json) for post in site.upstream.posts] == [
        ("/models/load", {"model": "a b"}),
        ("/models/unload", {"model": "a b"}),
    ]


@pytest.mark.parametrize(
    ("send", "expected"),
    [
        (lambda client: client.post(SPEECH, json={"input": "x"}), (400, BAD, "missing_required_parameter", "model")),
        (lambda client: client.post(SPEECH, json={"model": 5}), (400, BAD, "invalid_type", "model")),
        (lambda client: client.post(SPEECH, content=b"{"), (400, BAD, None, None)),
        (lambda client: client.post(SPEECH, json={"model": "none"}), (404, BAD, "model_not_found", "model")),
        (lambda client: client.get("/props"), (400, BAD, "missing_required_parameter", "model")),
        (lambda client: client.get("/props?model=m"), (400, BAD, "unsupported_value", "model")),
        (
            lambda client: client.post(TRANSCRIPTS, content=FORM_END[2:], headers=BOUNDARY),
            (400, BAD, "missing_required_parameter", "model"),
        ),
        (lambda client: client.post(TRANSCRIPTS, json={}), (415, BAD, "unsupported_content_type", None)),
        (
            lambda client: client.post(TRANSCRIPTS, content=b"x", headers={**BOUNDARY, "content-encoding": "gzip"}),
            (415, BAD, "unsupported_content_encoding", None),
        ),
    ],
)
async def test_passed_request_without_what_the_gateway_reads_is_refused(send, expected):
    async with gateway(TEXT) as site:
        assert problem(await send(site.client)) == expected
        assert not site.upstream.posts


@pytest.mark.parametrize("in_chunks", [True, False])
async def test_passed_upload_is_limited(in_chunks):
    async with listening(TEXT, limits={"upload_bytes": LARGE}) as site:
        answer = await transcribe(site, pieces(form(LARGE)) if in_chunks else form(LARGE))
        assert (await transcribe(site, form(1000))).status_code == 200
    assert problem(answer) == (413, BAD, "request_too_large", None)


async def test_passed_request_is_subject_to_keys():
    keys = [
        {"name": "a", "key": "key-of-a", "models": ["other"]},
        {"name": "b", "key": "key-of-b", "endpoints": ["/v1/audio"], "scopes": ["inference"]},
        {"name": "c", "key": "key-of-c", "scopes": ["admin"]},
    ]
    async with gateway(AUDIO, models=whole([]), backend={"kind": "llamacpp"}, auth={"keys": keys}) as site:
        post, get = site.client.post, site.client.get
        slots = "/slots?model=m"
        for sent, status, code in (
            (post(SPEECH, json=SPEECH_REQUEST), 401, "invalid_api_key"),
            (post("/infill", json=SPEECH_REQUEST, headers=bearer("key-of-a")), 403, "model_not_allowed"),
            (post("/infill", json=SPEECH_REQUEST, headers=bearer("key-of-b")), 403, "endpoint_not_allowed"),
            (get(slots, headers=bearer("key-of-b")), 403, "scope_not_allowed"),
        ):
            assert problem(await sent)[::2] == (status, code)
        assert (await get(slots, headers=bearer("key-of-c"))).json() == []


async def test_passed_request_counts_against_limits():
    limits = {"limits": {"tokens_per_minute": 100}}
    async with gateway(TEXT, [head(), b"data: {}\n\n", END], model=limits) as site:
        first = await site.client.post(SPEECH, json=SPEECH_REQUEST)
        second = await site.client.post(SPEECH, json=SPEECH_REQUEST)
        third = await transcribe(site, form(1000))
        fourth = await site.client.get("/props?model=m")
    assert int(first.headers["x-ratelimit-remaining-tokens"]) > int(second.headers["x-ratelimit-remaining-tokens"])
    assert int(second.headers["x-ratelimit-remaining-tokens"]) < 100 - 7
    assert [answer.status_code for answer in (third, fourth)] == [200, 400]


async def test_passed_form_counts_against_token_limits_by_the_usage_of_its_response():
    limits = {"limits": {"tokens_per_day": 8}}
    async with listening(TEXT, whole({"text": "Hello"}), model=limits) as site:
        answers = [await transcribe(site, form(1000)) for _ in range(3)]
    assert [answer.status_code for answer in answers] == [200, 200, 429]
    assert [answer.headers["x-ratelimit-remaining-tokens"] for answer in answers[:2]] == ["7", "0"]


async def test_passed_request_counts_against_the_concurrency_limit():
    limit = ConcurrencyLimit()
    limit.in_progress = 3
    app = create_app(settings("http://127.0.0.1:1", limits={"concurrent": 3}), limit)
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://gateway") as client:
        assert problem(await client.post(SPEECH, json=SPEECH_REQUEST))[::2] == (503, "server_is_overloaded")


# Responses


async def test_passed_bytes_keep_their_type_and_length():
    body = [b"HTTP/1.1 200 OK\r\ncontent-type: audio/wav\r\ncontent-length: 5\r\ncontent-disposition: inline\r\n"
            b"x-secret: s\r\n\r\nRIFF!"]  # fmt: skip
    async with listening(AUDIO, body, [b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n"]) as site:
        chunked, sized, empty = [await site.client.post(SPEECH, json=SPEECH_REQUEST) for _ in range(3)]
    assert (chunked.content, chunked.headers["content-type"]) == (b"ID3\xff\xfb", "audio/mpeg")
    assert (sized.content, sized.headers["content-length"], sized.headers["content-disposition"]) == (
        b"RIFF!",
        "5",
        "inline",
    )
    assert "x-secret" not in sized.headers
    assert (empty.content, empty.headers["content-type"]) == (b"", "application/octet-stream")


async def test_passed_page_of_a_backend_has_no_rights_in_a_browser():
    async with gateway(AUDIO, backend={"kind": "llamacpp"}) as site:
        site.upstream.shown["/props"] = whole(b"<script>1</script>", type="text/html")
        answer = await site.client.get("/v1/props?model=m")
    assert (answer.text, answer.headers["content-type"]) == ("<script>1</script>", "text/html")
    assert (answer.headers["x-content-type-options"], answer.headers["content-security-policy"]) == (
        "nosniff",
        "sandbox",
    )


async def test_passed_stream_is_sent_as_it_comes():
    gate = asyncio.Event()
    async with (
        listening([head(), b'data: {"type": "speech.audio.delta"}\n\n', gate, DONE, END]) as site,
        site.client.stream("POST", SPEECH, json={**SPEECH_REQUEST, "stream_format": "sse"}) as answer,
    ):
        received = b""
        async for piece in answer.aiter_raw():
            received += piece
            gate.set()
    assert received == b'data: {"type": "speech.audio.delta"}\n\n' + DONE
    assert answer.headers["content-type"] == "text/event-stream"


@pytest.mark.parametrize(
    ("type", "begun", "rest"),
    [
        ("text/event-stream", b"data: {", b"\n\nevent: error\ndata: "),
        ("application/x-ndjson", b'{"a": 1}\n', b"\n"),
    ],
)
async def test_passed_stream_that_breaks_ends_with_an_error(type, begun, rest, caplog):
    async with listening([head(type=type), begun, CLOSE]) as site:
        answer = await site.client.post(SPEECH, json=SPEECH_REQUEST)
    assert answer.content.startswith(begun + rest)
    error = json.loads(answer.content.removeprefix(begun + rest))["error"]
    assert (answer.status_code, error["code"]) == (200, "upstream_lost")
    assert "backend up: upstream_lost" in caplog.text


@pytest.mark.parametrize("type", ["audio/mpeg", "application/json"])
async def test_passed_body_that_breaks_is_seen_to_be_incomplete(type, caplog):
    async with listening([head(type=type), b"ID3", CLOSE]) as site:
        with pytest.raises(httpx.RemoteProtocolError):
            await site.client.post(SPEECH, json=SPEECH_REQUEST)
    assert [line.name for line in caplog.records if line.levelname in ("WARNING", "ERROR")] == ["gateway"]


async def test_passed_response_ends_with_its_client():
    async with listening([head(type="audio/mpeg"), b"ID3", HANG]) as site:
        async with site.client.stream("POST", SPEECH, json=SPEECH_REQUEST) as answer:
            async for _ in answer.aiter_raw():
                break
        await site.upstream.gone.wait()
        limiter = site.app.state.directory.backends["up"].limiter
        await until(lambda: limiter.queue.active, 0)


@pytest.mark.parametrize("leaves", [True, False])
async def test_passed_upload_ends_with_a_client_that_leaves_or_stops(leaves):
    gone, begun = asyncio.Event(), asyncio.Event()

    async def backend(reader, writer):
        await reader.readuntil(b"name")
        begun.set()
        while await reader.read(1 << 16):
            pass
        gone.set()
        writer.close()

    head = f"POST {TRANSCRIPTS} HTTP/1.1\r\nhost: x\r\ncontent-type: {BOUNDARY['content-type']}\r\ncontent-length: {2 * LARGE}"
    async with served_by(backend, request_seconds=60 if leaves else 0.1) as client:
        reader, writer = await asyncio.open_connection(client.base_url.host, client.base_url.port)
        writer.write(head.encode() + b"\r\n\r\n" + form(LARGE))
        await begun.wait()
        if leaves:
            writer.close()
        await gone.wait()
        assert await reader.read() == b""
        writer.close()


# Failures


async def test_passed_request_goes_to_another_backend_after_a_failure():
    async with fleet([whole({"error": "busy"}, 503)], [AUDIO]) as site:
        answer = await site.client.post(SPEECH, json=SPEECH_REQUEST)
        assert (answer.content, site.posts()) == (b"ID3\xff\xfb", [1, 1])


async def test_passed_request_skips_backends_of_kinds_without_the_endpoint():
    kinds = [{"kind": "ollama"}, {"kind": "vllm"}, {"kind": "llamacpp"}, {"kind": "vllm"}]
    async with fleet([AUDIO], [whole({"error": "busy"}, 503)], [AUDIO], [AUDIO], backends=kinds) as site:
        answer = await site.client.post(SPEECH, json=SPEECH_REQUEST)
        assert (answer.content, site.posts()) == (b"ID3\xff\xfb", [0, 1, 0, 1])


async def test_passed_request_without_a_further_endpoint_has_the_error_of_the_backend():
    kinds = [{"kind": "vllm"}, {"kind": "ollama"}]
    async with fleet([whole({"error": "busy"}, 503)], [AUDIO], backends=kinds) as site:
        assert problem(await site.client.post(SPEECH, json=SPEECH_REQUEST))[0] == 503 and site.posts() == [1, 0]
    async with fleet([AUDIO], [AUDIO], backends=[{"kind": "ollama"}] * 2) as site:
        assert problem(await site.client.post(SPEECH, json=SPEECH_REQUEST)) == (400, BAD, "unsupported_value", "model")
        assert site.posts() == [0, 0]


@pytest.mark.parametrize("size", [1000, LARGE])
async def test_passed_upload_goes_to_another_backend_if_one_cannot_be_reached(size):
    async with fleet([TEXT], [TEXT], backends=({"url": "http://127.0.0.1:1"},)) as site:
        answer = await transcribe(site, form(size))
        assert (answer.status_code, site.posts()) == (200, [0, 1])
        assert site.upstreams["b1"].posts[0].body == form(size)


@pytest.mark.parametrize(("last", "posts"), [(b"\r\n", [1, 0]), (MODEL_LAST, [1, 1])])
async def test_passed_upload_is_sent_again_only_if_it_is_kept(last, posts):
    body = form(LARGE, MODEL if last == b"\r\n" else b"", last)
    async with fleet([whole({"error": "busy"}, 503)], [TEXT]) as site:
        answer = await transcribe(site, body)
        assert site.posts() == posts
        assert answer.status_code == (503 if posts[1] == 0 else 200)


async def test_passed_upload_ends_early_if_the_backend_refuses_it():
    refusal = b"HTTP/1.1 413 No\r\ncontent-length: 9\r\n\r\ntoo large"

    async def backend(reader, writer):
        await reader.readuntil(b"name")
        writer.write(refusal)
        await writer.drain()
        while await reader.read(1 << 16):
            pass
        writer.close()

    async with served_by(backend) as client:
        answer = await client.post(TRANSCRIPTS, content=form(20 << 20), headers=BOUNDARY)
        assert problem(answer)[0] == 413


async def test_passed_upload_to_a_backend_that_does_not_read_times_out():
    async def backend(reader, writer):
        await reader.readuntil(b"name")
        writer.transport.pause_reading()
        await done.wait()
        writer.transport.abort()

    done = asyncio.Event()
    async with served_by(backend, backend={"timeouts": {"idle": 0.1}}) as client:
        answer = await client.post(TRANSCRIPTS, content=form(20 << 20), headers=BOUNDARY)
        done.set()
    assert problem(answer)[::2] == (504, "upstream_timeout")
    assert (
        answer.json()["error"]["message"]
        == "Backend 'up' read nothing of the request's body for 0.1 s (timeouts.idle)."
    )


async def test_passed_upload_waits_for_its_slot():
    gate = asyncio.Event()
    async with listening([gate, *TEXT], backend={"concurrent": 1}) as site:
        sent = [asyncio.create_task(transcribe(site, form(LARGE))) for _ in range(2)]
        await site.upstream.arrived.wait()
        turns = site.app.state.directory.backends["up"].limiter.queue
        await until(lambda: turns.waiting, 1)
        assert len(site.upstream.posts) == 1
        gate.set()
        assert [(await one).status_code for one in sent] == [200, 200]


async def test_passed_request_with_a_silent_backend_times_out():
    async with listening([HANG], backend={"timeouts": {"first_byte": 0.05}}) as site:
        assert problem(await site.client.post(SPEECH, json=SPEECH_REQUEST))[::2] == (504, "upstream_timeout")


async def test_passed_request_to_a_server_without_the_endpoint_names_it():
    async with gateway(whole({"detail": "Not Found"}, 404)) as site:
        answer = await site.client.post(SPEECH, json=SPEECH_REQUEST)
    assert problem(answer) == (400, BAD, "unsupported_value", "model")
    assert answer.json()["error"]["message"] == "Backend 'up' has no endpoint /v1/audio/speech."


# What is observed


async def test_passed_request_is_counted_under_its_path():
    async with gateway(TEXT) as site:
        answer = await site.client.post("/audio/speech", json=SPEECH_REQUEST, headers={"x-gateway-debug": "1"})
        metrics = (await site.client.get("/metrics")).text
    assert answer.headers["x-gateway-backend"] == "up"
    assert 'gateway_requests_total{backend="up",endpoint="/v1/audio/speech",model="m",status="200"} 1.0' in metrics


async def test_passed_request_has_spans_with_its_operation():
    with collecting() as collector:
        traced = {"tracing": {"enabled": True, "url": collector.url}}
        async with listening(AUDIO, model={"upstream_model": "large"}, **traced) as site:
            await site.client.post(SPEECH, json=SPEECH_REQUEST)
            assert "traceparent" in site.upstream.posts[0].headers
        (request,), (attempt,) = collector.of("server"), collector.of("client")
    assert (request.name, attempt.name) == ("POST /v1/audio/speech", "audio_speech large")


async def test_passed_bytes_are_recorded_by_their_length(tmp_path):
    async with listening(AUDIO, TEXT, **recorded(tmp_path)) as site:
        await site.client.post(SPEECH, json=SPEECH_REQUEST)
        await transcribe(site, form(1000))
    speech, transcript = recordings(tmp_path)
    bodies = [entry.body for entry in (*speech.entries, *transcript.entries) if hasattr(entry, "body")]
    sent = [
        entry.data for entry in (*speech.entries, *transcript.entries) if type(entry).__name__ == "ResponseDataEntry"
    ]
    assert [json.loads(body) for body in bodies] == [
        SPEECH_REQUEST,
        SPEECH_REQUEST,
        *[{"model": "m", "multipart_bytes": len(form(1000))}] * 2,
    ]
    assert sent[-1] == json.dumps({"text": "Hello", "usage": USAGE}).encode() and b"".join(sent[:-1]).startswith(b"[")
