"""One of several processes on a store; test_store_processes.py checks its effects and its output."""

import asyncio
import itertools
import json
import sys
import time

from gateway.store import Database, conversations, jobs, responses

LEASE_MS = 60_000


def say(value):
    """Write a value to standard output."""
    sys.stdout.write(json.dumps(value) + "\n")
    sys.stdout.flush()


def response(name, number, size=10):
    """Return the body of a response, and its input: two items and three."""
    items = [{"id": f"{name}-{number}-{place}", "text": "x" * size} for place in range(5)]
    return {"id": f"{name}-{number}", "output": items[2:]}, items[:2]


async def branch(database, name, start, count):
    """Continue the same response as all other processes, then the own one, and so on."""
    previous = start
    for number in range(int(count)):
        async with database.reading() as db:
            behind = (await responses.find(db, "t", previous)).behind
        body, given = response(name, number)
        async with database.writing() as db:
            await responses.save(db, "t", body, given, behind, number)
        previous = body["id"]


async def fork(database, name, start, count):
    """Continue the same response as all other processes, again and again."""
    async with database.reading() as db:
        behind = (await responses.find(db, "t", start)).behind
    for number in range(int(count)):
        body, given = response(name, number)
        async with database.writing() as db:
            await responses.save(db, "t", body, given, behind, number)


async def hold(database, name, conversation, count):
    """Acquire a conversation, add items to it, and release it."""
    for _ in range(int(count)):
        while not await _held(database, name, conversation):  # noqa: ASYNC110 - the others are processes
            await asyncio.sleep(0.002)  # steady: it asks until the others let go
        for word in ("in", "out"):
            async with database.writing() as db:
                found = await conversations.find(db, "t", conversation)
                await conversations.append(db, found, [{"id": f"{name}-{word}", "word": word, "name": name}], 0)
        async with database.writing() as db:
            await conversations.release(db, conversation, name)


async def _held(database, name, conversation):
    async with database.writing() as db:
        now = int(time.time() * 1000)  # steady: a lease outlasts the test
        return await conversations.acquire(db, conversation, name, now, LEASE_MS)


async def save(database, name):
    """Save responses, each behind the last one, and print their ids, until killed."""
    behind = None
    for number in itertools.count():
        body, given = response(name, number, 2000)
        async with database.writing() as db:
            await responses.save(db, "t", body, given, behind, number)
        say(body["id"])
        async with database.reading() as db:
            behind = (await responses.find(db, "t", body["id"])).behind


async def take(database, name):
    """Claim jobs, two at a time, print their ids, and end every other one, until all jobs have a holder."""
    while True:
        async with database.writing() as db:
            taken = await jobs.claim(db, name, 0, LEASE_MS, 2)
        say([job.id for job in taken])
        for job in taken[::2]:
            async with database.writing() as db:
                assert await jobs.end(db, [job.id], name)
        if not taken:
            return


async def main(url, job, *arguments):
    """Do a job with these arguments."""
    database = Database(url)
    try:
        await {"branch": branch, "fork": fork, "hold": hold, "save": save, "take": take}[job](database, *arguments)
    finally:
        await database.close()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
