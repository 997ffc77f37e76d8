"""Start PostgreSQL, Redis and llama.cpp once per run, for all its processes.

The process that the user started owns them.  If tests run in several processes, it starts the services at once, so that
they are ready when the first unit tests have passed.  Otherwise a service starts when a test needs it.
"""

import io
import itertools
import json
import shutil
import tempfile
import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path

import pytest

from gateway import demo
from support.postgres import Postgres
from support.redis_server import RedisServer
from support.wait import until_blocking


@contextmanager
def _llama() -> Iterator[str]:
    with demo.start_demo("--threads", "1", out=io.StringIO()) as url:
        yield url


@contextmanager
def _postgres() -> Iterator[str]:
    with Postgres.temporary() as server:
        yield str(server.folder)


@contextmanager
def _redis() -> Iterator[str]:
    with RedisServer.temporary() as server:
        yield server.url


_STARTERS = {"postgres": _postgres, "redis": _redis, "llama": _llama}


class Services:
    """The services of a run, in the process that owns them."""

    def __init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="services-"))
        self._threads: dict[str, threading.Thread] = {}
        self._running = ExitStack()

    def begin(self, *names: str) -> None:
        """Start services in the background."""
        for name in names:
            if name not in self._threads:
                self._threads[name] = threading.Thread(target=self._start, args=(name,))
                self._threads[name].start()

    def address(self, name: str) -> str:
        """Start a service if needed, and return its address."""
        self.begin(name)
        return address_in(self.folder, name)

    def stop(self) -> None:
        """Stop all services."""
        for thread in self._threads.values():
            thread.join()
        self._running.close()
        shutil.rmtree(self.folder)

    def _start(self, name: str) -> None:
        service: AbstractContextManager[str] = _STARTERS[name]()
        try:
            state = {"address": service.__enter__()}
            self._running.push(service)
        except Exception as error:  # noqa: BLE001 - each test that needs the service fails with it
            state = {"error": repr(error)}
        new = self.folder / f"{name}.new"
        new.write_text(json.dumps(state))
        new.rename(self.folder / name)


def address_in(folder: Path, name: str) -> str:
    """Return the address of a service that another process starts, as soon as it listens."""
    until_blocking((folder / name).exists)
    state = json.loads((folder / name).read_text())
    assert "error" not in state, state["error"]
    return state["address"]


# Fixtures

_NUMBERS = itertools.count()


@pytest.fixture(scope="session")
def services(request):
    """Return a function that returns the address of a service."""
    folder = getattr(request.config, "workerinput", {}).get("services")
    if folder:
        yield lambda name: address_in(Path(folder), name)
        return
    own = Services()
    yield own.address
    own.stop()


@pytest.fixture(scope="session")
def llama(services):
    """Return the URL of a llama.cpp with the demo's model; its own parser is on."""
    return services("llama")


@pytest.fixture(scope="session")
def postgres(services, worker):
    """Return the run's PostgreSQL; a test that stops the server takes `own_postgres`."""
    return Postgres(Path(services("postgres")), names=f"{worker}_")


@pytest.fixture(scope="module")
def own_postgres():
    """Return a PostgreSQL that a test may stop."""
    with Postgres.temporary() as server:
        yield server


@pytest.fixture(scope="module")
def own_redis():
    """Return a Redis that a test may stop."""
    with RedisServer.temporary() as server:
        yield server


@pytest.fixture(scope="session")
def worker(request):
    """Return the name of this process in the run."""
    return getattr(request.config, "workerinput", {}).get("workerid", "main")


@pytest.fixture
def redis_url(services, worker):
    """Return the URL of an empty database of the run's Redis."""
    first = 0 if worker == "main" else _DATABASES * int(worker.removeprefix("gw"))
    number = next(_NUMBERS)
    assert number < _DATABASES
    return services("redis").removesuffix("0") + str(first + number)


_DATABASES = 200  # of Redis, per process of a run


@pytest.fixture(
    params=[
        "sqlite",
        pytest.param("postgresql", marks=pytest.mark.system),
        pytest.param("redis", marks=pytest.mark.system),
    ]
)
def counted(request, tmp_path):
    """Return sections of a config: a new store, or Redis with its own database, for usage counts."""
    store = {"url": f"sqlite:///{tmp_path}/gateway.db"}
    if request.param == "postgresql":
        store = {"url": request.getfixturevalue("postgres").create(f"counted{next(_NUMBERS)}")}
    if request.param == "redis":
        return {"store": store, "limits": {"url": request.getfixturevalue("redis_url")}}
    return {"store": store}
