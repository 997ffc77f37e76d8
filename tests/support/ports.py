"""Choose ports for servers that cannot choose one themselves."""

import secrets
import socket

# Below the ports from which the kernel takes those of outgoing connections: nothing takes one by chance.
_FIRST, _COUNT = 10_000, 20_000


def free_port() -> int:
    """Return a port of this machine that no server uses."""
    while True:
        port = _FIRST + secrets.randbelow(_COUNT)
        try:
            with socket.create_server(("127.0.0.1", port)):
                return port
        except OSError:
            continue
