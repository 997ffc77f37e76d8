"""Send requests as bytes."""

import asyncio
import json
import socket
from contextlib import asynccontextmanager

from support.app import HELLO_MESSAGES

HEAD = b"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-length: %d\r\n\r\n"


def port_of(site):
    """Return the port of a site."""
    return site.client.base_url.port


async def narrow(port):
    """Return a socket with a small receive buffer."""
    sock = socket.socket()
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 8192)
    sock.setblocking(False)
    await asyncio.get_running_loop().sock_connect(sock, ("127.0.0.1", port))
    return sock


def request_bytes(**fields):
    """Return a request for a chat completion: the smallest one with these fields."""
    body = json.dumps({"model": "m", "messages": HELLO_MESSAGES, **fields}).encode()
    return HEAD % len(body) + body


@asynccontextmanager
async def asking(site):
    """Yield a socket on which a stream has been requested; the test reads it."""
    sock = await narrow(port_of(site))
    await asyncio.get_running_loop().sock_sendall(sock, request_bytes(stream=True))
    with sock:
        yield sock
