"""Open the socket that a gateway listens on."""

import errno
import socket

from gateway.config import ServerSettings

_WAITING = 2048  # connections in the listen queue


class CannotListen(Exception):
    """A program listens there already, or the address belongs to another machine; the text has the cause."""


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


def listener_of(server: ServerSettings) -> socket.socket:
    """Return a socket that listens at the configured address.  Raise CannotListen."""
    try:
        return open_listener(server.host, server.port)
    except OSError as error:
        raise CannotListen(f"cannot listen on {server.host} port {server.port}: {_cause(error)}") from None


def _cause(error: OSError) -> str:
    """Return why the socket cannot be opened, without the address that Python adds."""
    if error.errno == errno.EADDRINUSE:
        return "another program listens there, perhaps a gateway; stop it, or choose another port: --port N"
    return str(error.strerror).partition(" (while ")[0]
