"""Test responses in the background: accept, poll, cancel, delete and continue them, with and without a stream."""

import asyncio
import logging
from contextlib import nullcontext
from types import SimpleNamespace

import httpx
import pytest
from sqlalchemy import text, update

from gateway.errors import StoreFailed
from gateway.server.jobs.job import BackgroundJob
from gateway.server.jobs.log_writer import JobContext, Lease, LogWriter
from gateway.store import jobs as store_jobs
from gateway.store.records import NewJob, NewResponse, OpenedResponse
from gateway.store.tables import jobs
from support.app import bearer, gateway, listening, problem, streaming
from support.jobs import (
    BAD,
    CHUNKS,
    EVERYTHING,
    F,
    accepted,
    asking,
    cancelled,
    ended,
    get,
    per_event,
    rows,
    slowly,
    stopping,
    where,
)
from support.responses import message_texts
from support.responses_events import checked, checked_whole
from support.sse import events
from support.upstream import (
    CLOSE,
    COUNTS,
    DONE,
    END,
    HANG,
    HELLO,
    Upstream,
    call,
    chunk,
    frame,
    head,
    stream,
    whole,
)
from support.wait import DEADLINE, idle, until

HI = [chunk("Hi"), chunk(finish="stop"), frame(choices=[], usage=COUNTS)]
TOO_LONG = whole({"error": {"message": "This model's maximum context length is 9 tokens.", "code": 400}}, status=400)
# The gateway asks the first backend for its template, and the second one for the token count of a prompt.
LISTS = {"backend": {"kind": "llamacpp"}, "model": {"format": "auto"}}
COUNTS_FIRST = {"backend": {"kind": "llamacpp"}, "model": {"format": "native"}}
COMPACTED = {"context_management": [{"type": "compaction", "compact_threshold": 1000}]}


# Accept and poll


async def test_background_response_is_accepted_at_once_and_polled(store_url, store):
    script, gates = slowly(*HI)
    async with gateway(script, **where(store_url)) as site:
        answer = await site.respond(background=True, metadata={"a": "b"})
        queued = checked_whole(answer.content)
        assert (answer.status_code, answer.headers["content-type"]) == (200, "application/json")
        assert (queued["status"], queued["background"], queued["output"]) == ("queued", True, [])
        path = queued["id"]
        assert (await get(site, path)).json() == {**queued, "status": "in_progress"}
        (item,) = (await get(site, f"{path}/input_items")).json()["data"]
        assert (item["role"], item["content"][0]["text"]) == ("user", "Hello")
        for gate in gates:
            assert (await get(site, path)).json()["status"] == "in_progress"
            gate.set()
        await ended(site, path)
        response = checked_whole((await get(site, path)).content)
        assert (response["status"], message_texts(response), response["usage"]["total_tokens"]) == (
            "completed",
            ["Hi"],
            9,
        )
        news = {"status", "output", "usage", "completed_at"}
        assert {name for name in response if response[name] != queued[name]} == news == news & queued.keys()
        assert (await get(site, f"{path}/input_items")).json()["data"] == [item]
        assert len(site.upstream.posts) == 1 and site.upstream_body["stream"] is True
    assert await rows(store) == {"threads": 1, "items": 2, "responses": 1}


async def test_background_response_keeps_its_warnings():
    called = stream(chunk(tool_calls=call("f", "[1", id="c1")), chunk(finish="tool_calls"))
    async with gateway(called) as site:
        path = await accepted(site)
        response = await ended(site, path)
        assert [(item["status"], item["arguments"]) for item in response["output"]] == [("completed", "[1")]
        kept = await get(site, path)
        assert "invalid:tool_calls.function.arguments" in kept.headers["x-gateway-warnings"].split(", ")
        assert checked_whole(kept.content) == response


async def test_background_response_gets_a_new_round_for_a_required_tool_call():
    called = stream(chunk(tool_calls=call("f", "{}", id="c1")), chunk(finish="tool_calls"))
    tools = [{"type": "function", "name": "f", "parameters": {"type": "object"}}]
    async with gateway(stream(*HI), called) as site:
        path = (await site.respond(background=True, tools=tools, tool_choice="required")).json()["id"]
        await ended(site, path)
        response = checked_whole((await get(site, path)).content)
        assert len(site.upstream.posts) == 2
    assert [item["type"] for item in response["output"]] == ["function_call"]


@pytest.mark.parametrize(("finish", "reason"), [("length", "max_output_tokens"), ("content_filter", "content_filter")])
async def test_background_response_that_is_incomplete_says_why(finish, reason):
    async with gateway(stream(chunk("Hi"), chunk(finish=finish))) as site:
        response = await ended(site, await accepted(site))
    assert (response["status"], response["incomplete_details"]) == ("incomplete", {"reason": reason})
    assert response["output"][0]["status"] == "incomplete"


async def test_background_response_completes_after_its_client_leaves(store_url):
    script, gates = slowly(*HI)
    async with listening(script, **where(store_url)) as site:
        async with httpx.AsyncClient(base_url=site.client.base_url) as leaving:
            request = {"model": "m", "input": "a", "background": True}
            id = (await leaving.post("/v1/responses", json=request)).json()["id"]
        for gate in gates:
            gate.set()
        assert (await ended(site, id))["status"] == "completed"


@pytest.mark.parametrize("streamed", [False, True])
async def test_background_client_that_leaves_before_the_id_leaves_no_rows(streamed, store_url, store):
    async with listening([HANG], **LISTS, **where(store_url)) as site:
        site.upstream.shown["/props"] = [HANG]
        request = {"model": "m", "input": "a", "background": True, "stream": streamed, "tools": F}
        leaving = asyncio.create_task(site.client.post("/v1/responses", json=request))
        await until(lambda: bool(site.upstream.aside))
        leaving.cancel()
        await until(lambda: rows(store), {})
        assert site.upstream.posts == []


class SlowRequest:
    """A request whose job is stored once `go` is set, or fails then."""

    identity, params = SimpleNamespace(id="resp_a"), SimpleNamespace(background=True, streamed=False)

    def __init__(self, store, failing):
        self.store, self.failing, self.begun, self.go = store, failing, asyncio.Event(), asyncio.Event()

    async def open_job(self, job):
        self.begun.set()
        await self.go.wait()
        if self.failing:
            raise StoreFailed("It is down.")
        body = {"id": "resp_a", "status": "in_progress", "output": []}
        await self.store.write_grouped(store_jobs.open, OpenedResponse(NewResponse("t", body, [], 0), job))


@pytest.mark.parametrize("failing", [False, True])
async def test_job_whose_client_leaves_while_it_is_stored_leaves_no_rows(failing, store):
    lease, request = Lease("me"), SlowRequest(store, failing)
    opening = asyncio.create_task(
        BackgroundJob(JobContext(store, lease, LogWriter(store, lease), 0, 1), "t", request).open(b"{}")
    )
    await request.begun.wait()
    opening.cancel()
    await asyncio.sleep(0)
    request.go.set()
    with pytest.raises(asyncio.CancelledError):
        await opening
    assert await rows(store) == {}


async def test_jobs_at_once_share_transactions(store):
    sizes, plain = [], store_jobs.open

    async def counting(db, new):
        sizes.append(len(new))
        await plain(db, new)

    def opened(id):
        body = {"id": id, "status": "in_progress", "output": []}
        return OpenedResponse(NewResponse("t", body, [], 0), NewJob("t", id, b"{}", "me", 0, 1))

    await asyncio.gather(*(store.write_grouped(counting, opened(f"resp_{i}")) for i in range(300)))
    assert sum(sizes) == 300 and len(sizes) < 8
    assert (await rows(store))["jobs"] == 300


@pytest.mark.parametrize("streamed", [False, True])
async def test_background_request_with_an_error_is_refused_and_leaves_no_rows(streamed, store_url, store):
    async with gateway(HELLO, **where(store_url)) as site:
        lists = (await site.client.post("/v1/conversations", json={})).json()["id"]
        before = await rows(store)
        strict = {"headers": {"x-gateway-strict": "1"}}
        for fields, error in (
            ({"store": False}, (400, BAD, None, "background")),
            ({"input": 5}, (400, BAD, "invalid_type", "input")),
            ({"input": [{"type": "function_call_output", "call_id": "x", "output": ""}]}, (400, BAD, None, "input")),
            ({"model": "nobody"}, (404, BAD, "model_not_found", "model")),
            ({"previous_response_id": "resp_x"}, (400, BAD, "previous_response_not_found", "previous_response_id")),
            ({"conversation": "conv_x"}, (404, BAD, None, "conversation")),
            ({"top_k": 1, **strict}, (400, BAD, "unknown_parameter", "top_k")),
            ({"top_k": 1, "conversation": lists, **strict}, (400, BAD, "unknown_parameter", "top_k")),
            (
                {"input": [{"role": "user", "content": [FILE]}]},
                (400, BAD, "invalid_value", "input[0].content[0].file_data"),
            ),
        ):
            for _ in range(2):  # a conversation can be gone on from at once
                answer = await site.respond(**{"background": True, "stream": streamed, **fields})
                assert problem(answer) == error, answer.text
            assert await rows(store) == before
        assert site.upstream.posts == []


FILE = {"type": "input_file", "file_data": "data:application/pdf;base64,???", "filename": "a.pdf"}


async def test_background_stream_options_need_a_stream():
    async with gateway(HELLO) as site:
        padded = {"stream_options": {"include_obfuscation": True}}
        assert problem(await site.respond(background=True, **padded))[3] == "stream_options"
        sent = events((await site.respond(background=True, stream=True, **padded)).text)
    assert all(event["obfuscation"] for event in sent if event["type"].endswith(".delta"))


@pytest.mark.parametrize("streamed", [False, True])
async def test_background_request_without_a_store_is_a_503(streamed):
    async with gateway(HELLO, store={"url": "sqlite:////nowhere/at/all/gateway.db"}) as site:
        answer = await site.respond(background=True, stream=streamed)
        assert problem(answer) == (503, "server_error", "store_unavailable", None)
        assert site.upstream.posts == []


@pytest.mark.parametrize("streamed", [False, True])
async def test_background_warnings_and_debug_headers_are_sent_at_once(streamed):
    async with gateway(HELLO) as site:
        answer = await site.respond(
            background=True, stream=streamed, top_k=1, user="u", headers={"x-gateway-debug": "1"}
        )
    assert answer.headers["x-gateway-warnings"] == "forwarded:top_k"
    assert (answer.headers["x-gateway-backend"], answer.headers["x-gateway-model"]) == ("up", "m")
    assert answer.headers["x-gateway-format"].startswith("auto")


async def test_background_warnings_that_come_late_are_stored_in_the_stream():
    script, gates = slowly(*HI[:2])
    async with listening(script) as site:
        async with streaming(site, "/v1/responses", background=True) as answer:
            for gate in gates:
                gate.set()
            data = await answer.aread()
        id = events(data.decode())[0]["response"]["id"]
        assert "x-gateway-warnings" not in answer.headers
        assert per_event(data)[-2].startswith(b": gateway-warnings estimated:usage\n\nevent: response.completed")
        assert (await get(site, f"{id}?stream=true")).content == data


# Failures


REFUSALS = {
    "refused": (whole({"error": "key"}, status=401), "server_error", "upstream_auth_error"),
    "overrun": (whole({"error": "slow down"}, status=429), "rate_limit_exceeded", "rate_limit_exceeded"),
    "broken": (whole({"error": "no"}, status=500), "server_error", "upstream_error"),
    "too long": (TOO_LONG, "context_length_exceeded", "context_length_exceeded"),
    "closed": ([CLOSE], "server_error", None),
    "silent": ([HANG], "server_error", "upstream_timeout"),
    "silent after its head": ([head(), HANG], "server_error", "upstream_timeout"),
    "no answer": (whole(b"<html>", type="text/html"), "server_error", None),
    "broken in the middle": (stopping(4, CLOSE), "server_error", "upstream_lost"),
    "silent in the middle": (stopping(7), "server_error", "upstream_timeout"),
    "an error in the middle": (
        [head(), chunk("Hel"), frame(error={"message": "out of memory"}), DONE, END],
        "server_error",
        None,
    ),
}
# The other cases have no short timeout, so a machine that is slow for a moment does not look like a silent backend.
SHORT_TIMEOUTS = {
    "silent": {"first_byte": 0.1},
    "silent after its head": {"first_byte": 0.1, "idle": 0.1},
    "silent in the middle": {"idle": 0.4},
}


@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize("case", REFUSALS)
async def test_background_response_that_fails_is_stored_and_continued(case, streamed, store_url, store):
    script, code, error_code = REFUSALS[case]
    backend = {"timeouts": SHORT_TIMEOUTS.get(case, {})}
    async with (
        Upstream([HELLO], ()).serving() as second,
        gateway(
            script,
            backend=backend,
            more_backends={"second": {"url": second.url}},
            more_models={"other": {"backends": ["second"]}},
            **where(store_url),
        ) as site,
    ):
        if streamed:
            answer = await site.respond(background=True, stream=True, tools=F)
            assert answer.status_code == 200
            failed = checked(answer.content)
            error = events(answer.text)[-2]
            assert error["type"] == "error" and error_code in (None, error["code"], error["error"]["code"])
            assert (await get(site, f"{failed['id']}?stream=true")).content == answer.content
        else:
            failed = await ended(site, await accepted(site))
        assert (await get(site, failed["id"])).json() == failed
        assert (failed["status"], failed["error"]["code"], failed["completed_at"]) == ("failed", code, None)
        count = {"broken in the middle": 2, "silent in the middle": 3, "an error in the middle": 1}.get(case, 0)
        assert len(failed["output"]) == count and [item["status"] for item in failed["output"]][-1:] in (
            [],
            ["incomplete"],
        )
        followed = await site.respond(model="other", input="b", previous_response_id=failed["id"], stream=True)
        assert followed.status_code == 200
    left = await rows(store)
    assert {"jobs", "requests"} & left.keys() == set() and left.get("events", 0) == streamed


@pytest.mark.parametrize("streamed", [False, True])
async def test_background_response_fails_if_its_backend_is_unreachable(streamed):
    async with gateway(HELLO, backend={"url": "http://127.0.0.1:1"}) as site:
        answer = await site.respond(background=True, stream=streamed)
        id = events(answer.text)[0]["response"]["id"] if streamed else answer.json()["id"]
        failed = await ended(site, id)
    assert (failed["status"], failed["error"]["code"]) == ("failed", "server_error")


async def test_background_response_that_fails_after_the_grace_ends_its_stream():
    go = asyncio.Event()
    times = {"grace_seconds": 0.02, "keepalive_seconds": 0.02}
    async with listening([go, CLOSE], stream=times) as site, asking(site, background=True) as follower:
        await site.upstream.arrived.wait()
        await until(lambda: follower.data.count(b"event: response.in_progress\n") >= 3)  # keepalives
        go.set()
        data = await follower.all()
    assert checked(data)["status"] == "failed"
    assert len(events(data.decode())) > 5


@pytest.mark.parametrize("streamed", [False, True])
async def test_background_prompt_is_shortened_until_it_fits(streamed):
    history = [{"role": ("user", "assistant")[i % 2], "content": f"{i}"} for i in range(5)]
    async with gateway(TOO_LONG, TOO_LONG, HELLO) as site:
        answer = await site.respond(background=True, stream=streamed, input=history, truncation="auto")
        id = checked(answer.content)["id"] if streamed else answer.json()["id"]
        assert (await ended(site, id))["status"] == "completed"
        assert len({len(post.json["messages"]) for post in site.upstream.posts}) == 3
        if streamed:
            assert b": gateway-warnings truncated:input" in answer.content


async def test_background_prompt_that_cannot_be_shortened_fails():
    history = [{"role": ("user", "assistant")[i % 2], "content": f"{i}"} for i in range(5)]
    async with gateway(TOO_LONG) as site:
        answer = await site.respond(background=True, stream=True, input=history, truncation="auto")
    assert checked(answer.content)["error"]["code"] == "context_length_exceeded"


# Cancel


LAST = {
    "before the first byte": ([HANG], b"response.in_progress", 0),
    "before the first word": (stopping(1), b"response.in_progress", 0),
    "in a thought": (stopping(2), b'"delta":"Hm, "', 1),
    "in a text": (stopping(4), b'"delta":"Hel"', 2),
    "at the beginning of a call": (stopping(6), b"call_a", 3),
    "in the arguments of a call": (stopping(7), b'{\\"a\\": ', 3),
    "at the beginning of the next call": (stopping(9), b"call_b", 4),
    "before the finish": (stopping(10), b'{\\"b\\": 2}', 4),
}


@pytest.mark.parametrize("case", LAST)
async def test_cancel_ends_a_background_response_at_any_point(case, store_url, store, caplog):
    script, last, items = LAST[case]
    async with listening(script, **where(store_url)) as site, asking(site, background=True) as follower:
        await site.upstream.arrived.wait()
        await follower.until(last)
        id = follower.id
        response = await cancelled(site, id)
        async with asyncio.timeout(DEADLINE):
            await site.upstream.gone.wait()
        assert checked(await follower.all()) == response == checked_whole((await get(site, id)).content)
        assert (response["status"], response["error"], response["completed_at"]) == ("cancelled", None, None)
        statuses = [item["status"] for item in response["output"]]
        assert statuses in (["completed"] * (items - 1) + ["incomplete"] * bool(items), ["completed"] * items)
        assert statuses[-1:] == [] or (statuses[-1] == "completed") == (case == "before the finish")
        assert await cancelled(site, id) == response
        assert (await get(site, f"{id}?stream=true")).content == follower.data
    left = await rows(store)
    assert not {"jobs", "requests"} & left.keys() and left["events"] == 1
    assert [record for record in caplog.records if record.levelno >= logging.WARNING] == []


async def test_cancel_ends_a_background_response_while_its_prompt_is_counted(store_url):
    async with gateway(HELLO, **COUNTS_FIRST, **where(store_url)) as site:
        site.upstream.shown["/v1/chat/completions/input_tokens"] = [HANG]
        id = await accepted(site, **COMPACTED)
        await until(lambda: bool(site.upstream.aside))
        response = await cancelled(site, id)
        assert (response["status"], response["output"], site.upstream.posts) == ("cancelled", [], [])
        async with asyncio.timeout(DEADLINE):
            await site.upstream.gone.wait()


async def test_cancel_ends_a_background_response_during_compaction(store_url):
    async with gateway([HANG], **COUNTS_FIRST, **where(store_url)) as site:
        site.upstream.shown["/v1/chat/completions/input_tokens"] = whole({"input_tokens": 5000})
        id = await accepted(site, **COMPACTED)
        await site.upstream.arrived.wait()
        response = await cancelled(site, id)
        assert (response["status"], response["output"]) == ("cancelled", [])
        async with asyncio.timeout(DEADLINE):
            await site.upstream.gone.wait()


async def test_cancel_by_many_clients_at_once_gives_one_result(store_url):
    async with gateway([HANG], **where(store_url)) as site:
        id = await accepted(site)
        first, *others = await asyncio.gather(*(cancelled(site, id) for _ in range(8)))
        assert first["status"] == "cancelled" and others == [first] * 7


async def test_cancel_leaves_an_ended_response_as_it_is(store_url):
    async with gateway(HELLO, stopping(4, CLOSE), **where(store_url)) as site:
        for status in ("completed", "failed"):
            id = await accepted(site)
            response = await ended(site, id)
            assert response["status"] == status and await cancelled(site, id) == response


async def test_cancel_does_not_interrupt_the_storing_of_the_end(store_url, store):
    """The cancellation comes after the last chunk and before the end is stored."""
    script, gates = slowly(*HI)
    async with gateway(script, **where(store_url)) as site:
        id = await accepted(site)
        job = site.app.state.handler.jobs._running[id]
        async with store.writing() as db:  # the gateway cannot store anything now
            await db.execute(update(jobs).values(attempts=1))
            for gate in gates:
                gate.set()
            await until(lambda: job.ends)
            asking = asyncio.create_task(cancelled(site, id))
            job.cancel()  # as it will be told
            await idle(0.05)
        assert (await asking) == (await get(site, id)).json()
        assert (await asking)["status"] == "completed"


async def test_cancel_during_the_storing_of_reasoning_keeps_the_text(store_url, store):
    """The text and the end of the response are sent in spite of the cancellation."""
    script, gates = slowly(*CHUNKS[1:5], chunk(finish="stop"))
    memory = {"responses": {"reasoning_memory": True}}
    async with listening(script, **memory, **where(store_url)) as site, asking(site, background=True) as follower:
        for gate in gates[:4]:
            gate.set()
        await follower.until(b'"delta":"lo"')
        job = site.app.state.handler.jobs._running[follower.id]
        async with store.writing() as db:  # the gateway cannot store reasoning now
            await db.execute(text("UPDATE thoughts SET bytes = 0"))
            if store.notifies:
                await db.execute(text("LOCK TABLE thoughts IN EXCLUSIVE MODE"))
            for gate in gates:
                gate.set()
            await idle(0.2)
            job.cancel()
            await idle(0.05)
        response = checked(await follower.all())
        assert response["status"] in ("completed", "cancelled") and message_texts(response) == ["Hello"]
        assert (await get(site, follower.id)).json() == response
        assert (await get(site, f"{follower.id}?stream=true")).content == follower.data


async def test_cancel_refuses_foreground_unknown_and_foreign_responses():
    keys = {"auth": {"keys": [{"name": name, "key": f"{name}-{'k' * 20}"} for name in ("ann", "bob")]}}
    ann, bob = (bearer(f"{name}-{'k' * 20}") for name in ("ann", "bob"))
    async with gateway(HELLO, [HANG], **keys) as site:
        foreground = events((await site.respond(stream=True, headers=ann)).text)[0]["response"]["id"]
        id = (await site.respond(background=True, headers=ann)).json()["id"]
        for path, headers, error in (
            (foreground, ann, (400, BAD, None, None)),
            ("resp_nobodys", ann, (404, BAD, None, None)),
            (id, bob, (404, BAD, None, None)),
        ):
            answer = await site.client.post(f"/v1/responses/{path}/cancel", headers=headers)
            assert problem(answer) == error
        assert problem(await get(site, id, headers=bob))[0] == 404
        assert problem(await get(site, f"{id}?stream=true", headers=bob))[0] == 404
        assert (await get(site, id, headers=ann)).json()["status"] == "in_progress"
        assert (await cancelled(site, id, headers=ann))["status"] == "cancelled"


# Delete


@pytest.mark.parametrize("streamed", [False, True])
async def test_delete_ends_a_running_background_response(streamed, store_url, store, caplog):
    async with listening(stopping(4), HELLO, **where(store_url)) as site:
        async with asking(site, background=True) if streamed else nullcontext() as follower:
            if follower:
                await follower.until(b'"delta":"Hel"')
            id = follower.id if follower else await accepted(site)
            await site.upstream.arrived.wait()
            assert (await site.client.delete(f"/v1/responses/{id}")).json()["deleted"] is True
            async with asyncio.timeout(DEADLINE):
                await site.upstream.gone.wait()
            assert problem(await get(site, id))[0] == problem(await get(site, f"{id}?stream=true"))[0] == 404
            assert problem(await site.client.post(f"/v1/responses/{id}/cancel"))[0] == 404
            assert (await site.client.delete(f"/v1/responses/{id}")).status_code == 404
            if follower:
                response = checked(await follower.all())
                assert (response["status"], message_texts(response)) == ("cancelled", ["Hel"])
        answer = await site.respond(previous_response_id=id)
        assert problem(answer)[2] == "previous_response_not_found"
        assert not {"jobs", "requests", "events", "responses"} & (await rows(store)).keys()
    assert [record for record in caplog.records if record.levelno >= logging.WARNING] == []


async def test_delete_of_a_running_response_unlocks_its_conversation(store_url):
    async with gateway([HANG], HELLO, **where(store_url)) as site:
        conversation = (await site.client.post("/v1/conversations", json={})).json()["id"]
        id = await accepted(site, conversation=conversation)
        await site.upstream.arrived.wait()
        await site.client.delete(f"/v1/responses/{id}")
        answer = await site.respond(conversation=conversation, stream=True)
        assert answer.status_code == 200, answer.text
        listed = (await site.client.get(f"/v1/conversations/{conversation}/items")).json()["data"]
    assert [item["content"][0]["text"] for item in listed] == ["Hi", "Hello"]


# Continue


async def test_background_response_cannot_be_continued_while_it_runs(store_url):
    async with gateway([HANG], **where(store_url)) as site:
        id = await accepted(site)
        answer = await site.respond(previous_response_id=id)
        assert problem(answer) == (400, BAD, None, "previous_response_id")
        assert "in_progress" in answer.json()["error"]["message"]
        await cancelled(site, id)


CUT = stopping(7)
ENDS = {
    "completed": (EVERYTHING, 0),
    "cancelled": (CUT, 1),
    "failed": ([*CUT[:-1], CLOSE], 1),
    "incomplete": ([*CUT[:-1], chunk(finish="length"), DONE, END], 1),
}


@pytest.mark.parametrize("status", ENDS)
async def test_background_response_is_continued_from_its_complete_items(status, store_url):
    script, cut = ENDS[status]
    async with listening(script, HELLO, **where(store_url)) as site:
        async with asking(site, background=True) as follower:
            if status == "cancelled":
                await follower.until(LAST["in the arguments of a call"][1])
                await cancelled(site, follower.id)
            first = checked(await follower.all())
        assert first["status"] == status and len(first["output"]) == 3 + (not cut)
        outputs = [
            {"type": "function_call_output", "call_id": item["call_id"], "output": "42"} for item in first["output"][2:]
        ]
        answer = await site.respond(
            input=[] if cut else outputs, instructions="Go on.", previous_response_id=first["id"], stream=True
        )
        assert answer.status_code == 200, answer.text
        messages = [(message["role"], message.get("content")) for message in site.upstream_body["messages"]]
        assert messages[:3] == [("system", "Go on."), ("user", "Hello"), ("assistant", "Hello")]
        calls = site.upstream_body["messages"][2].get("tool_calls", ())
        assert len(calls) == (0 if cut else 2) and len(messages) == 3 + len(calls)


# Conversations


async def is_locked(site, conversation):
    answer = await site.respond(conversation=conversation)
    return answer.status_code == 400 and problem(answer)[2] == "conversation_locked"


@pytest.mark.parametrize(
    ("script", "status", "listed"),
    [
        (HI, "completed", ["Hi", "Hello"]),
        ([chunk("Hi"), chunk(finish="length")], "incomplete", ["Hi", "Hello"]),
        ([chunk("Hi"), frame(error={"message": "broken"})], "failed", []),
    ],
)
async def test_conversation_is_locked_until_its_background_response_ends(script, status, listed, store_url):
    steps, gates = slowly(*script)
    async with gateway(steps, HELLO, **where(store_url)) as site:
        conversation = (await site.client.post("/v1/conversations", json={})).json()["id"]
        id = await accepted(site, conversation=conversation)
        for gate in gates:
            assert await is_locked(site, conversation)
            items = (await site.client.get(f"/v1/conversations/{conversation}/items")).json()["data"]
            assert items == []
            given = (await get(site, f"{id}/input_items")).json()["data"]
            assert [item["content"][0]["text"] for item in given] == ["Hello"]
            gate.set()
        response = await ended(site, id)
        assert (response["status"], response["conversation"]) == (status, {"id": conversation})
        items = (await site.client.get(f"/v1/conversations/{conversation}/items")).json()["data"]
        assert [item["content"][0]["text"] for item in items] == listed
        assert (await site.respond(conversation=conversation, stream=True)).status_code == 200


async def test_background_input_items_are_those_of_the_whole_chain(store_url):
    async with gateway(HELLO, [HANG], **where(store_url)) as site:
        first = events((await site.respond(input="a", stream=True)).text)[-1]["response"]
        id = await accepted(site, input="b", previous_response_id=first["id"])
        listed = (await get(site, f"{id}/input_items?order=asc")).json()["data"]
        assert [item["content"][0]["text"] for item in listed] == ["a", "Hi", "b"]
        await cancelled(site, id)
        assert (await get(site, f"{id}/input_items?order=asc")).json()["data"] == listed
