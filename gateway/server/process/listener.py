"""Open the socket that a gateway listens on."""

import socket

_WAITING = 2048  # connections in the listen queue


def open_listener(host: str, port: int) -> socket.socket:
    """Return a socket that listens there; port 0 is any free one.  Raise OSError."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.create_server((host, port), family=family, backlog=_WAITING)
    # Its connections inherit it.  asyncio, unlike uvloop, does not set it: the second piece of a stream waited 40 ms.
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return listener
