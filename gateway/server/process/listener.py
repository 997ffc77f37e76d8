"""Open the socket that a gateway listens on."""

import socket

_WAITING = 2048  # connections in the listen queue


def open_listener(host: str, port: int) -> socket.socket:
    """Return a socket that listens there; port 0 is any free one.  Raise OSError.

    The address `::` means all addresses: clients connect by IPv4 as well, where the system allows that.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    both = family == socket.AF_INET6 and socket.has_dualstack_ipv6()
    listener = socket.create_server((host, port), family=family, backlog=_WAITING, dualstack_ipv6=both)
    # Its connections inherit it.  asyncio, unlike uvloop, does not set it: the second piece of a stream waited 40 ms.
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return listener
