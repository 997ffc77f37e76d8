"""Backups that are made while a gateway writes: another one goes on from them.  Part of `make test-pg`."""

import sqlite3
import subprocess
from contextlib import closing

import pytest

from support.gateway_process import process
from support.postgres import programs
from support.upstream import Upstream, completion_body, whole

ANSWER = whole(completion_body("Hi"))


def of_sqlite(url, folder):
    """As `sqlite3 gateway.db ".backup copy.db"` does it."""
    copy = folder / "copy.db"
    with closing(sqlite3.connect(url.removeprefix("sqlite:///"))) as source, closing(sqlite3.connect(copy)) as target:
        source.backup(target)
    return f"sqlite:///{copy}"


def of_postgresql(url, folder):
    """With the tools of PostgreSQL, into a database of its own."""
    server, schema = url.split("&search_path=")
    copy, dump = server.replace("/postgres?", "/copy?"), folder / "dump"
    subprocess.run(
        [programs() / "pg_dump", "--format=custom", f"--file={dump}", f"--schema={schema}", server], check=True
    )
    subprocess.run([programs() / "psql", "-q", "-c", "CREATE DATABASE copy", server], check=True)
    subprocess.run([programs() / "pg_restore", f"--dbname={copy}", dump], check=True)
    return f"{copy}&search_path={schema}"


BACKUPS = {"sqlite": of_sqlite, "postgresql": of_postgresql}


@pytest.mark.parametrize("store_url", ["sqlite", "postgresql"], indirect=True)
async def test_a_copy_of_the_store_is_gone_on_from(store_url, tmp_path):
    async with Upstream([ANSWER], ()).serving() as upstream:
        async with process(upstream.url, store_url, tmp_path) as (_, client):
            first = await client.post("/v1/responses", json={"model": "m", "input": "a"})
            copy = BACKUPS[store_url.partition(":")[0]](store_url, tmp_path)
            await client.delete(f"/v1/responses/{first.json()['id']}")
        async with process(upstream.url, copy, tmp_path) as (_, client):
            before = first.json()["id"]
            assert (await client.get(f"/v1/responses/{before}")).json() == first.json()
            request = {"model": "m", "input": "b", "previous_response_id": before}
            assert (await client.post("/v1/responses", json=request)).status_code == 200
        assert [message["content"] for message in upstream.posts[-1].json["messages"]] == ["a", "Hi", "b"]
