"""Test the socket that a gateway listens on."""

import asyncio
import errno
import socket

import pytest

from gateway.config import Config, ServerSettings
from gateway.server.process import listener as listener_module
from gateway.server.process.listener import CannotListen, listener_of, open_listener
from gateway.server.process.supervisor import run_gateway


async def test_listener_gives_connections_that_send_small_pieces_at_once():
    options = asyncio.get_running_loop().create_future()

    async def welcome(_, writer):
        connection = writer.get_extra_info("socket")
        options.set_result(connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY))
        writer.close()

    with open_listener("127.0.0.1", 0) as listener:
        async with await asyncio.start_server(welcome, sock=listener):
            _, writer = await asyncio.open_connection(*listener.getsockname())
            assert await options
            writer.close()
            await writer.wait_closed()


@pytest.mark.parametrize("family", [socket.AF_INET, socket.AF_INET6])
def test_listener_on_all_addresses_takes_ipv4_and_ipv6(family):
    address = {socket.AF_INET: "127.0.0.1", socket.AF_INET6: "::1"}[family]
    with open_listener("::", 0) as listener, socket.socket(family) as client:
        client.connect((address, listener.getsockname()[1]))


def test_listener_on_an_ipv6_address_takes_no_ipv4():
    with (
        open_listener("::1", 0) as listener,
        socket.socket(socket.AF_INET) as client,
        pytest.raises(ConnectionRefusedError),
    ):
        client.connect(("127.0.0.1", listener.getsockname()[1]))


@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
def test_port_that_is_taken_is_a_plain_error_message(host):
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.create_server((host, 0), family=family) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(CannotListen, match=f"cannot listen on {host} port {port}: another program .* --port N$"):
            run_gateway(Config(server={"host": host, "port": port}))


def test_address_of_another_machine_is_a_plain_error_message(monkeypatch):
    def refuse(*address):
        raise OSError(errno.EADDRNOTAVAIL, f"Cannot assign requested address (while attempting to bind on {address})")

    monkeypatch.setattr(listener_module, "open_listener", refuse)
    with pytest.raises(CannotListen, match=r"^cannot listen on 192\.0\.2\.1 port 1: Cannot assign requested address$"):
        listener_of(ServerSettings(host="192.0.2.1", port=1))
