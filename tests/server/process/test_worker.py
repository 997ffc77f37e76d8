"""Test how one process accepts connections."""

import asyncio
import os
import socket
from contextlib import ExitStack

from gateway.config import Config
from gateway.server.app import create_app
from gateway.server.http.server_config import ServerConfig
from gateway.server.http.uvicorn_protocol import STOPPING
from gateway.server.process.worker import AppReloader, WorkerServer
from gateway.store import Database, audit_log
from support.app import running, settings

CLIENTS = 8


class App:
    """An application that starts, stops and serves nothing."""

    async def __call__(self, scope, receive, send):
        scope["state"][STOPPING] = lambda: None
        for _ in range(2):
            message = await receive()
            await send({"type": f"{message['type']}.complete"})

    def begin_drain(self):
        pass


def test_worker_accepts_several_connections_in_each_turn_of_the_loop():
    counts = []

    async def news():
        while not counts or counts[-1] < CLIENTS:
            await asyncio.sleep(0)
            counts.append(len(server.server_state.connections))
        server.should_exit = True

    server = WorkerServer(App(), ServerConfig(App(), Config()), news)
    with socket.create_server(("127.0.0.1", 0)) as listener, ExitStack() as clients:
        for _ in range(CLIENTS):
            clients.enter_context(socket.create_connection(listener.getsockname()))
        server.serve_socket(listener)
    assert len({*counts} - {0}) < CLIENTS, "with one in each turn, every number is seen"


def test_worker_that_starts_keeps_the_socket_of_the_others_nonblocking():
    """The mode belongs to the socket of all processes: one that waits in accept serves nobody."""
    seen = []

    class Starting(WorkerServer):
        def run(self, sockets=None):
            seen.extend(os.get_blocking(sock.fileno()) for sock in sockets)
            for copy in sockets[1:]:
                copy.close()

    with socket.create_server(("127.0.0.1", 0)) as listener:
        for _ in range(2):
            Starting(App(), ServerConfig(App(), Config()), None).serve_socket(listener)
            assert not any(seen)


async def reloaded(first, *news, logged=True):
    """Serve generations of an application; return when the last config is served and its entry is written."""
    waiting = [*news]

    async def next_config():
        return waiting.pop(0) if waiting else None

    generations = AppReloader(create_app, first)
    async with running(generations, first):
        server = WorkerServer(generations, ServerConfig(generations, first), next_config, first if logged else None)
        for count in range(len(news)):
            await server.on_tick(count)
        if server._writing:
            await server._writing


async def logged_reloads(config):
    store = Database(config.store.url.get_secret_value())
    async with store.reading() as db:
        found = await audit_log.read(db, 10, newest_first=False)
    await store.close()
    return [entry.body for entry in found]


def known(**sections):
    return settings("http://127.0.0.1:9", **sections)


def on(config, **sections):
    """Return a config with other sections and the same store."""
    return known(store={"url": config.store.url.get_secret_value()}, **sections)


async def test_worker_logs_each_reload_with_its_difference():
    first = known()
    second = on(first, stream={"keepalive_seconds": 5})
    await reloaded(first, second, on(first, auth={"keys": ["secret-secret"]}))
    one, other = await logged_reloads(first)
    assert one == {
        "actor": f"gateway:{socket.gethostname()}",
        "action": "configuration.reloaded",
        "key": None,
        "changes": [{"path": "stream.keepalive_seconds", "from": 15, "to": 5}],
    }
    assert [change["path"] for change in other["changes"]] == ["auth.keys[key1]", "stream.keepalive_seconds"]
    assert "secret-secret" not in str(other)


async def test_worker_logs_a_reload_of_the_certificate_alone():
    first = known()
    await reloaded(first, on(first))
    (entry,) = await logged_reloads(first)
    assert entry["changes"] == [{"path": "server.tls.certificate", "secret": "changed"}]


async def test_worker_logs_no_reload_if_another_does_or_the_store_has_no_name():
    first = known()
    await reloaded(first, on(first, stream={"keepalive_seconds": 5}), logged=False)
    unnamed = first.model_copy(update={"store": Config().store})
    await reloaded(first, unnamed)
    assert await logged_reloads(first) == []


async def test_worker_serves_on_if_a_reload_cannot_be_logged(caplog, tmp_path):
    await reloaded(known(), known(store={"url": f"sqlite:///{tmp_path}/no/such/folder.db"}))
    assert "the reload cannot be written to the audit log: unable to open database file" in caplog.text
