"""Test a configuration that is reloaded while it is served: new requests get it, running ones do not notice."""

import asyncio
import gc
import signal
import weakref
from contextlib import asynccontextmanager, contextmanager

import httpx
import psutil
import pytest
from websockets.asyncio.client import connect

from gateway.config import Config
from gateway.server.app import create_app
from gateway.server.http.server_config import ServerConfig
from gateway.server.process.config_source import ConfigSource, ConfigWatcher
from gateway.server.process.worker import AppReloader, WorkerServer
from gateway.store import Database, audit_log
from support.app import HELLO_MESSAGES, bearer, on_both_loops, running, settings
from support.serve_process import config_of, first, living, post_chat, rest, streaming, until_refused
from support.sse import text_of
from support.upstream import HELLO, Upstream, chunk, paused, stream
from support.wait import DEADLINE, until, until_blocking
from support.websocket import Socket, texts

ELSE = stream(chunk("Hallo"), chunk(finish="stop"))


@asynccontextmanager
async def two_upstreams(*scripts):
    async with asyncio.timeout(60), Upstream([*scripts], ()).serving() as a, Upstream([ELSE], ()).serving() as b:
        yield a, b


# Processes


async def until_moved(gateway, key=None):
    """Wait until all workers answer from the other upstream."""
    async with asyncio.timeout(DEADLINE):
        right = 0
        while right < 8:
            headers = bearer(key) if key else {}
            async with httpx.AsyncClient(base_url=gateway.client.base_url, headers=headers, verify=False) as one:
                answer = await one.post("/v1/chat/completions", json={"model": "m", "messages": HELLO_MESSAGES})
            right = right + 1 if "Hallo" in answer.text else 0


@pytest.mark.parametrize("workers", ["1", "2"])
async def test_config_reload_keeps_streams_and_applies_to_new_requests(workers, tmp_path):
    go = asyncio.Event()
    async with (
        two_upstreams(paused(go)) as (one, other),
        living(tmp_path, config_of(one.url, tmp_path, keys=["old"]), "--workers", workers) as gateway,
        streaming(gateway, "old") as answer,
    ):
        pieces, body = await first(answer, "Hel")
        gateway.write(config_of(other.url, tmp_path, keys=["new"], server={"workers": 7, "drain_seconds": 1}))
        gateway.child.send_signal(signal.SIGHUP)
        await gateway.wait_for("server.drain_seconds: the change takes effect when the gateway is restarted")
        await until_moved(gateway, "new")
        await until_refused(gateway, "old")
        assert len(gateway.workers()) == (0 if workers == "1" else 2), "the command line says how many"
        go.set()
        assert text_of(await rest(pieces, body)) == "Hello"


@pytest.mark.parametrize("workers", [1, 2])
async def test_config_reload_happens_when_the_file_changes(workers, tmp_path):
    server = {"watch_seconds": 0.05, "workers": workers}
    async with (
        two_upstreams(HELLO) as (one, other),
        living(tmp_path, config_of(one.url, tmp_path, server=server)) as gateway,
    ):
        assert text_of((await post_chat(gateway, stream=True)).text) == "Hi"
        gateway.write("server: {prot: 1}\nmodels: {m: {format: morse}}")
        await gateway.wait_for("the new configuration is invalid, the previous one stays in use:\n")
        await gateway.wait_for("gateway.yaml:1: server.prot: unknown key; did you mean 'port'?")
        await gateway.wait_for("gateway.yaml:2: models.m.format: unknown format 'morse'")
        assert text_of((await post_chat(gateway, stream=True)).text) == "Hi"
        gateway.write(config_of(other.url, tmp_path, server=server))
        await until_moved(gateway)
        assert gateway.output.count("the changes apply") == 1


@pytest.mark.parametrize("workers", ["1", "2"])
async def test_config_reload_is_in_the_audit_log_once(workers, tmp_path):
    async with (
        two_upstreams(HELLO) as (one, other),
        living(tmp_path, config_of(one.url, tmp_path), "--workers", workers) as gateway,
    ):
        store, found = Database(f"sqlite:///{tmp_path}/gateway.db"), []

        async def last_changes():
            async with store.reading() as db:
                found[:] = await audit_log.read(db, 9, newest_first=False)
            return found[-1].body["changes"] if found else None

        for url, before in ((other.url, one.url), (one.url, other.url)):
            await gateway.renew(config_of(url, tmp_path))
            await until(last_changes, [{"path": "backends.up.url", "from": before, "to": url}])
        assert len(found) == 2
        await store.close()


async def test_config_reload_keeps_websockets_and_jobs(tmp_path):
    """A WebSocket stays with the old config; a job is found and cancelled through the new one."""
    first_job, second_job = asyncio.Event(), asyncio.Event()
    async with (
        two_upstreams(paused(first_job), paused(second_job), HELLO) as (one, other),
        living(tmp_path, config_of(one.url, tmp_path)) as gateway,
        connect(f"ws://127.0.0.1:{gateway.client.base_url.port}/v1/responses") as ws,
    ):
        jobs = [await start_job(gateway, one, count) for count in (1, 2)]
        await gateway.renew(config_of(other.url, tmp_path))
        await until_moved(gateway)

        assert texts(await Socket(ws).respond()) == ["Hi"]
        assert (await get_response(gateway, jobs[0]))["status"] == "in_progress"
        first_job.set()
        await until(lambda: status_of(gateway, jobs[0]), "completed")
        done = await get_response(gateway, jobs[0])
        assert done["output"][0]["content"][0]["text"] == "Hello"
        cancelled = await gateway.client.post(f"/v1/responses/{jobs[1]}/cancel")
        assert cancelled.json()["status"] == "cancelled"
        second_job.set()


async def start_job(gateway, upstream, count):
    """Start a job; return its id when the upstream has `count` requests."""
    answer = await gateway.client.post("/v1/responses", json={"model": "m", "input": "Hi", "background": True})
    await until(lambda: len(upstream.posts), count)
    return answer.json()["id"]


async def get_response(gateway, id):
    return (await gateway.client.get(f"/v1/responses/{id}")).json()


async def status_of(gateway, id):
    return (await get_response(gateway, id))["status"]


async def test_config_reload_can_be_without_changes_or_repeated(tmp_path):
    async with (
        two_upstreams(HELLO) as (one, other),
        living(tmp_path, config_of(one.url, tmp_path)) as gateway,
    ):
        gateway.child.send_signal(signal.SIGHUP)
        await gateway.wait_for("no changes")
        for url in (other.url, one.url, other.url):
            await gateway.renew(config_of(url, tmp_path))
        await until_moved(gateway)


# Generations


@contextmanager
def small_heap():
    """Keep the objects of other tests out of garbage collections in this block, so that these are quick."""
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()


@asynccontextmanager
async def renewable(url):
    """Serve generations; yield them, all applications ever made for them, and a client."""
    made = []

    def make(known):
        app = create_app(known)
        made.append(weakref.ref(app))
        return app

    closing = {"connection": "close"}  # a kept connection refers to its last request for some seconds
    with small_heap():
        generations = AppReloader(make, settings(url))
        async with (
            running(generations) as root,
            httpx.AsyncClient(base_url=root, headers=closing, verify=False) as client,
        ):
            yield generations, made, client


def measured():
    gc.collect()
    return len(asyncio.all_tasks()), psutil.Process().num_fds()


@on_both_loops
async def test_config_reload_leaks_no_tasks_or_descriptors():
    go = asyncio.Event()
    async with Upstream([paused(go), HELLO], ()).serving() as upstream, renewable(upstream.url) as site:
        generations, made, client = site
        asking = {"model": "m", "messages": HELLO_MESSAGES, "stream": True}
        async with client.stream("POST", "/v1/chat/completions", json=asking) as answer:
            pieces, body = await first(answer, "Hel")
            await generations.reload(settings(upstream.url))
            counts = []
            for _ in range(5):
                job = await client.post("/v1/responses", json={"model": "m", "input": "Hi"})
                assert job.json()["status"] == "completed"
                await generations.reload(settings(upstream.url))
                await until_collected(made, 2)
                counts.append(measured())
            assert counts[-1] == counts[0]
            assert made[0]() is not None, "a request uses it"
            go.set()
            assert text_of(await rest(pieces, body)) == "Hello"
        await until_collected(made, 1)


async def until_collected(made, most):
    """Wait until at most so many applications are left."""

    def few_left():
        gc.collect()
        return sum(one() is not None for one in made) <= most

    await until(few_left)


@on_both_loops
async def test_config_reload_that_fails_to_start_changes_nothing(caplog):
    def make(known):
        if known.server.drain_seconds == 1:
            raise OSError("no room")
        return create_app(known)

    async with Upstream([HELLO], ()).serving() as upstream:
        known = settings(upstream.url)
        new = [
            settings(upstream.url, server={"drain_seconds": 1}),
            settings(upstream.url, stream={"client_seconds": 9}),
        ]

        async def news():
            return new.pop(0) if new else None

        generations = AppReloader(make, known)
        async with running(generations, known) as url, httpx.AsyncClient(base_url=url, verify=False) as client:
            at = ServerConfig(generations, known)
            server = WorkerServer(generations, at, news)
            assert not await server.on_tick(1)
            assert "the new configuration cannot be applied, the previous one stays in use" in caplog.text
            assert at.client_seconds == 60
            assert (await client.get("/health")).status_code == 200
            assert not await server.on_tick(2)
            assert at.client_seconds == 9
            assert not await server.on_tick(3)


@on_both_loops
async def test_config_reload_shutdown_does_not_wait_for_stuck_requests(monkeypatch):
    """The server has given up on these requests already."""
    monkeypatch.setattr("gateway.server.process.worker._LAST_WORDS", 0.05)
    steps, messages = asyncio.Queue(), asyncio.Queue()
    scope = {"type": "http", "method": "POST", "path": "/v1/responses", "headers": []}
    async with Upstream([HELLO], ()).serving() as upstream:
        generations = AppReloader(create_app, settings(upstream.url))
        life = asyncio.create_task(generations({"type": "lifespan", "state": {}}, steps.get, messages.put))
        steps.put_nowait({"type": "lifespan.startup"})
        assert await messages.get() == {"type": "lifespan.startup.complete"}
        stays = asyncio.create_task(generations(scope, asyncio.Event().wait, messages.put))
        await asyncio.sleep(0)
        steps.put_nowait({"type": "lifespan.shutdown"})
        assert await messages.get() == {"type": "lifespan.shutdown.complete"}
        await life
        assert not stays.done()
        stays.cancel()
        await stays


@on_both_loops
async def test_config_reload_shutdown_by_a_second_signal_is_no_failure():
    """uvicorn leaves out the message of the shutdown, and the end of the event loop cancels the task."""
    steps, messages = asyncio.Queue(), asyncio.Queue()
    async with Upstream([HELLO], ()).serving() as upstream:
        generations = AppReloader(create_app, settings(upstream.url))
        life = asyncio.create_task(generations({"type": "lifespan", "state": {}}, steps.get, messages.put))
        steps.put_nowait({"type": "lifespan.startup"})
        assert await messages.get() == {"type": "lifespan.startup.complete"}
        life.cancel()
        await life
        assert await messages.get() == {"type": "lifespan.shutdown.complete"}


# File


class Written:
    """A file in a folder, and the watch of it."""

    def __init__(self, folder, text="server: {}", **flags):
        self.source = ConfigSource(folder / "gateway.yaml", flags)
        self.source.file.write_text(text)
        self.watch = ConfigWatcher(self.source.read(), self.source)

    def write_file(self, text):
        self.source.file.write_text(text)


def test_config_file_is_read_when_it_no_longer_changes(tmp_path):
    file = Written(tmp_path, port=7000)
    assert file.watch.poll() is None
    file.write_file("server: {watch_seconds: 1}")
    assert file.watch.poll() is None, "an editor may be writing it"
    assert file.watch.poll().server.watch_seconds == 1
    assert file.watch.poll() is None
    file.write_file("server: {watch_seconds: 22}")
    assert file.watch.poll() is None
    file.source.file.unlink()
    assert file.watch.poll() is None
    file.write_file("server: {watch_seconds: 333}")
    assert file.watch.poll() is None
    assert file.watch.poll().server == Config(server={"watch_seconds": 333, "port": 7000}).server


def test_config_file_is_checked_every_watch_seconds(tmp_path):
    file = Written(tmp_path, "server: {watch_seconds: 0.001}")
    until_blocking(lambda: file.watch.is_due)
    assert not Written(tmp_path, "server: {watch_seconds: 3000}").watch.is_due
    never = Written(tmp_path, "server: {watch_seconds: 0}").watch
    assert not never.is_due
    never.request_reload()
    assert never.is_due and never.poll() is None and not never.is_due


def test_config_reload_keeps_settings_that_need_a_restart(tmp_path, caplog):
    file = Written(tmp_path, "auth: {keys: [{name: a, key: b}]}\nserver: {host: 0.0.0.0, port: 1, workers: 2}")
    file.write_file("auth: {keys: [{name: a, key: b}]}\nserver: {drain_seconds: 1, cors: ['*']}")
    file.watch.request_reload()
    assert file.watch.poll().server == Config(server={"host": "0.0.0.0", "port": 1, "workers": 2, "cors": ["*"]}).server
    names = "server.host, server.port, server.workers, server.drain_seconds"
    assert f"{names}: the change takes effect when the gateway is restarted" in caplog.text


def test_config_reload_without_keys_on_a_public_address_is_refused(tmp_path, caplog):
    file = Written(tmp_path, "auth: {keys: [{name: a, key: b}]}\nserver: {host: 0.0.0.0}")
    file.write_file("server: {host: 127.0.0.1}")
    file.watch.request_reload()
    assert file.watch.poll() is None
    assert "gateway.yaml: auth: without keys, other machines could connect, because the gateway still" in caplog.text


def test_config_reload_without_a_file_logs_a_warning(caplog):
    watch = ConfigWatcher(Config(), None)
    assert not watch.is_due
    watch.request_reload()
    assert watch.is_due and watch.poll() is None
    assert "the gateway has no configuration file to reload" in caplog.text
