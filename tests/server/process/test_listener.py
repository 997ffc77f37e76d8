"""Test the socket that a gateway listens on."""

import asyncio
import socket

from gateway.server.process.listener import open_listener


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
