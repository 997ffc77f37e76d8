"""Test batches over gateways that are killed or stopped: no finished line is asked again."""

import signal
from collections import Counter
from contextlib import AsyncExitStack
from functools import partial

import pytest

from gateway.store import Database, batches
from support.batches import begin, chat_line, ended, output, retrieve
from support.gateway_process import process
from support.upstream import Upstream, completion_body, whole
from support.wait import until

LINES = 150
AT_ONCE = 16  # lines of a batch
EAGER = {"lease": 1}


async def finished_lines(store_url, made):
    """Return the numbers of the lines with a result in the store."""
    store = Database(store_url)
    try:
        async with store.reading() as db:
            return await batches.finished(db, made["id"])
    finally:
        await store.close()


async def has_completed(client, made, count):
    """Return True if a batch has completed so many lines."""
    return (await retrieve(client, made))["request_counts"]["completed"] >= count


def count_requests(upstream):
    """Return how many times each line was asked, by its number."""
    return Counter(int(post.json["messages"][0]["content"]) for post in upstream.posts)


@pytest.mark.parametrize("store_url", ["sqlite", "postgresql"], indirect=True)
@pytest.mark.parametrize("signals", [[signal.SIGKILL, signal.SIGKILL], [signal.SIGTERM]], ids=["kill", "stop"])
async def test_batch_asks_no_finished_line_again(store_url, tmp_path, signals):
    async with AsyncExitStack() as stack:
        upstream = await stack.enter_async_context(Upstream([whole(completion_body("Hi"))], ()).serving())
        made, finished_counts = None, {}
        for goal, ending in enumerate(signals, 1):
            child, client = await stack.enter_async_context(process(upstream.url, store_url, tmp_path, eager=EAGER))
            made = made or await begin(client, [chat_line(str(number)) for number in range(LINES)])
            await until(partial(has_completed, client, made, goal * 25))
            child.send_signal(ending)
            await child.wait()
            counts = count_requests(upstream)
            finished_counts |= {line: counts[line] for line in await finished_lines(store_url, made)}
        _, client = await stack.enter_async_context(process(upstream.url, store_url, tmp_path, eager=EAGER))
        batch = await ended(client, made)
        assert batch["request_counts"] == {"total": LINES, "completed": LINES, "failed": 0}
        assert {one["custom_id"] for one in await output(client, batch)} == {str(number) for number in range(LINES)}
    counts = count_requests(upstream)
    assert len(finished_counts) < LINES == len(counts), "some lines were left for the last gateway"
    assert {line: counts[line] for line in finished_counts} == finished_counts
    assert max(counts.values()) <= 1 + len(signals)
    repeats = 0 if signal.SIGTERM in signals else AT_ONCE * len(signals)
    assert counts.total() <= LINES + repeats
