"""Test how responses of a backend open and close its circuit, also failures inside a 200."""

import asyncio

import pytest

from support.backends import circuit_state, extend_pauses, fleet
from support.sse import text_of
from support.upstream import CLOSE, END, HANG, HELLO, chunk, completion_body, frame, head, stream, whole
from support.wait import idle, until

HTML = whole(b"<html>no</html>", type="text/html")
EMPTY = [head(), END]
BROKEN = stream(frame(error={"message": "out of memory", "code": 500}))
VECTOR = whole({"object": "list", "data": [{"object": "embedding", "index": 0, "embedding": [0.5]}], "model": "m"})
INSIDE = {  # a 200
    "a page": HTML,
    "no JSON": whole(b'{"choices": ['),
    "nothing": whole(b""),
    "no choices": whole({"object": "chat.completion", "choices": []}),
    "an error": whole({"error": {"message": "out of memory"}}),
    "an empty stream": EMPTY,
    "a role and the end": [head(), chunk(role="assistant"), END],
    "a role and no more": [head(), chunk(role="assistant"), CLOSE],
    "a role and silence": [head(), chunk(role="assistant"), HANG],
    "an error in the stream": BROKEN,
}
ONE_CHOICE = [{"kind": "transformers"}] * 2
BRIEF = {"timeouts": {"idle": 0.1}}


def back_in(site):
    return site.backend("b0").limiter.health.back_in(asyncio.get_running_loop().time())


def half_open(site, name="b0"):
    """Open the circuit and end its pause."""
    for _ in range(5):
        site.backend(name).limiter.record_probe(succeeded=False)
    site.backend(name).limiter.record_probe(succeeded=True)


async def opens(site, ask):
    """Assert that the fifth request opens the circuit and that the sixth goes to another backend."""
    extend_pauses(site)
    for _ in range(5):
        assert circuit_state(site) == "closed"
        await ask()
    assert circuit_state(site) == "open"
    before = site.posts()[0]
    await ask()
    assert site.posts()[0] == before


@pytest.mark.parametrize(("path", "streamed"), [("chat", False), ("respond", True)])
@pytest.mark.parametrize("failure", INSIDE)
async def test_circuit_opens_after_five_failures_inside_a_200(failure, path, streamed):
    """A failed trial opens it again for longer, and a success closes it."""
    good = HELLO if streamed else whole(completion_body())
    async with fleet([*[INSIDE[failure]] * 6, good], [good], backends=[BRIEF, {}]) as site:
        limiter = site.backend("b0").limiter

        async def ask():
            return await getattr(site, path)(stream=streamed)

        await opens(site, ask)
        before = back_in(site)
        limiter.record_probe(succeeded=True)
        await ask()
        assert circuit_state(site) == "open" and back_in(site) > 1.5 * before
        limiter.record_probe(succeeded=True)
        assert (await ask()).status_code == 200
        assert circuit_state(site) == "closed" and site.posts()[0] == 7


@pytest.mark.parametrize("streamed", [False, True])
async def test_circuit_counts_a_client_error_inside_a_200_as_success(streamed):
    error = {"message": "maximum context length is 8 tokens", "code": 400}
    refused = stream(chunk(role="assistant"), frame(error=error)) if streamed else whole({"error": error})
    async with fleet([*[HTML] * 4, refused, HTML], [HELLO if streamed else whole(completion_body())]) as site:
        extend_pauses(site)
        statuses = [(await site.chat(stream=streamed)).status_code for _ in range(9)]
        assert statuses == [200] * 4 + [400] + [200] * 4 and circuit_state(site) == "closed"
        await site.chat(stream=streamed)
        assert circuit_state(site) == "open"


@pytest.mark.parametrize(
    ("first_data", "then"),
    [
        (chunk(role="assistant"), "half_open"),
        (b": a comment\n\n", "half_open"),
        (chunk(reasoning_content="Hm"), "closed"),
        (chunk("H"), "closed"),
    ],
)
async def test_circuit_closes_with_the_first_content(first_data, then):
    go = asyncio.Event()
    times = {"grace_seconds": 0.05}
    async with fleet([[head(), first_data, go, *HELLO[1:]]], [HELLO], stream=times) as site:
        half_open(site)
        asking = asyncio.create_task(site.chat(stream=True))
        await until(lambda: site.posts() == [1, 0])
        await (until(lambda: circuit_state(site) == then) if then == "closed" else idle(0.1))
        assert circuit_state(site) == then
        go.set()
        assert "Hi" in text_of((await asking).text) and circuit_state(site) == "closed"


async def test_circuit_counts_a_connection_that_stays_open_after_done_as_success():
    async with fleet([[*HELLO[:-1], HANG]], [HELLO]) as site:
        assert text_of((await site.chat(stream=True)).text) == "Hi" and site.posts() == [1, 0]
        assert site.backend("b0").limiter.health.share == 0


async def test_circuit_of_the_next_backend_closes_with_its_first_content():
    go = asyncio.Event()
    async with fleet([HTML], [[head(), chunk("H"), go, *HELLO[1:]]], stream={"grace_seconds": 0.05}) as site:
        half_open(site, "b1")
        asking = asyncio.create_task(site.chat(stream=True))
        await until(lambda: circuit_state(site, "b1") == "closed")
        go.set()
        assert text_of((await asking).text) == "HHi"


@pytest.mark.parametrize("end", [[frame(error={"message": "out of memory"}), END], [END], [CLOSE]])
async def test_circuit_counts_a_broken_stream_as_success_and_failure(end):
    go = asyncio.Event()
    async with fleet([[head(), chunk("H"), go, *end]], [HELLO], stream={"grace_seconds": 0.05}) as site:
        asking = asyncio.create_task(site.chat(stream=True))
        await until(lambda: site.backend("b0").limiter.health.weight(asyncio.get_running_loop().time()) > 0)
        assert site.backend("b0").limiter.health.share == 0
        go.set()
        assert text_of((await asking).text) == "H" and site.posts() == [1, 0]
        assert 0.5 <= site.backend("b0").limiter.health.share < 0.6


async def test_circuit_counts_a_response_without_content_as_success():
    nothing = stream(chunk(finish="stop"))
    async with fleet([*[HTML] * 4, nothing, HTML], [HELLO]) as site:
        for _ in range(9):
            await site.chat(stream=True)
        assert circuit_state(site) == "closed"


async def test_circuit_stays_half_open_if_the_client_leaves_before_content():
    async with fleet([[head(), chunk(role="assistant"), HANG], HELLO], [HELLO]) as site:
        half_open(site)
        asking = asyncio.create_task(site.chat(stream=True))
        await until(lambda: site.posts() == [1, 0])
        asking.cancel()
        await until(lambda: not site.backend("b0").limiter.queue.total)
        assert circuit_state(site) == "half_open"
        assert text_of((await site.chat(stream=True)).text) == "Hi" and site.posts() == [2, 0]
        assert circuit_state(site) == "closed"


@pytest.mark.parametrize("failure", [HTML, BROKEN])
async def test_circuit_opens_for_the_hedged_backend_that_failed(failure):
    async with fleet([[HANG]], [*[failure] * 5, HELLO], [HELLO], model={"hedge_seconds": 0.02}) as site:
        extend_pauses(site, "b1")
        for _ in range(5):
            assert circuit_state(site, "b1") == "closed"
            assert text_of((await site.chat(stream=True)).text) == "Hi"
        assert (circuit_state(site), circuit_state(site, "b1"), site.posts()) == ("closed", "open", [5, 5, 5])


async def test_circuit_of_the_first_backend_is_the_same_with_hedging():
    async with fleet([*[HTML] * 5, HELLO], [HELLO], model={"hedge_seconds": 5}) as site:
        await opens(site, lambda: site.chat(stream=True))
        site.backend("b0").limiter.record_probe(succeeded=True)
        assert (await site.chat(stream=True)).status_code == 200 and circuit_state(site) == "closed"


@pytest.mark.parametrize("failure", [HTML, EMPTY, BROKEN])
async def test_circuit_counts_a_fan_out_of_choices_as_one_failure(failure):
    async with fleet([failure], [whole(completion_body())], backends=ONE_CHOICE, model={"format": "native"}) as site:
        await opens(site, lambda: site.chat(n=2))


async def test_circuit_closes_after_a_fan_out_of_choices():
    async with fleet([whole(completion_body())], [HELLO], backends=ONE_CHOICE, model={"format": "native"}) as site:
        half_open(site)
        assert (await site.chat(n=2)).status_code == 200
        assert site.posts() == [2, 0] and circuit_state(site) == "closed"


@pytest.mark.parametrize(
    "failure", [HTML, whole({"error": "no"}), whole({"data": []}), whole(b'["' + b"x" * (1 << 20))]
)
async def test_circuit_counts_an_invalid_embeddings_response_as_failure(failure):
    async with fleet([*[failure] * 5, VECTOR], [VECTOR]) as site:

        async def embed():
            answer = await site.client.post("/v1/embeddings", json={"model": "m", "input": "a"})
            assert answer.status_code == 200

        await opens(site, embed)
        site.backend("b0").limiter.record_probe(succeeded=True)
        await embed()
        assert circuit_state(site) == "closed" and site.posts()[0] == 6


@pytest.mark.parametrize("path", ["embeddings", "rerank"])
async def test_circuit_counts_a_refusal_by_a_service_inside_a_200_as_success(path):
    refused = whole({"error": {"message": "the input is wrong", "code": 400}})
    request = {"model": "m", "input": "a"} if path == "embeddings" else {"model": "m", "query": "a", "documents": ["a"]}
    async with fleet([*[HTML] * 4, refused, HTML]) as site:
        statuses = [(await site.client.post(f"/v1/{path}", json=request)).status_code for _ in range(9)]
        assert statuses == [502] * 4 + [400] + [502] * 4
        assert circuit_state(site) == "closed"


async def test_circuit_counts_an_invalid_compaction_summary_as_failure():
    compacted = {"context_management": [{"type": "compaction", "compact_threshold": 1}]}
    async with fleet([HTML], [HELLO]) as site:
        await opens(site, lambda: site.respond(stream=True, **compacted))
