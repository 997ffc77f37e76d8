"""Send each body, print what it did, and the verdict.  Status 1: a stall or the growth of memory is above its bound."""

import argparse
import asyncio
import statistics
import sys
import tempfile
from functools import partial

import uvloop

from stalls.answers import ANSWERS, BODY, VECTORS
from stalls.bodies import CHAT, EMBEDDINGS, MESSAGES, RESPONSES, ROWS
from stalls.gateway import watched
from support.terminal import say
from support.upstream import HELLO, Upstream

STALL = 0.05  # seconds
GROWTH, GROWTH_PER_BYTE = 16 << 20, 4  # the bytes of the body, or of the backend's response
FIRST = (  # what a gateway does once is not measured
    (CHAT, b'{"model":"m","messages":[{"role":"user","content":"hi"}]}'),
    (RESPONSES, b'{"model":"m","input":"hi"}'),
    (MESSAGES, b'{"model":"m","max_tokens":9,"messages":[{"role":"user","content":"hi"}]}'),
)
HEAD = "| body | endpoint | MB | stall, ms | growth, MB | answer |\n|---|---|---|---|---|---|"


def wanted():
    parser = argparse.ArgumentParser(prog="stalls")
    parser.add_argument("--only", default="", help="rows whose name or endpoint has this in it")
    parser.add_argument("--rounds", type=int, default=3, help="of each row: its least stall, its median growth")
    return parser.parse_args()


async def main():
    options = wanted()
    rows = [(row.name, row.path, row.body, HELLO) for row in ROWS]
    rows += [(name, CHAT, lambda: BODY, script) for name, script in ANSWERS.items()]
    rows += [(name, EMBEDDINGS, partial(bytes, body), script) for name, (script, body) in VECTORS.items()]
    say(HEAD)
    failures = []
    for name, path, body, script in rows:
        if options.only in f"{name} {path}":
            failures += await row(name, path, body(), script, options.rounds)
    for one in failures:
        say(f"FAIL {one}")
    return bool(failures)


async def row(name, path, body, script, rounds):
    """Print the row; return what is wrong in it.  Each row has a gateway of its own."""
    with tempfile.TemporaryDirectory() as folder:
        async with Upstream([script], ["m"]).serving() as upstream, watched(upstream.url, folder) as gateway:
            for first in FIRST:
                await gateway.cost(*first)
            costs = [await gateway.cost(path, body) for _ in range(rounds)]
    stall, growth = min(one.stall for one in costs), statistics.median(one.growth for one in costs)
    answer = f"{costs[0].status} {costs[0].code}".strip()
    say(f"| {name} | {path} | {len(body) / 1e6:.1f} | {stall * 1e3:.0f} | {growth / (1 << 20):.0f} | {answer} |")
    large = max(len(body), sum(len(step) for step in script if isinstance(step, bytes)))
    return [*wrong(f"{name}, {path}", stall, growth, GROWTH + GROWTH_PER_BYTE * large)]


def wrong(name, stall, growth, most):
    if stall > STALL:
        yield f"{name}: a stall of {stall * 1e3:.0f} ms"
    if growth > most:
        yield f"{name}: {growth / (1 << 20):.0f} MB more memory"


if __name__ == "__main__":
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        sys.exit(runner.run(main()))
