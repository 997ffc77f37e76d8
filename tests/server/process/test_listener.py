"""Test the socket that a gateway listens on."""

import asyncio
import socket

import pytest

from gateway.server.process.supervisor import open_listener


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
