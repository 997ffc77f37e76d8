"""Test how one process accepts connections."""

import asyncio
import os
import socket
from contextlib import ExitStack

from gateway.config import Config
from gateway.server.http.server_config import ServerConfig
from gateway.server.http.uvicorn_protocol import STOPPING
from gateway.server.process.worker import WorkerServer

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
