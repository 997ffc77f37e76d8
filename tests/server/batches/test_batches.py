"""Test /v1/batches over HTTP: results, errors, owners, limits, cancellation and expiry."""

import asyncio

import pytest
from msgspec.structs import replace

from gateway.server.batches import batch_run
from gateway.store import batches as stored_batches
from support.app import gateway, problem
from support.batches import BODY, CHAT, begin, cancel, chat_line, ended, line, output, post, retrieve, upload
from support.stored import ANN, BOB, TENANTS, get_json
from support.upstream import COUNTS, HELLO, whole
from support.wait import until

BAD = "invalid_request_error"
FAILED = whole({"error": {"message": "no"}}, status=400)


async def test_batch_runs_its_lines_and_writes_both_files():
    async with gateway(HELLO, FAILED, HELLO) as site:
        lines = [chat_line("a"), b"", chat_line("b"), chat_line("ä\n")]
        made = await begin(site.client, lines, metadata={"k": "v"})
        assert made.items() >= {"object": "batch", "status": "validating", "endpoint": CHAT, "errors": None}.items()
        assert made["expires_at"] == made["created_at"] + 86_400
        batch = await ended(site.client, made)
        assert (batch["status"], batch["metadata"]) == ("completed", {"k": "v"})
        assert batch["request_counts"] == {"total": 3, "completed": 2, "failed": 1}
        assert batch["in_progress_at"] <= batch["finalizing_at"] <= batch["completed_at"]
        good, bad = await output(site.client, batch), await output(site.client, batch, "error")
        assert {one["custom_id"] for one in good + bad} == {"a", "b", "ä\n"}
        assert len({one["id"] for one in good + bad}) == 3
        assert all(one["error"] is None and one["response"]["request_id"].startswith("req_") for one in good + bad)
        assert good[0]["response"]["body"]["choices"][0]["message"]["content"] == "Hi"
        assert (good[0]["response"]["status_code"], bad[0]["response"]["status_code"]) == (200, 400)
        file = await get_json(site.client, f"files/{batch['output_file_id']}")
        assert (file["purpose"], file["filename"]) == ("batch_output", f"{batch['id']}_output.jsonl")
        assert file["expires_at"] == file["created_at"] + 30 * 86_400
        async with site.app.state.store.reading() as db:
            assert await stored_batches.finished(db, batch["id"]) == []
        assert problem(await cancel(site.client, batch)) == (400, BAD, "invalid_value", "id")


EMBEDDED = whole({"data": [{"index": 0, "embedding": [1.0]}], "usage": {"prompt_tokens": 1, "total_tokens": 1}})
TEXT = whole({"id": "up-1", "object": "text_completion", "created": 1, "choices": [{"index": 0, "text": "Hi", "finish_reason": "stop"}], "usage": COUNTS})  # fmt: skip


@pytest.mark.parametrize(
    ("endpoint", "body", "script", "kind"),
    [
        ("/v1/responses", {"model": "m", "input": "Hello"}, HELLO, "response"),
        ("/v1/messages", {**BODY, "max_tokens": 9}, HELLO, "message"),
        ("/v1/completions", {"model": "m", "prompt": "Hello"}, TEXT, "text_completion"),
        ("/v1/embeddings", {"model": "m", "input": "Hello"}, EMBEDDED, "list"),
    ],
)
async def test_batch_of_each_endpoint(endpoint, body, script, kind):
    async with gateway(script) as site:
        batch = await ended(site.client, await begin(site.client, [line("a", body, endpoint)], endpoint=endpoint))
        assert batch["request_counts"] == {"total": 1, "completed": 1, "failed": 0}, await output(
            site.client, batch, "error"
        )
        (one,) = await output(site.client, batch)
        response_body = one["response"]["body"]
        assert kind in (response_body.get("object"), response_body.get("type"))


async def test_batch_with_invalid_lines_fails_and_names_them():
    lines = [
        chat_line("a"), b"{", b"[]", b'{"custom_id": "b"}', line(1), line("c", url="/v1/responses"),
        line("d", method="GET"), line(""), chat_line("a"), chat_line("e", stream=True), line("f", "x"), b"x" * 3000,
        chat_line("g"),
    ]  # fmt: skip
    async with gateway(HELLO, limits={"body_bytes": 2000}) as site:
        batch = await ended(site.client, await begin(site.client, lines))
        assert (batch["status"], batch["output_file_id"], site.upstream.posts) == ("failed", None, [])
        assert [(one["line"], one["code"], one["param"]) for one in batch["errors"]["data"]] == [
            (2, "invalid_json_line", None),
            (3, "invalid_json_line", None),
            (4, "missing_required_parameter", "method"),
            (5, "invalid_type", None),
            (6, "invalid_url", "url"),
            (7, "invalid_method", "method"),
            (8, "invalid_value", "custom_id"),
            (9, "duplicate_custom_id", "custom_id"),
            (10, "unsupported_value", "body.stream"),
            (11, "invalid_type", None),
            (12, "line_too_long", None),
        ]
        batch = await ended(site.client, await begin(site.client, [b"{"] * 200))
        assert len(batch["errors"]["data"]) == 100


@pytest.mark.parametrize(
    ("lines", "code"), [([b" ", b""], "empty_file"), ([chat_line(str(i)) for i in range(4)] + [b""], "too_many_lines")]
)
async def test_batch_with_a_wrong_number_of_lines_fails(lines, code):
    async with gateway(limits={"batch_lines": 3}) as site:
        batch = await ended(site.client, await begin(site.client, lines))
        assert [(one["code"], one["line"]) for one in batch["errors"]["data"]] == [(code, None)]


async def test_batch_belongs_to_its_key():
    async with gateway(HELLO, auth=TENANTS) as site:
        file = await upload(site.client, [chat_line("a")], ANN)
        assert problem(await post(site.client, file, BOB)) == (404, BAD, None, "input_file_id")
        made = (await post(site.client, file, ANN)).json()
        other = (
            await post(site.client, file, ANN, output_expires_after={"anchor": "created_at", "seconds": 3600})
        ).json()
        assert (await post(site.client, file)).status_code == 401
        assert problem(await cancel(site.client, made, BOB)) == (404, BAD, None, "id")
        assert (await site.client.get(f"/v1/batches/{made['id']}", headers=BOB)).status_code == 404
        assert (await site.client.get("/v1/batches", headers=BOB)).json()["data"] == []
        ids = {made["id"], other["id"]}
        listed = [(await site.client.get("/v1/batches", headers=ANN, params={"limit": 1})).json()]
        params = {"limit": 1, "after": listed[0]["last_id"]}
        listed.append((await site.client.get("/v1/batches", headers=ANN, params=params)).json())
        assert [page["has_more"] for page in listed] == [True, False]
        assert {page["data"][0]["id"] for page in listed} == ids
        unknown = await site.client.get("/v1/batches", headers=ANN, params={"after": "none"})
        assert problem(unknown) == (400, BAD, "invalid_value", "after")
        oldest = (await site.client.get("/v1/batches", headers=ANN, params={"order": "asc", "limit": 1})).json()
        newer = {"order": "asc", "after": oldest["last_id"]}
        assert len((await site.client.get("/v1/batches", headers=ANN, params=newer)).json()["data"]) == 1
        batch = await ended(site.client, other, ANN)
        assert await output(site.client, batch, headers=ANN)
        file = (await site.client.get(f"/v1/files/{batch['output_file_id']}", headers=ANN)).json()
        assert file["expires_at"] == file["created_at"] + 3600


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"endpoint": "/v1/rerank"}, (400, BAD, "invalid_value", "endpoint")),
        ({"completion_window": "1h"}, (400, BAD, "invalid_value", "completion_window")),
        ({"metadata": {"k": 1}}, (400, BAD, "invalid_type", "metadata.k")),
    ],
)
async def test_batch_with_an_invalid_parameter_is_refused(fields, expected):
    async with gateway() as site:
        body = {"input_file_id": "file-none", "endpoint": CHAT, "completion_window": "24h", **fields}
        assert problem(await site.client.post("/v1/batches", json=body)) == expected


async def test_batch_of_a_file_with_another_purpose_is_refused():
    async with gateway() as site:
        file = await upload(site.client, [chat_line("a")], purpose="user_data")
        assert problem(await post(site.client, file)) == (400, BAD, "invalid_value", "input_file_id")


MEMORY = pytest.mark.parametrize("store", [{}, {"url": "sqlite://"}], ids=["file", "memory"])


@MEMORY
async def test_cancelled_batch_keeps_finished_lines(store):
    gate = asyncio.Event()
    async with gateway(HELLO, [gate, *HELLO], store=store) as site:
        made = await begin(site.client, [chat_line("a"), chat_line("b")])
        await until(lambda: _completed(site, made, 1))
        assert (await cancel(site.client, made)).json()["status"] == "cancelling"
        batch = await ended(site.client, made)
        gate.set()
        assert (batch["status"], batch["errors"], batch["error_file_id"]) == ("cancelled", None, None)
        assert batch["cancelling_at"] <= batch["cancelled_at"] and batch["finalizing_at"] is None
        assert [one["response"]["status_code"] for one in await output(site.client, batch)] == [200]
        assert len(site.upstream.posts) == 2


async def _completed(site, batch, count):
    return (await retrieve(site.client, batch))["request_counts"]["completed"] == count


async def _change(site, made, **fields):
    """Change the row of a batch."""
    async with site.app.state.store.writing() as db:
        batch = await stored_batches.find(db, "", made["id"], lock=True)
        await stored_batches.save(db, replace(batch, **fields), 0)


@MEMORY
@pytest.mark.parametrize("written_at_a_time", [1, 2])
async def test_expired_batch_names_unfinished_lines(store, written_at_a_time, monkeypatch):
    monkeypatch.setattr(batch_run, "_EXPIRED", written_at_a_time)
    gate = asyncio.Event()
    async with gateway(HELLO, [gate, *HELLO], store=store) as site:
        made = await begin(site.client, [chat_line("a"), chat_line("b"), chat_line("c"), chat_line("d")])
        await until(lambda: _completed(site, made, 1))
        await _change(site, made, created_at=made["created_at"] - 86_400)
        batch = await ended(site.client, made)
        gate.set()
        assert (batch["status"], batch["request_counts"]) == ("expired", {"total": 4, "completed": 1, "failed": 3})
        assert batch["expired_at"] and len(await output(site.client, batch)) == 1
        errors = await output(site.client, batch, "error")
        assert {one["error"]["code"] for one in errors} == {"batch_expired"}
        assert [one["response"] for one in errors] == [None, None, None]


async def test_batch_whose_input_is_deleted_fails():
    async with gateway(HELLO) as site:
        file = await upload(site.client, [chat_line("a")])
        site.app.state.batches.wake = lambda: None  # claimed after the deletion
        made = (await post(site.client, file)).json()
        await site.client.delete(f"/v1/files/{file}")
        del site.app.state.batches.wake
        site.app.state.batches.wake()
        batch = await ended(site.client, made)
        assert (batch["status"], batch["errors"]["data"][0]["code"]) == ("failed", "file_not_found")


async def test_batch_takes_only_slots_that_other_requests_leave_free():
    gate = asyncio.Event()
    limits = {"concurrent": 1, "queue": {"length": 1, "seconds": 0}}
    async with gateway([gate, *HELLO], HELLO, backend=limits) as site:
        turns = site.app.state.directory.backends["up"].limiter.queue
        first = asyncio.create_task(site.chat())
        await until(lambda: len(site.upstream.posts) == 1)
        made = await begin(site.client, [chat_line("a"), chat_line("b")])
        await until(lambda: len(turns._spare) == 2)
        second = asyncio.create_task(site.chat())
        await until(lambda: turns.waiting == 1)
        gate.set()
        assert [(await one).status_code for one in (first, second)] == [200, 200]
        assert (await ended(site.client, made))["request_counts"]["completed"] == 2
        contents = [post.json["messages"][0]["content"] for post in site.upstream.posts]
        assert contents == ["Hello", "Hello", "a", "b"]


async def test_user_of_a_proxy_cannot_create_a_batch():
    signed_in = {
        "server": {"forwarded_allow_ips": ["127.0.0.1"]},
        "auth": {"keys": TENANTS["keys"], "header": {"scopes": {"staff": ["inference"]}}},
    }
    async with gateway(**signed_in) as site:
        user = {"x-forwarded-user": "eve", "x-forwarded-groups": "staff"}
        assert problem(await post(site.client, "file-none", user)) == (403, BAD, "api_key_required", None)
